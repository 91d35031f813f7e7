"""Ray clusters that scale themselves, on a simulated cluster in virtual time: operator, autoscaler, all stages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kit.disorder import Disorder, DisorderedCell
from kit.proof import proven
from kit.rayscaler import TICK_MS, RayScaler
from muster.core.autoscaling.reading import heads, news
from muster.core.quota.usage import beyond
from muster.events.base import Event
from muster.model import api
from muster.model.api import ApiResource
from muster.model.resources import Vector
from muster.sim.world import SimCluster

Object = dict[str, Any]
NODES = {f"node-{index}": {"cpu": "64", "memory": "256Gi"} for index in range(4)}
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


class ElasticPlay:
    """`scalers`: by name of the RayCluster; the test gives them work."""

    def __init__(
        self,
        *leaves: tuple[str, str, str],
        seed: int = 0,
        disorder: Disorder | None = None,
        total: str = "100",
        nodes: Mapping[str, Mapping[str, str]] = NODES,
    ) -> None:
        self.cluster = SimCluster(nodes, seed=seed)
        self.cell = DisorderedCell(self.cluster, seed=seed, disorder=disorder, kinds=("RayJob", "RayCluster"))
        self.scalers: dict[str, RayScaler] = {}
        self.call("POST", api.QUOTA_TREES, "kube-system", body=tree(*(leaves or (("ns", "20", "20"),)), total=total))
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
                if found:
                    ops = scaler.tick(found[0], self.pods(scaler_name), self.cluster.clock.now())
                    if ops:
                        self.edit(ops, scaler_name)
            self.read()
            self.cell.advance(TICK_MS // 2)
            self.read()
            self.cell.advance(TICK_MS // 2)

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
