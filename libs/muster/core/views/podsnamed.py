"""Pods of jobs by their names: of which job each is, and where it is or why it does not run."""

from __future__ import annotations

from msgspec import Struct

from muster.core.codes.pods import HeldUp
from muster.core.readmodel.state import ReadState
from muster.core.wording import pods
from muster.model.keys import Ref


class PodNamed(Struct, frozen=True):
    """A pod that has a node, or is known not to run."""

    key: str
    """namespace/name"""
    job: Ref
    text: str


def pods_named(state: ReadState, wanted: str, now: int) -> dict[str, PodNamed]:
    """The pods that ``NAMESPACE/NAME`` or NAME means, by namespace/name. ``now``: ms since the epoch."""
    name = wanted.rpartition("/")[2]
    found: dict[str, PodNamed] = {}
    for placed in state.nodes.pods.values():
        if placed.ref.name == name:
            _add(state, found, name, placed.owner, pods.placed(name, placed.node))
    for owner, codes in state.pods.live.items():
        for each in (pod for troubled in codes.values() for pod in troubled.values() if pod.name == name):
            _add(state, found, name, owner, pods.since(HeldUp(each), now))
    return {key: pod for key, pod in sorted(found.items()) if wanted in (key, name)}


def _add(state: ReadState, found: dict[str, PodNamed], name: str, owner: str, text: str) -> None:
    record = state.records.get(state.presence.owner_of.get(owner, owner))
    if record is not None:
        key = f"{record.ref.namespace}/{name}"
        found[key] = PodNamed(key, record.ref, text)
