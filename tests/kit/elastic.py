"""Ray clusters that scale themselves, on a simulated cluster in virtual time: operator, autoscaler, all stages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kit.disorder import Disorder, DisorderedCell
from kit.proof import proven
from kit.rayscaler import TICK_MS, RayScaler
from muster.core.autoscaling.bridgestate import heads, news
from muster.core.quota.accounting.rechecks import beyond
from muster.events.base import Event
from muster.events.system import PlacementChosen
from muster.fakecluster.kuberay import words
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.model.api import ApiResource
from muster.model.resources import Vector, parse_quantity

Object = dict[str, Any]
NODES = {f"node-{index}": {"cpu": "64", "memory": "256Gi"} for index in range(4)}
CORE = 1_000
HEAD_CPU = 500
"""What a cluster takes beside its workers: its head asks for nothing, the autoscaler beside it for half a core."""


def template(cpu: str) -> Object:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}}
    return {"spec": {"containers": [{"name": "ray", "image": "ray", "resources": resources}]}}


def ray_spec(**group: Any) -> Object:
    """The cluster of the document: an empty head, and one group of one-core workers."""
    head = {"spec": {"containers": [{"name": "ray", "image": "ray"}]}}
    workers = {
        "groupName": "small",
        "replicas": 0,
        "minReplicas": 0,
        "maxReplicas": 10,
        "template": template("1"),
        **group,
    }
    return {
        "enableInTreeAutoscaling": True,
        "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": head},
        "workerGroupSpecs": [workers],
    }


def raycluster(name: str = "auto", namespace: str = "ns", *, suspend: bool = True, **group: Any) -> Object:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"suspend": suspend, **ray_spec(**group)},
    }


def rayjob(name: str = "auto", namespace: str = "ns", **group: Any) -> Object:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"sim.muster.dev/runtime": "99h"}},
        "spec": {
            "suspend": True,
            "shutdownAfterJobFinishes": True,
            "submissionMode": "HTTPMode",
            "rayClusterSpec": ray_spec(**group),
        },
    }


def tree(*leaves: tuple[str, str, str], profile: str = "full", total: str = "100") -> Object:
    """Leaves of one tree: (namespace, min cpu, max cpu)."""
    children = [
        {"name": name, "namespaces": [name], "min": {"cpu": least}, "max": {"cpu": most}}
        for name, least, most in leaves
    ]
    root = {"name": "root", "min": {"cpu": total}, "max": {"cpu": total}, "children": children}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {
            "name": "tree",
            "namespace": "kube-system",
            "annotations": {"muster.dev/request-profile": profile},
        },
        "spec": {"root": root},
    }


def kai_queue(name: str, quota: int, parent: str = "", **spec: Any) -> Object:
    """A queue of KAI Scheduler with so many cores, and nothing but its weight of the rest."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": {"quota": 1000 * quota, "limit": -1, "overQuotaWeight": 1}, "gpu": free, "memory": free}
    meta = {"name": name}
    spec |= {"parentQueue": parent} if parent else {}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": meta,
        "spec": {"resources": resources, **spec},
    }


def in_queue(obj: Object, queue: str, priority: str = "train") -> Object:
    """The same workload, led to a KAI queue by its label."""
    obj["metadata"]["labels"] = {"kai.scheduler/queue": queue, "priorityClassName": priority}
    return obj


class ElasticPlay:
    """`scalers`: by name of the RayCluster; the test gives them work."""

    def __init__(
        self,
        *leaves: tuple[str, str, str],
        seed: int = 0,
        disorder: Disorder | None = None,
        total: str = "100",
        nodes: Mapping[str, Mapping[str, str]] = NODES,
        queues: Sequence[Object] = (),
        kinds: tuple[str, ...] = ("RayJob", "RayCluster"),
        placement: PlacementChosen | None = None,
    ) -> None:
        """``queues``: of KAI Scheduler, which then stand there instead of a tree. ``placement``: how gangs are
        placed, if they are.
        """
        self.cluster = SimCluster(nodes, seed=seed)
        self.cell = DisorderedCell(self.cluster, seed=seed, disorder=disorder, kinds=kinds, placement=placement)
        self.scalers: dict[str, RayScaler] = {}
        for each in queues:
            self.call("POST", api.KAI_QUEUES, body=each)
        if not queues:
            body = tree(*(leaves or (("ns", "20", "20"),)), total=total)
            self.call("POST", api.QUOTA_TREES, "kube-system", body=body)
        self.cell.advance(1_000)

    def call(
        self,
        method: str,
        resource: ApiResource,
        namespace: str = "",
        name: str = "",
        body: Any = None,
        content_type: str = "application/json",
    ) -> Any:
        encoded = None if body is None else json.dumps(body).encode()
        path = resource.path(namespace, name)
        answer = self.cluster.server.handle(method, path, body=encoded, content_type=content_type)
        assert answer.ok, answer.body
        return json.loads(answer.body)

    # --- clusters ---------------------------------------------------------------------------------------------

    def create(self, obj: Object) -> RayScaler:
        """Create a RayCluster or RayJob; returns what will scale it."""
        self.create_raw(obj)
        self.cell.advance(3_000)
        name = obj["metadata"]["name"]
        if obj["kind"] == "RayJob":
            name = next(
                each["metadata"]["name"] for each in self.clusters() if each["metadata"]["name"].startswith(name)
            )
        scaler = self.scalers[name] = RayScaler()
        self.tick(2)
        return scaler

    def create_raw(self, obj: Object) -> None:
        """Create it, and let no time pass."""
        resource = api.RAYJOBS if obj["kind"] == "RayJob" else api.RAYCLUSTERS
        self.call("POST", resource, obj["metadata"]["namespace"], body=obj)

    def clusters(self) -> list[Object]:
        found: list[Object] = self.call("GET", api.RAYCLUSTERS)["items"]
        return found

    def raycluster(self, name: str = "auto") -> Object:
        return next(each for each in self.clusters() if each["metadata"]["name"].startswith(name))

    def group(self, name: str = "auto") -> Object:
        group: Object = self.raycluster(name)["spec"]["workerGroupSpecs"][0]
        return group

    def sizes(self) -> tuple[int, int, int]:
        """(replicas, maxReplicas, workers that live)."""
        group = self.group()
        return group["replicas"], group["maxReplicas"], len(self.pods())

    def other_claims(self, workers: int) -> None:
        """A cluster of fixed size comes to queue ``other``, and lets no time pass."""
        claims = raycluster("claims", "other", replicas=workers, minReplicas=workers, maxReplicas=workers)
        claims["spec"]["enableInTreeAutoscaling"] = False
        self.create_raw(claims)

    def pods(self, name: str = "auto", node_type: str = "worker") -> list[Object]:
        return [
            pod
            for pod in self.call("GET", api.PODS)["items"]
            if pod["metadata"]["labels"].get("ray.io/cluster", "").startswith(name)
            and pod["metadata"]["labels"].get("ray.io/node-type") == node_type
        ]

    def edit(self, ops: list[Object], name: str = "auto") -> None:
        meta = self.raycluster(name)["metadata"]
        kind = "application/json-patch+json"
        self.call("PATCH", api.RAYCLUSTERS, meta["namespace"], meta["name"], ops, kind)

    def note(self, name: str, key: str, text: str | None) -> None:
        """Set an annotation, or take it away."""
        self.merge(name, {"metadata": {"annotations": {key: text}}})

    def merge(self, name: str, patch: Object) -> None:
        """Patch a cluster as ``kubectl patch --type merge`` does."""
        meta = self.raycluster(name)["metadata"]
        kind = "application/merge-patch+json"
        self.call("PATCH", api.RAYCLUSTERS, meta["namespace"], meta["name"], patch, kind)

    def apply(self, manifest: Object) -> None:
        """As ``kubectl apply`` does with a manifest that was applied before: its fields win."""
        meta = manifest["metadata"]
        body = {"spec": {key: value for key, value in manifest["spec"].items() if key != "suspend"}}
        self.call("PATCH", api.RAYCLUSTERS, meta["namespace"], meta["name"], body, "application/merge-patch+json")

    # --- time -------------------------------------------------------------------------------------------------

    def tick(self, times: int = 1) -> None:
        """So many ticks of every autoscaler; the heads are read before and after each."""
        for _ in range(times):
            for scaler_name, scaler in self.scalers.items():
                found = [each for each in self.clusters() if each["metadata"]["name"] == scaler_name]
                if not self.pods(scaler_name, "head"):
                    scaler.unused_since = 0  # It runs beside the head.
                elif found and not self._terminate(scaler, found[0]) and self._resize(scaler, found[0]):
                    ops = scaler.tick(found[0], self.pods(scaler_name), self.cluster.clock.now())
                    if ops:
                        self.edit(ops, scaler_name)
            self.read()
            self.cell.advance(TICK_MS // 2)
            self.read()
            self.cell.advance(TICK_MS // 2)

    def _resize(self, scaler: RayScaler, cluster: Object) -> bool:
        """As Ray 2.60 does it: first of all, and when it is refused nothing else in this tick."""
        meta = cluster["metadata"]
        for name in scaler.resizes(cluster, self.pods(meta["name"]), self.cluster.clock.now()):
            most = json.loads(meta["annotations"]["ray.io/ippr"])["groups"][scaler.group]
            if not self.resize(meta["name"], name, most["max-cpu"], most["max-memory"]):
                scaler.refused += 1
                return False
        return True

    def resize(self, cluster: str, pod: str, cpu: object, memory: object) -> bool:
        """Resize a pod in place as policy ``muster-ray-resized`` lets it: as far as the cluster's annotation says."""
        notes = self.raycluster(cluster)["metadata"].get("annotations") or {}
        parts = (part.partition("=") for part in notes.get("muster.dev/resize", "").split(","))
        limits = {name: limit for name, _, limit in parts}
        found = next(each for each in self.pods(cluster) if each["metadata"]["name"] == pod)
        group, now = (
            found["metadata"]["labels"]["ray.io/group"],
            found["spec"]["containers"][0]["resources"]["requests"],
        )
        asked = {"cpu": str(cpu), "memory": str(memory)}
        for name, text in asked.items():
            amount = parse_quantity(text, name)
            limit = limits.get(f"{group}/{name}", "0")
            if amount > parse_quantity(str(now[name]), name) and amount > parse_quantity(limit, name):
                return False
        at = "/spec/containers/0/resources"
        ops = [
            {"op": "replace", "path": f"{at}/{part}/{name}", "value": text}
            for name, text in asked.items()
            for part in ("limits", "requests")
        ]
        kind = "application/json-patch+json"
        self.call("PATCH", api.PODS, found["metadata"]["namespace"], f"{pod}/resize", ops, kind)
        return True

    def _terminate(self, scaler: RayScaler, cluster: Object) -> bool:
        """As Ray 2.60 does with a cluster that nothing uses: one field, or a finalizer and a deletion.

        Returns whether there is nothing left to scale.
        """
        how, meta = scaler.terminates(cluster, self.cluster.clock.now()), cluster["metadata"]
        if how == "Suspend" and not cluster["spec"].get("idleSuspend"):
            patch = {"spec": {"idleSuspend": True}}
            kind = "application/merge-patch+json"
            self.call("PATCH", api.RAYCLUSTERS, meta["namespace"], meta["name"], patch, kind)
        elif how == "Delete":
            self.edit([{"op": "add", "path": "/metadata/finalizers", "value": [words.IDLE_FINALIZER]}], meta["name"])
            self.call("DELETE", api.RAYCLUSTERS, meta["namespace"], meta["name"])
        return how == "Delete"

    def read(self) -> None:
        """As the reader of the heads does."""
        state = self.cell.seats["autoscaler_bridge"].state
        for ref, attempt in heads(state):
            scaler = self.scalers.get(ref.name)
            if scaler is not None:
                fact = news(state, ref, attempt, scaler.demand(), self.cluster.clock.now())
                if fact is not None:
                    self.cell.append("autoscaler_bridge", "input", [fact])
        self.cell.settle()

    # --- what came of it ----------------------------------------------------------------------------------------

    def charged(self, name: str = "auto") -> Vector:
        charges = self.cell.seats["quota_accountant"].state
        return next(
            charge.request for uid, charge in charges.ledger.charges.items() if charges.entries[uid].ref.name == name
        )

    def cpu(self, name: str = "auto") -> int:
        return self.charged(name).get("cpu", 0)

    def over(self, name: str = "auto") -> Vector:
        """What is charged beyond what is granted."""
        state = self.cell.seats["quota_accountant"].state
        entry = next(entry for entry in state.entries.values() if entry.ref.name == name)
        return beyond(self.charged(name), entry.request)

    def told(self, *kinds: type[Event]) -> list[Any]:
        return [event for stored in self.cell.log for event in stored.commit.events if isinstance(event, kinds)]

    def clean(self) -> None:
        proven(self.cell.log, but="I11")
