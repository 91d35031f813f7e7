"""Reads a state file: YAML or JSON, every value judged, nothing guessed at.

What a file leaves out has the defaults of document.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import yaml

from muster.core.placement.needs import PODS
from muster.model.keys import Ref
from muster.model.placing import GPU, GPU_MEMORY, WHOLE, Taint
from muster.model.workload import NodeState
from muster.tracesim.decide.document import JobEntry, NodeEntry, StateFile
from muster.tracesim.decide.jobs import JobReader
from muster.tracesim.decide.queues import read_queues
from muster.tracesim.decide.refusals import refusal
from muster.tracesim.decide.situation import Situation, StateFileError
from muster.tracesim.decide.values import MIB, at_least, named, seconds, unique
from muster.tracesim.documents import MAX_DEPTH, NO_YAML, flaw, too_deep
from muster.tracesim.facts import AMPLE

MAX_DEVICES = 10_000
"""Of one node."""


def read_state(text: str, origin: str) -> Situation:
    """The situation a file describes. Raises StateFileError, which begins with ``origin``."""
    try:
        return _situation(_parsed(text))
    except StateFileError as err:
        raise StateFileError(f"{origin}: {err}") from err


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml is not everywhere
    """Refuses a mapping that names a key twice: one of the two would be lost."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        twice = next((key for key, count in keys.items() if count > 1 and key != "<<"), None)
        if twice is not None:
            raise StateFileError(f"line {node.start_mark.line + 1}: {twice!r} is there twice")
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _plain(text: str) -> Any:
    """The value of a JSON text that a YAML reader would say the same of, only ten times as slowly. Raises ValueError,
    or RecursionError, for every other text.
    """
    if not text.isascii() or "\\u" in text or "\x7f" in text:
        raise ValueError("characters that YAML has its own rules for")
    document = json.loads(text, object_pairs_hook=_once, parse_float=_decimal, parse_constant=_decimal)
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [value for part in level for value in _values(part)]
    if level:
        raise ValueError("deeper than people write")
    return document


def _values(of: Any) -> Iterable[Any]:
    return of.values() if isinstance(of, dict) else of if isinstance(of, list) else ()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key is there twice")
    return mapping


def _decimal(number: str) -> float:
    if not number.lstrip("-").replace(".", "", 1).isdecimal():
        raise ValueError(f"{number} is a text in YAML")
    return float(number)


def _loaded(text: str) -> Any:
    """What a YAML or JSON text says."""
    try:
        return _plain(text)
    except (ValueError, RecursionError):
        pass  # YAML; or neither, and the reader of YAML names the line.
    try:
        if too_deep(text):
            raise StateFileError("is nested too deeply; write nodes, queues and jobs as lists of objects")
        return yaml.load(text, _Loader)  # noqa: S506 -- a SafeLoader
    except NO_YAML as err:
        raise StateFileError(f"is neither YAML nor JSON: {flaw(err)}") from err


def _parsed(text: str) -> StateFile:
    body = _loaded(text)
    if not isinstance(body, dict):
        raise StateFileError("must be an object with nodes, queues and jobs")
    try:
        return msgspec.convert(body, StateFile)
    except msgspec.ValidationError as err:
        raise StateFileError(refusal(err, body, StateFile, "")) from err


def _situation(state: StateFile) -> Situation:
    nodes = _node_states(state.nodes)
    by_name = {node.ref.name: node for node in nodes}
    unique("job", (job.name for job in state.jobs))
    queues, leaves = read_queues(state.queues)
    reader = JobReader(by_name, leaves)
    # Read by name: which devices running pods have where they do not say must not hang on the order of the file.
    by_index = {index: reader.job(entry, index) for index, entry in sorted(enumerate(state.jobs), key=_name)}
    jobs = tuple(by_index[index] for index in range(len(by_index)))
    times = [unit.created for job in jobs for unit in job.units if unit.core]
    times += [unit.started for job in jobs for unit in job.units if unit.running]
    now = max(times, default=0) if state.now_s is None else seconds(state.now_s, "now_s")
    if now < max(times, default=0):
        raise StateFileError(f"now_s: {state.now_s} is before something in the file has happened; give a later time")
    gpus = {node.name: node.gpus for node in state.nodes}
    return Situation(now, state.placement, nodes, queues, jobs, gpus)


def _name(indexed: tuple[int, JobEntry]) -> str:
    return indexed[1].name


def _node_states(entries: Sequence[NodeEntry]) -> tuple[NodeState, ...]:
    unique("node", (node.name for node in entries))
    machines = []
    for index, node in enumerate(entries):
        where = f"nodes[{index}] {node.name!r}"
        named(f"nodes[{index}]", node.name)
        at_least(where, 0, MAX_DEVICES, gpus=node.gpus)
        at_least(where, 0, cpu_milli=node.cpu_milli, memory_mib=node.memory_mib, pods=node.pods)
        at_least(where, 1, gpu_memory_mib=node.gpu_memory_mib)
        given = {
            "cpu": node.cpu_milli,
            "memory": None if node.memory_mib is None else node.memory_mib * MIB,
            PODS: None if node.pods is None else node.pods * 1000,
        }
        ample = {**AMPLE, PODS: 10**9}
        room = {name: ample[name] if amount is None else amount for name, amount in given.items()}
        labels = {"kubernetes.io/hostname": node.name, **node.labels}
        if node.gpu_memory_mib is not None:
            labels[GPU_MEMORY] = str(node.gpu_memory_mib)
        machines.append(
            NodeState(
                ref=Ref("Node", "", node.name, f"node-{node.name}"),
                rv=1 + index,
                allocatable=dict(sorted({**room, **({GPU: node.gpus * WHOLE} if node.gpus else {})}.items())),
                labels=dict(sorted(labels.items())),
                taints=tuple(
                    sorted(
                        (Taint(t.key, t.value, t.effect) for t in node.taints if t.effect != "PreferNoSchedule"),
                        key=lambda taint: (taint.key, taint.value, taint.effect),
                    )
                ),
                schedulable=node.schedulable,
                ready=node.ready,
            )
        )
    return tuple(machines)
