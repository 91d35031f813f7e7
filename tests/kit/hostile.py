"""The corpus of malformed and hostile objects: how a case file becomes bytes, and how those reach the stages.

A case is one JSON file below ``tests/corpus/<shard>``:

    what    what is wrong with it, for people
    on      the good object it is made from (default: the shard's own); ``put`` and ``drop`` change it
    put     {JSON pointer: value}, the value's bytes are kept as they stand in the file (numbers of 400 digits)
    drop    [JSON pointer]
    make    {JSON pointer: maker} for what is too large for a file, see :func:`made`
    text    the whole body instead, one byte per character (latin-1), so that it need not be UTF-8 or JSON
    expect  one of
            {"unreadable": TEXT}   reported on the object; TEXT is the field and the code
            {"accepted": {PATH: VALUE}}   a fact, with these values at these places of it
            {"refused": [REASON, TEXT]}   a fact; queueing is refused by REASON, the message begins with TEXT
            {"rejected": [TEXT, ...]}     a tree that breaks rules: one violation begins with each TEXT
            {"ignored": true}      no concern of ours: nothing is reported
            {"nameless": true}     neither name nor uid: there is nothing to report it on
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from kit import jobs
from kit.story import quota_tree, rayjob, template
from muster.core.stage import Folder
from muster.core.workloads.registry import KINDS
from muster.events.base import Event
from muster.events.envelope import Commit, Stored
from muster.kube import deltas
from muster.kube.objects import Malformed, decode_meta
from muster.runtime.runners.watching import WatcherRunner

FOLDER = Path(__file__).parent.parent / "corpus"

Obj = dict[str, Any]


class Expect(Struct, frozen=True, forbid_unknown_fields=True):
    unreadable: str = ""
    accepted: dict[str, Any] | None = None
    refused: tuple[str, str] | None = None
    rejected: tuple[str, ...] = ()
    nameless: bool = False
    ignored: bool = False


class Case(Struct, frozen=True, forbid_unknown_fields=True):
    what: str
    expect: Expect
    on: str = ""
    put: dict[str, Raw] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    make: dict[str, dict[str, Any]] = field(default_factory=dict)
    text: str | None = None


class Hostile(Struct, frozen=True):
    """One case, ready to be sent."""

    name: str
    shard: str
    case: Case

    def body(self) -> bytes:
        """The object as the API server would send it."""
        if self.case.text is not None:
            return self.case.text.encode("latin-1")
        return _built(self.name, self.case, self.shard)


def corpus() -> list[Hostile]:
    """Every case, in the order of the file names."""
    decoder = msgspec.json.Decoder(Case)
    return [
        Hostile(f"{path.parent.name}/{path.stem}", path.parent.name, decoder.decode(path.read_bytes()))
        for path in sorted(FOLDER.glob("*/*.json"))
    ]


# --- from a case to bytes -----------------------------------------------------------------------------------------


def _meta(name: str, namespace: str = "", **more: Any) -> Obj:
    where = {"namespace": namespace} if namespace else {}
    return {
        "name": name,
        **where,
        "uid": f"uid-{name}",
        "resourceVersion": "4711",
        "generation": 1,
        "creationTimestamp": "2025-01-10T01:36:24Z",
        **more,
    }


def _rayjob() -> Obj:
    job = rayjob("odd", "text", cpu="2", memory="2G", replicas=1)
    labels, annotations = job["metadata"]["labels"], job["metadata"]["annotations"]
    return job | {"metadata": _meta("odd", "text", labels=labels, annotations=annotations)}


def _owner() -> list[Obj]:
    return [{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "odd", "uid": "uid-odd", "controller": True}]


def _raycluster() -> Obj:
    meta = _meta("odd-cluster", "text", ownerReferences=_owner())
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": meta,
        "spec": _rayjob()["spec"]["rayClusterSpec"],
    }


def _pod() -> Obj:
    owner = [
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "name": "odd-cluster",
            "uid": "uid-odd-cluster",
            "controller": True,
        }
    ]
    meta = _meta(
        "odd-pod", "text", ownerReferences=owner, labels={"ray.io/is-ray-node": "yes", "ray.io/cluster": "odd-cluster"}
    )
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **template("ray-head"), "status": {"phase": "Running"}}


def _node() -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _meta("odd-node"),
        "spec": {},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _tree() -> Obj:
    tree = quota_tree(name="odd-tree")
    return tree | {"metadata": _meta("odd-tree", "kube-system")}


def _small_tree() -> Obj:
    ten = {"cpu": "10"}
    leaf = {"name": "a", "min": {"cpu": "4"}, "max": {"cpu": "10"}, "namespaces": ["text"]}
    root = {"name": "root", "min": ten, "max": ten, "children": [leaf]}
    return _tree() | {"spec": {"root": root}}


def _queue() -> Obj:
    meta = _meta(
        "odd-queue",
        "kube-queue",
        labels={"create-by-kubequeue": "true"},
        annotations={"kube-queue/quota-fullname": "root/algorithm/text"},
    )
    status = {"queueItemDetails": {"active": [], "backoff": []}, "waiting": 0}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": meta,
        "spec": {"queuePolicy": "Round"},
        "status": status,
    }


def _queue_unit() -> Obj:
    meta = _meta("odd-ray-qu", "text", ownerReferences=_owner(), annotations={"muster.dev/shown": "abc"})
    status = {"phase": "Enqueued", "message": "", "admissions": []}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "QueueUnit",
        "metadata": meta,
        "spec": {"priority": 5},
        "status": status,
    }


def _kai_queue() -> Obj:
    amounts = {"quota": 0.5, "limit": -1, "overQuotaWeight": 1}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "team-a", "uid": "uid-team-a", "resourceVersion": "7"},
        "spec": {
            "parentQueue": "department-1",
            "priority": 100,
            "displayName": "Team A",
            "preemptMinRuntime": "10m",
            "resources": {"cpu": amounts, "gpu": amounts, "memory": amounts},
        },
        "status": {
            "childQueues": [],
            "allocated": {"cpu": "0"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Counts", "message": ""}],
        },
    }


def _priority_class() -> Obj:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": _meta("odd-class"),
        "value": 100,
        "globalDefault": False,
    }


def _dressed(made: Obj) -> Obj:
    """An object of a kind as kit.jobs makes it, as the API server keeps it."""
    return made | {"metadata": _meta("odd", "text")}


def _suspended(kind: str) -> Obj:
    return _dressed(jobs.KINDS[kind].make())


def _pod_group() -> Obj:
    spec = {"minMember": 3, "scheduleTimeoutSeconds": 10}
    found = _dressed({"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "spec": spec})
    found["metadata"]["annotations"] = {"gang.scheduling.koordinator.sh/groups": '["text/odd"]'}
    return found


def _native_pod_group() -> Obj:
    found = _dressed({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup"})
    condition = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    stamp = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    found["spec"] = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    return found | {"status": {"conditions": [condition | stamp]}}


def _node_pools() -> Obj:
    pool = '{"maxNodes": 2, "allocatable": {"cpu": "8"}, "labels": {"pool": "p"}, "class": "unschedulable-pods"}'
    meta = _meta("muster-node-pools", "muster-system")
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"p": pool}}


def _nodes_request() -> Obj:
    condition = {"type": "Failed", "status": "True", "reason": "OutOfStock", "message": "out of stock"}
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": _meta("odd-abc", "text", labels={"muster.dev/nodes-requested": "true"}),
        "spec": {"podSets": [{"podTemplateRef": {"name": "odd-abc-0"}, "count": 2}]},
        "status": {"conditions": [condition]},
    }


BASES = {
    "configmaps": _node_pools,
    "provisioningrequests": _nodes_request,
    **{KINDS[kind].resource.plural: partial(_suspended, kind) for kind in jobs.KINDS},
    "rayjobs": _rayjob,
    "rayclusters": _raycluster,
    "pods": _pod,
    "podgroups_scheduling_k8s_io": _native_pod_group,
    "podgroups_scheduling_sigs_k8s_io": _pod_group,
    "podgroups_scheduling_x-k8s_io": _pod_group,
    "nodes": _node,
    "elasticquotatrees": _tree,
    "small-tree": _small_tree,
    "queues": _queue,
    "queues_scheduling_run_ai": _kai_queue,
    "queueunits": _queue_unit,
    "priorityclasses": _priority_class,
}
"""{name: the good object that cases change}"""

_BODIES: dict[str, bytes] = {}


def _built(name: str, case: Case, shard: str) -> bytes:
    if name not in _BODIES:
        found: Obj = json.loads(json.dumps(BASES[case.on or shard]()))
        for pointer in case.drop:
            holder, key = _place(found, pointer)
            del holder[key]
        for pointer, value in case.put.items():
            holder, key = _place(found, pointer)
            holder[key] = value
        for pointer, maker in case.make.items():
            holder, key = _place(found, pointer)
            holder[key] = Raw(made(maker))
        _BODIES[name] = msgspec.json.encode(found)
    return _BODIES[name]


def _place(found: Any, pointer: str) -> tuple[Any, Any]:
    """The container a JSON pointer leads into and the last key; objects on the way are made when they are missing."""
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    for part in way:
        key = int(part) if isinstance(found, list) else part
        if isinstance(found, dict):
            found.setdefault(key, {})
        if isinstance(found[key], Raw):
            found[key] = json.loads(bytes(found[key]))
        found = found[key]
    return found, int(last) if isinstance(found, list) else last


def made(maker: dict[str, Any]) -> bytes:
    """The JSON of something large; ``%d`` in it counts from 0.

    {"items": X, "times": N}            an array of N times X
    {"members": KEY, "value": X, "times": N}   an object of N members
    {"text": TEXT, "times": N}          a string
    {"digits": TEXT, "times": N}        a number
    {"around": [BEFORE, AFTER], "of": X, "times": N}   BEFORE N times, X, AFTER N times: whatever nests; members
                                               of X may be makers
    """
    times = maker["times"]
    if "items" in maker:
        return b"[" + b",".join(_counted(maker["items"], times)) + b"]"
    if "members" in maker:
        pairs = zip(_counted(maker["members"], times), _counted(maker["value"], times), strict=True)
        members = (key + b":" + value for key, value in pairs)
        return b"{" + b",".join(members) + b"}"
    if "around" in maker:
        before, after = maker["around"]
        return (before * times).encode() + _filled(maker["of"]) + (after * times).encode()
    if "digits" in maker:
        return (maker["digits"] * times).encode()
    return json.dumps(maker["text"] * times).encode()


def _filled(value: Any) -> bytes:
    if not isinstance(value, dict):
        return json.dumps(value).encode()
    makers = {key: Raw(made(each)) for key, each in value.items() if isinstance(each, dict) and "times" in each}
    return msgspec.json.encode(value | makers)


def _counted(value: Any, times: int) -> Iterator[bytes]:
    text = json.dumps(value).encode()
    return (text.replace(b"%d", b"%d" % index) for index in range(times))


# --- from bytes to facts ------------------------------------------------------------------------------------------


class Watching:
    """A watcher of one resource without its reflector: the runner's own path from an object to facts."""

    def __init__(self, shard: str) -> None:
        nothing: Any = None
        self.runner = WatcherRunner(
            shard, nothing, log=nothing, lease=nothing, snapshots=None, clock=nothing, process="corpus"
        )

    def see(self, body: bytes) -> list[Event]:
        """The facts of one object that was added or changed; they are not folded."""
        found = decode_meta(body)
        if isinstance(found, Malformed):
            return self._take(deltas.Unreadable(found.meta, found.reason, body[: deltas.HEAD_BYTES]))
        return self._take(deltas.Upsert(found, body))

    def lose(self, body: bytes) -> list[Event]:
        """The facts of the end of the object with these bytes."""
        found = decode_meta(body)
        meta = found.meta if isinstance(found, Malformed) else found
        return self._take(deltas.Delete(meta)) if meta is not None else []

    def fold(self, facts: list[Event]) -> None:
        """Take the facts as reported."""
        state = self.runner.state
        commit = Commit(
            commit_id="c", stage="watcher", shard=self.runner.shard, kind="input", at=0, events=tuple(facts)
        )
        Folder(self.runner.stage).fold(state, Stored(state.seq + 1, commit))

    def _take(self, delta: deltas.Delta) -> list[Event]:
        taking = self.runner._take(delta)
        with suppress(StopIteration):
            taking.send(None)
            raise AssertionError("a watcher waits for nothing when it takes an object")
        return self.runner._take_pending()


@cache
def watching(shard: str) -> Watching:
    """A watcher that has seen nothing: nothing it reports is folded, so one serves all."""
    return Watching(shard)
