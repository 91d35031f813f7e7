"""The queues of a state file, of either API, as facts for the stages; and the leaf of a job.

Short entries and whole Queue objects become observed KAI queues, compiled by the accountant as on a cluster. An
ElasticQuotaTree stays a tree, with its own rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.objects.kaiqueue import KIND, RESOURCES, read_kai_queue, unknown_fields
from muster.core.objects.meta import KEPT, UnreadableError
from muster.core.quota.trees.treesource import read_tree
from muster.core.reading.quotatree import read_quota_tree
from muster.events.facts import KaiQueueObserved, QuotaTreeObserved
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.placing import GPU
from muster.model.quota import KAI_ROOT
from muster.told.wording import problems
from muster.tracesim.decide.document import Number, QueueEntry
from muster.tracesim.decide.refusals import refusal
from muster.tracesim.decide.situation import StateFileError
from muster.tracesim.decide.values import shown
from muster.tracesim.facts import EPOCH_MS

UNITS = {"gpus": (GPU, Decimal(1)), "cpu_milli": ("cpu", Decimal(1)), "memory_mib": ("memory", Decimal("1.048576"))}
"""Key of a map -> (resource, one of it in the units of a Queue: devices, millicores, 10^6 bytes)."""
QUOTA_LABEL = KEPT[0]
NAMESPACE = "state"
"""The namespace of jobs that a label leads to their queue."""
Observed = tuple[QuotaTreeObserved | KaiQueueObserved, ...]


class Leaf(Struct, frozen=True):
    """A queue where jobs may wait."""

    path: str
    namespace: str
    label: str = ""
    """What the label of its jobs names: their quota where no namespace leads there, their queue among KAI's."""


class Leaves:
    """Leaf queues by name and by path."""

    def __init__(self, leaves: list[Leaf], inner: set[str], *, kai: bool) -> None:
        self.kai = kai
        self._by_name: dict[str, list[Leaf]] = {}
        self._inner = inner
        for leaf in leaves:
            for name in {leaf.path, leaf.path.rpartition("/")[2]}:
                self._by_name.setdefault(name, []).append(leaf)

    def leaf(self, name: str, where: str) -> Leaf:
        """The leaf a job means by its queue."""
        known = sorted({leaf.path.rpartition("/")[2] for leaves in self._by_name.values() for leaf in leaves})
        if not name:
            if len(known) == 1:
                return self._by_name[known[0]][0]
            raise StateFileError(f"{where}: names no queue; there are {', '.join(known)}")
        leaves_named = self._by_name.get(name, [])
        if len(leaves_named) == 1:
            return leaves_named[0]
        if leaves_named:
            raise StateFileError(f"{where}: queue {name!r} is one of {', '.join(leaf.path for leaf in leaves_named)}")
        if name in self._inner:
            raise StateFileError(f"{where}: queue {name!r} has queues below it; jobs wait in {', '.join(known)}")
        raise StateFileError(f"{where}: queue {name!r} does not exist; there are {', '.join(known)}")


def read_queues(given: Any) -> tuple[Observed, Leaves]:
    """What is observed of them, and the leaves. Raises StateFileError."""
    documents = given if isinstance(given, list | tuple) else [given] if given is not None else []
    trees = [document for document in documents if _kind(document) == "ElasticQuotaTree"]
    if trees:
        if len(documents) > 1:
            raise StateFileError("queues: an ElasticQuotaTree allows no other queues; remove them")
        return _elastic(trees[0])
    return _kai(documents)


def _kind(document: Any) -> str:
    return str(document.get("kind", "")) if isinstance(document, Mapping) else ""


def _json(document: Mapping[str, Any], where: str) -> bytes:
    """An object as the API server would send it."""
    try:
        return json.dumps(document, default=str).encode()
    except TypeError as err:
        raise StateFileError(f"{where}: has a key that is no text; put it into quotes") from err
    except (RecursionError, ValueError) as err:
        raise StateFileError(f"{where}: is nested too deeply") from err


# --- ElasticQuotaTree -----------------------------------------------------------------------------------------------


def _elastic(document: Mapping[str, Any]) -> tuple[Observed, Leaves]:
    given = document.get("metadata") or {}
    if not isinstance(given, Mapping):
        raise StateFileError(f"queues: ElasticQuotaTree: metadata is {shown(given)}; write an object")
    meta = {**given, "uid": "tree", "resourceVersion": "1"}
    meta.setdefault("name", "tree")
    meta.setdefault("namespace", "kube-system")
    try:
        observed = read_quota_tree(_json({**document, "metadata": meta}, "queues: ElasticQuotaTree"))
    except UnreadableError as err:
        raise StateFileError(f"queues: ElasticQuotaTree: {problems.line(err.problem)}") from err
    rules = {"reclaim": "enabled", **observed.rules}
    observed = msgspec.structs.replace(observed, created=EPOCH_MS, rules=rules)
    tree, broken = read_tree(observed)
    if broken:
        raise StateFileError(f"queues: {'; '.join(map(problems.line, broken[:5]))}")
    leaves = [
        Leaf(node.path, node.namespaces[0]) if node.namespaces else Leaf(node.path, NAMESPACE, node.name)
        for node in tree.nodes
        if not node.children
    ]
    inner = {name for node in tree.nodes if node.children for name in (node.path, node.name)}
    return (observed,), Leaves(leaves, inner, kai=False)


# --- KAI's queues ---------------------------------------------------------------------------------------------------


def _kai(documents: Sequence[Any]) -> tuple[Observed, Leaves]:
    """Queues as they would be observed. A faulty queue is disabled, and is no error of the file."""
    if not documents:
        documents = [{"name": "default", "quota": -1}]
    entries = [_entry(document, f"queues[{index}]") for index, document in enumerate(documents)]
    named = {GPU} | {name for entry in entries for name in _resources(entry)}
    queues: dict[str, KaiQueue] = {}
    for index, entry_read in enumerate(entries):
        queue = entry_read if isinstance(entry_read, KaiQueue) else _short(entry_read, index, sorted(named))
        if not queue.name.isprintable() or "/" in queue.name or not queue.name:
            raise StateFileError(f"queues: {queue.name!r} is not the name of a queue")
        if queue.name in queues:
            raise StateFileError(f"queues: {queue.name!r} is there twice; names tell queues apart")
        queues[queue.name] = msgspec.structs.replace(queue, rv=1 + index, created=queue.created or EPOCH_MS)
    parents = {queue.parent for queue in queues.values()}
    leaves = [Leaf(_path(name, queues), NAMESPACE, name) for name in queues if name not in parents]
    inner = {path for name in queues if name in parents for path in (name, _path(name, queues))}
    return tuple(KaiQueueObserved(queue=queue) for queue in queues.values()), Leaves(leaves, inner, kai=True)


def _path(name: str, queues: Mapping[str, KaiQueue]) -> str:
    """The queue's name and the names above, as far as the queues exist and lead in no circle."""
    names = [name]
    while (above := queues[names[-1]].parent) in queues and above not in names:
        names.append(above)
    return "/".join([KAI_ROOT, *reversed(names)])


def _entry(document: Any, where: str) -> QueueEntry | KaiQueue:
    if not isinstance(document, Mapping):
        raise StateFileError(f"{where}: must be an object with a name")
    if "kind" in document or "apiVersion" in document:
        return _object(document, where)
    try:
        return msgspec.convert(document, QueueEntry)
    except msgspec.ValidationError as err:
        raise StateFileError(refusal(err, document, QueueEntry, where)) from err


def _resources(entry: QueueEntry | KaiQueue) -> Iterable[str]:
    """The resources that a queue speaks of."""
    if isinstance(entry, KaiQueue):
        return RESOURCES.values()
    keys = [
        key for amounts in (entry.quota, entry.limit, entry.weight) if isinstance(amounts, Mapping) for key in amounts
    ]
    return [UNITS[key][0] for key in keys if key in UNITS]


def _object(document: Mapping[str, Any], where: str) -> KaiQueue:
    """A whole Queue, read as the watcher reads it."""
    if document.get("kind") != "Queue" or not str(document.get("apiVersion", "")).startswith("scheduling.run.ai/"):
        kind = f"{document.get('apiVersion', '')} {document.get('kind', '')}".strip()
        raise StateFileError(
            f"{where}: is a {shown(kind)[1:-1]}; queues are scheduling.run.ai/v2 Queue or ElasticQuotaTree objects"
        )
    meta = document.get("metadata")
    name = meta.get("name") if isinstance(meta, Mapping) else None
    if not isinstance(meta, Mapping) or not isinstance(name, str) or not name:
        raise StateFileError(f"{where}: metadata.name is missing")
    known = {**meta, "uid": f"queue-{name}", "resourceVersion": "1"}
    for field in unknown_fields(document):
        raise StateFileError(f"{where} {name!r}: {field} is no field of a Queue; is it misspelt?")
    try:
        return read_kai_queue(_json({**document, "metadata": known}, f"{where} {name!r}"))
    except UnreadableError as err:
        raise StateFileError(f"{where} {name!r}: {problems.line(err.problem)}") from err


def _short(entry: QueueEntry, index: int, resources: Sequence[str]) -> KaiQueue:
    """An entry in few words. Of a resource that only others name it has quota 0, no limit and weight 1."""
    where = f"queues[{index}] {entry.name!r}"
    return KaiQueue(
        ref=Ref(KIND, "", entry.name, f"queue-{entry.name}"),
        rv=1,
        parent=entry.parent,
        priority=entry.priority,
        quota=dict.fromkeys(resources, "0") | _amounts(entry.quota, f"{where}: quota"),
        limit=dict.fromkeys(resources, "-1") | _amounts(entry.limit, f"{where}: limit"),
        weight=dict.fromkeys(resources, "1") | _amounts(entry.weight, f"{where}: weight", unlimited=False),
    )


def _amounts(given: Number | Mapping[str, Number], where: str, *, unlimited: bool = True) -> dict[str, str]:
    """{resource: amount as a Queue writes it}; a weight is never unlimited, and has no unit."""
    if not isinstance(given, Mapping):
        given = {"gpus": given}
    amounts_read: dict[str, str] = {}
    for key, value in given.items():
        if key not in UNITS:
            raise StateFileError(f"{where}: {key!r} is unknown; known are {', '.join(UNITS)}")
        resource, unit = UNITS[key]
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            number = Decimal("NaN")
        endless = number == -1 and unlimited
        if not number.is_finite() or (number < 0 and not endless) or number > 10**12:
            way_out = ", or -1 for unlimited" if unlimited else ""
            raise StateFileError(f"{where}: {key} is {shown(value)}; write a number from 0 on{way_out}")
        amounts_read[resource] = format(number if endless or not unlimited else number * unit, "f")
    return amounts_read
