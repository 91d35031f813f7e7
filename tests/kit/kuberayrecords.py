"""Records of what a real KubeRay operator published, beside Muster: at each line its charge is that of the pods.

A record is a file of JSON lines, gzipped: first what was run, then every change in the store's own order: ``type``
(ADDED, MODIFIED, DELETED) and ``object``. Muster's readers and deciders see each change; no order is carried out.
What is charged is compared with sums that are made here, from nothing but the objects.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from kit.bench import Bench
from kit.facts import node, tree
from muster.core.objects.meta import UnreadableError
from muster.core.reading.watched import WATCHED
from muster.core.stage import REQUIRED_KINDS
from muster.events.base import Cause
from muster.events.decisions import PodsAwaited, SuspensionOrdered
from muster.events.effects import EffectApplied
from muster.events.elastic import GateSet
from muster.events.facts import ChildGone, ChildObserved, KindsConfigured
from muster.model.elastic import counts_text
from muster.model.keys import Ref
from muster.model.problem import problem
from muster.model.resources import parse_quantity

Object = dict[str, Any]
Amounts = dict[str, int]

SHARDS = {"RayCluster": "rayclusters", "RayJob": "rayjobs", "RayService": "rayservices", "Job": "jobs", "Pod": "pods"}
OWNERS = ("RayJob", "RayService")
ROOM = {"cpu": 10_000, "memory": "100Ti"}
MARGIN: Amounts = {"cpu": 1_500, "memory": 2 * 2**30}
"""What KubeRay adds beside what the spec says: a submitter, an autoscaler, waiting for the head, cleaning up."""
SUBMITTER: Amounts = {"cpu": 500, "memory": 200 * 2**20}
"""Of a job, before its submitter is made and after its end."""
REST_MS = 1_500


class Change(Struct, frozen=True):
    t_ms: int
    kind: str
    gone: bool
    object: Object


def changes(path: Path) -> Iterator[Change]:
    """What was published, in order."""
    with gzip.open(path, "rt") as lines:
        next(lines)
        for line in lines:
            found = json.loads(line)
            thing = found["object"]
            if thing["kind"] == "Event":
                continue
            yield Change(found["t_ms"], thing["kind"], found["type"] == "DELETED", thing)


class Truth(Struct):
    """What there is, by the objects alone."""

    objects: dict[str, Object] = field(default_factory=dict)
    """By uid; what is gone is kept while pods of it are there."""
    gone: set[str] = field(default_factory=set)

    def take(self, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        self.objects[uid] = change.object
        if change.gone:
            self.gone.add(uid)

    def live(self, kind: str) -> list[Object]:
        return [each for uid, each in self.objects.items() if each["kind"] == kind and uid not in self.gone]

    def submits(self, pod: Object) -> bool:
        """Whether it only submits a job: what runs the job is elsewhere, and it may outlive that."""
        return any(each["name"] == "ray-job-submitter" for each in pod["spec"]["containers"]) and not pod["metadata"][
            "labels"
        ].get("ray.io/node-type")

    def owner(self, thing: Object) -> str:
        """Uid of the outermost owner that is a Ray kind; empty: there is none."""
        uid, found = thing["metadata"]["uid"], ""
        while True:
            known = self.objects.get(uid)
            if known is not None and known["kind"] in (*OWNERS, "RayCluster"):
                found = uid
            owners = known["metadata"].get("ownerReferences", ()) if known is not None else ()
            parent = next((each for each in owners if each.get("controller")), None)
            if parent is None:
                return found
            uid = parent["uid"]

    def running(self, *, all_pods: bool = False) -> dict[str, Amounts]:
        """{owner: what its pods that have not ended ask for}; ``all_pods``: those that submit a job too."""
        found: dict[str, Amounts] = {}
        for pod in self.live("Pod"):
            unbound = "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")
            if unbound or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                continue  # The API server binds no pod that is being deleted.
            owner = self.owner(pod)
            if owner and (all_pods or not self.submits(pod)):
                _add(found.setdefault(owner, {}), _asks(pod["spec"]))
        return found

    def said(self) -> dict[str, Amounts]:
        """{owner: what the specs of its RayClusters ask for, and its own where it has none}"""
        found: dict[str, Amounts] = {}
        for cluster in self.live("RayCluster"):
            _add(found.setdefault(self.owner(cluster), {}), _cluster(cluster["spec"]))
        for kind, name in (("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")):
            for owner in self.live(kind):
                spec = owner["spec"].get(name)
                if spec:
                    own, known = _cluster(spec), found.setdefault(owner["metadata"]["uid"], {})
                    known |= {each: max(amount, known.get(each, 0)) for each, amount in own.items()}
        return found


def _cluster(spec: Object) -> Amounts:
    total = _asks(spec["headGroupSpec"]["template"]["spec"])
    for group in spec.get("workerGroupSpecs") or ():
        least, most = group.get("minReplicas") or 0, group.get("maxReplicas", 2**31)
        count = min(max(group.get("replicas") or 0, least), most) * (group.get("numOfHosts") or 1)
        _add(total, _asks(group["template"]["spec"]), 0 if group.get("suspend") else count)
    return total


def _asks(spec: Object) -> Amounts:
    """Of a pod: all containers, or the largest of those before them."""
    total: Amounts = {}
    for container in spec["containers"]:
        _add(total, _of(container))
    for first in spec.get("initContainers") or ():
        for name, amount in _of(first).items():
            total[name] = max(total.get(name, 0), amount)
    return total


def _of(container: Object) -> Amounts:
    sizes = container.get("resources") or {}
    texts = {**(sizes.get("limits") or {}), **(sizes.get("requests") or {})}
    return {name: parse_quantity(str(text), name) for name, text in texts.items()}


def _add(total: Amounts, more: Amounts, times: int = 1) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount * times


def wrong(path: Path) -> list[str]:
    """Where Muster beside a record says something else than the pods do; empty: it is right at every line."""
    bench, truth, found = Bench(check=False), Truth(), list[str]()
    most: dict[str, Amounts] = {}
    late: dict[str, int] = {}
    record = [*changes(path)]
    namespaces = sorted({each.object["metadata"]["namespace"] for each in record})
    leaf = node("a", ROOM, ROOM, tuple(namespaces))
    kinds = ("RayJob", "RayCluster", "RayService", "Job")
    bench.facts(KindsConfigured(kinds=kinds, required=REQUIRED_KINDS))
    bench.facts(tree(node("root", ROOM, ROOM, children=(leaf,)), profile="full"))
    bench.synced()
    bench.settle()
    start = bench.now
    for number, (change, after) in enumerate(pairwise([*record, None]), start=2):
        assert change is not None
        truth.take(change)
        bench.pass_time(max(start + change.t_ms - bench.now, 0))
        shard = SHARDS.get(change.kind)
        if shard is not None:
            found += [f"line {number}: {each}" for each in _seen(bench, shard, change)]
        bench.settle()
        found += [f"line {number}: {each}" for each in _compared(bench, truth, most, late)]
        found += [f"line {number}: {each}" for each in _served(bench, truth)]
        if after is None or after.t_ms - change.t_ms >= REST_MS:
            found += [f"line {number}: {each}" for each in _at_rest(bench, truth)]
    bench.pass_time(120_000)
    running = truth.running()
    left = [each for each in bench.states["quota_accountant"].ledger.charges if each not in running]
    found += [f"end: {each} is charged, and nothing of it is there" for each in left if each in truth.gone]
    return found


def _seen(bench: Bench, shard: str, change: Change) -> Iterator[str]:
    row, meta = WATCHED[shard], change.object["metadata"]
    if change.gone:
        ref = Ref(change.kind, meta["namespace"], meta["name"], meta["uid"])
        child = row.both and isinstance(row.read(json.dumps(change.object).encode()), ChildObserved)
        bench.facts((ChildGone if child else row.gone)(ref=ref, rv=int(meta["resourceVersion"])))
        return
    try:
        fact = row.read(json.dumps(change.object).encode())
    except UnreadableError as err:
        yield f"{change.kind} {meta['name']} cannot be read: {err}"
        return
    if fact is not None:
        bench.facts(fact)


def _compared(bench: Bench, truth: Truth, most: dict[str, Amounts], late: dict[str, int]) -> Iterator[str]:
    """Nothing that runs is free, and nothing is charged twice."""
    charges = bench.states["quota_accountant"].ledger.charges
    running, said = truth.running(), truth.said()
    for owner, asks in running.items():
        charged = charges[owner].request if owner in charges else {}
        for name, amount in asks.items():
            if charged.get(name, 0) < amount:
                yield f"{owner} runs with {name} {amount}, and {charged.get(name, 0)} is charged"
    for owner, charge in charges.items():
        now = {name: max(running.get(owner, {}).get(name, 0), said.get(owner, {}).get(name, 0)) for name in MARGIN}
        known = most.setdefault(owner, {})
        known |= {name: max(amount, known.get(name, 0)) for name, amount in now.items()}
        for name, amount in known.items():
            if charge.request.get(name, 0) > amount + MARGIN[name]:
                yield f"{owner} is charged {name} {charge.request[name]}, and never asked for more than {amount}"


def _at_rest(bench: Bench, truth: Truth) -> Iterator[str]:
    """Where nothing changes for a while, pods made are pods counted: an owner with pods is charged for these pods, or
    for the pods of an edited spec.
    """
    charges, said = bench.states["quota_accountant"].ledger.charges, truth.said()
    for owner, asks in truth.running(all_pods=True).items():
        charged = charges[owner].request if owner in charges else {}
        edited = {name: max(asks.get(name, 0), said.get(owner, {}).get(name, 0)) for name in MARGIN}
        submits = SUBMITTER if truth.objects[owner]["kind"] == "RayJob" else {}
        submitted = {name: asks.get(name, 0) + submits.get(name, 0) for name in MARGIN}
        counted = [{name: known.get(name, 0) for name in MARGIN} for known in (asks, edited, submitted)]
        if {name: charged.get(name, 0) for name in MARGIN} not in counted:
            yield f"{owner} at rest: its pods ask for {asks}, and {charged} is charged"


def _served(bench: Bench, truth: Truth) -> Iterator[str]:
    """The head of each cluster that scales itself is looked for at the service that there is."""
    services = {each["metadata"]["name"]: each for each in truth.live("Service")}
    for uid, cluster in bench.states["autoscaler_bridge"].clusters.items():
        known = truth.objects[uid]
        if cluster.fixed or not (known.get("status") or {}).get("head"):
            continue
        served = cluster.elastic.served
        name = (served.name if served is not None else "") or f"{cluster.ref.name}-head-svc"
        ports = {each["name"]: each["port"] for each in services[name]["spec"]["ports"]} if name in services else {}
        gcs = served.gcs if served is not None else 6379
        if ports and ports["gcs-server"] != gcs:
            yield f"the head of {cluster.ref} is served at {name}:{ports['gcs-server']}, not at {gcs}"
        if not ports and uid not in truth.gone and truth.live("Service"):
            yield f"the head of {cluster.ref} is looked for at {name}, and there are {sorted(services)}"


# --- what goes wrong around a cluster ---------------------------------------------------------------------------------

Disturbance = Literal["finalizers hang", "pods are refused", "some pods are refused", "the controller is late"]
LIMIT_S, STEP_S, LATE_MS = 60, 10, 90_000
SLOWER = 10
"""Nobody ends a record while its pods are refused."""
PODLESS = ("", "New", "Initializing", "Suspending", "Suspended")
"""Words of KubeRay for a RayJob without a cluster that is ready."""


def disturbed(record: list[Change], how: Disturbance) -> list[Change]:
    """A record beside neighbours that do not do what the operator expects."""
    if how == "finalizers hang":
        return [
            _hangs(change) if change.gone and change.kind in (*OWNERS, "RayCluster") else change for change in record
        ]
    if how == "the controller is late":
        first = next((number for number, change in enumerate(record) if change.kind == "Pod"), len(record))
        return [*record[:first], *(replace(each, t_ms=each.t_ms + LATE_MS) for each in record[first:])]
    part, stopped = how == "some pods are refused", set[str]()
    kept: list[Change] = []
    ends: list[tuple[set[str], Change]] = []
    for change in record:
        meta, spec = change.object["metadata"], change.object.get("spec") or {}
        if "deletionTimestamp" in meta or spec.get("suspend"):
            stopped.add(meta["uid"])  # By its user: its operator removes what it has made.
        if change.gone and change.kind in (*OWNERS, "RayCluster"):
            ends.append(({meta["uid"], *(owner["uid"] for owner in meta.get("ownerReferences") or ())}, change))
        elif _is_begun(change) or (part and _is_head(change)):
            kept.append(change)
        kept += [replace(end, t_ms=change.t_ms) for owners, end in ends if owners & stopped]
        ends = [(owners, end) for owners, end in ends if not owners & stopped]
    return [replace(change, t_ms=change.t_ms * SLOWER) for change in kept]


def _hangs(change: Change) -> Change:
    meta = {**change.object["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return replace(change, gone=False, object={**change.object, "metadata": meta})


def _is_begun(change: Change) -> bool:
    """Whether a write comes before the operator has seen the first pod."""
    status = change.object.get("status") or {}
    serves = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    ready = serves or status.get("state") == "ready" or status.get("jobDeploymentStatus", "") not in PODLESS
    return change.kind in (*OWNERS, "RayCluster") and not ready


def _is_head(change: Change) -> bool:
    return change.kind == "Pod" and change.object["metadata"]["labels"].get("ray.io/node-type") == "head"


def idle(path: Path, how: Disturbance, limit_s: int = LIMIT_S) -> list[str]:
    """What is charged, lacks pods, and is not ordered to leave after LIMIT_S. Each look
    for a refusal of pods finds one, where pods are refused. ``limit_s``: 0 for a tree without a limit.
    """
    bench, truth, since, found = Bench(check=False), Truth(), dict[str, int](), list[str]()
    record = disturbed([*changes(path)], how)
    leaf = node("a", ROOM, ROOM, tuple(sorted({each.object["metadata"]["namespace"] for each in record})))
    bench.facts(KindsConfigured(kinds=("RayJob", "RayCluster", "RayService", "Job"), required=REQUIRED_KINDS))
    rules = {"start-timeout": f"{limit_s}s", "paused": "admissions"}
    bench.facts(tree(node("root", ROOM, ROOM, children=(leaf,)), profile="full", rules=rules))
    bench.synced()
    bench.settle()
    start, read, words = bench.now, 0, problem("", "pods_refused", said="exceeded quota")
    end_ms = record[-1].t_ms + 3 * LIMIT_S * 1000 if record else 0
    while record or bench.now < start + end_ms:
        if record and bench.now >= start + record[0].t_ms:
            change = record.pop(0)
            truth.take(change)
            if change.kind in SHARDS:
                _seen_all(bench, change)
        else:
            ahead = record[0].t_ms if record else end_ms
            bench.pass_time(min(start + ahead - bench.now, STEP_S * 1000))
        bench.settle()
        for stored in bench.log[read:]:
            for item, event in enumerate(stored.commit.events):
                if isinstance(event, PodsAwaited) and how.endswith("refused"):
                    effect = EffectApplied(
                        cause=Cause(stored.seq, item), ref=event.ref, attempt=event.attempt, action="read_refusal",
                        problem=words,
                    )  # fmt: skip
                    bench.append("actuator", "input", [effect])
                if isinstance(event, GateSet) and event.most and event.ref.uid in truth.objects:
                    written = _written(truth.objects[event.ref.uid], event)
                    rv = int(written["metadata"]["resourceVersion"])
                    effect = EffectApplied(cause=Cause(stored.seq, item), ref=event.ref, attempt=event.attempt, rv=rv,
                                           action="gate")  # fmt: skip
                    bench.append("actuator", "input", [effect])
                    change = Change(bench.now - start, "RayCluster", False, written)
                    truth.take(change)
                    _seen_all(bench, change)
        read = len(bench.log)
        running, charges = truth.running(), bench.states["quota_accountant"].ledger.charges
        workloads = bench.states["quota_accountant"].workloads
        leaves = {event.ref.uid for event in bench.happened(SuspensionOrdered)}
        asked = {uid: truth.said().get(uid, {}) for uid in charges}
        for uid in [*since]:
            if uid not in charges or uid in leaves:
                del since[uid]
        for uid in sorted(charges.keys() - leaves):
            known = workloads.get(uid)
            if known is not None and known.refusal is not None:
                since.pop(uid, None)
                continue  # Muster admits no such object, and KubeRay stops none.
            pods, asks = running.get(uid, {}), asked[uid]
            if any(pods.get(name, 0) < amount for name, amount in asks.items()) or not pods:
                since.setdefault(uid, bench.now)
            else:
                since.pop(uid, None)
            waited_s = (bench.now - since.get(uid, bench.now)) // 1000
            if waited_s > LIMIT_S + STEP_S:
                found.append(f"{truth.objects[uid]['metadata']['name']} is charged, and idle for {waited_s} s")
    return [*dict.fromkeys(found)]


def _written(cluster: Object, gate: GateSet) -> Object:
    """A RayCluster with what the actuator writes of its sizes."""
    meta, groups = cluster["metadata"], cluster["spec"]["workerGroupSpecs"]
    sizes = [
        {"maxReplicas": gate.most[name], "replicas": gate.replicas.get(name, group.get("replicas") or 0)}
        for group in groups
        for name in [group["groupName"]]
    ]
    notes = {"muster.dev/granted": counts_text(gate.most), "muster.dev/max-replicas": counts_text(gate.ceilings)}
    return {
        **cluster,
        "metadata": {
            **meta,
            "resourceVersion": str(int(meta["resourceVersion"]) + 1),
            "annotations": {**(meta.get("annotations") or {}), **notes},
        },
        "spec": {
            **cluster["spec"],
            "workerGroupSpecs": [{**group, **size} for group, size in zip(groups, sizes, strict=True)],
        },
    }


def _seen_all(bench: Bench, change: Change) -> None:
    for trouble in _seen(bench, SHARDS[change.kind], change):
        raise AssertionError(trouble)


# --- samples --------------------------------------------------------------------------------------------------------

KEPT = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
        "labels", "annotations", "ownerReferences")  # fmt: skip
FIRST = ("operator", "kubernetes", "scenario", "namespace", "operatorFlags", "manifest", "manifests",
         "steps")  # fmt: skip
DULL = ("command", "args", "env", "volumeMounts", "volumes", "image", "livenessProbe", "readinessProbe", "lifecycle")
"""Of containers and pods: says nothing about what they ask for."""


def reduced(change: Object) -> Object:
    """A line of a record with what Muster reads of it."""
    thing = change["object"]
    found = {key: _without(thing[key]) for key in ("apiVersion", "kind", "spec", "status") if key in thing}
    found["metadata"] = {key: thing["metadata"][key] for key in KEPT if key in thing["metadata"]}
    return {"t_ms": change["t_ms"], "type": change["type"], "object": found}


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(each) for key, each in value.items() if key not in DULL}
    return [_without(each) for each in value] if isinstance(value, list) else value


def main(into: str, *paths: str) -> None:
    """Write reduced copies of records: ``python -m kit.kuberayrecords INTO FILE...``."""
    for path in map(Path, paths):
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        first = {key: _without(lines[0][key]) for key in FIRST if key in lines[0]}
        kept = [reduced(line) for line in lines[1:] if line["object"]["kind"] != "Event"]
        text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in (first, *kept))
        target = Path(into) / lines[0]["operator"] / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
