"""RayServices on a simulated cluster: the operator, and all stages."""

from __future__ import annotations

import json
from typing import Any

from kit import jobs
from kit.disorder import Disorder, DisorderedCell
from kit.elastic import NODES, tree
from kit.proof import proven
from muster.events.decisions import WorkloadAdopted
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.model.api import ApiResource

SERVICES = api.RAYSERVICES
CONFIG = "/spec/rayClusterConfig"
IMAGE = f"{CONFIG}/headGroupSpec/template/spec/containers/0/image"


class ServicePlay:
    """One leaf of 10 cores; services of one core for the head and one for each worker."""

    def __init__(self, seed: int = 0, disorder: Disorder | None = None) -> None:
        self.cluster = SimCluster(NODES, seed=seed, suspend_new=True)
        kinds = ("RayService", "RayCluster", "Job")
        self.cell = DisorderedCell(self.cluster, seed=seed, disorder=disorder, kinds=kinds)
        self.call("POST", api.QUOTA_TREES, "kube-system", body=tree(("ns", "10", "10"), profile="ack"))
        self.cell.advance(1_000)

    def call(self, method: str, resource: ApiResource, namespace: str = "", name: str = "", body: Any = None) -> Any:
        patches = "application/json-patch+json" if method == "PATCH" else "application/json"
        encoded = None if body is None else json.dumps(body).encode()
        path = resource.path(namespace, name)
        answer = self.cluster.server.handle(method, path, body=encoded, content_type=patches)
        assert answer.ok, answer.body
        return json.loads(answer.body)

    def create(self, name: str = "s", *, replicas: int = 3) -> None:
        """As a user writes it, who says nothing of suspension."""
        service = jobs.rayservice(name, "ns", replicas=replicas)
        del service["spec"]["suspend"]
        self.call("POST", SERVICES, "ns", body=service)

    def edit(self, path: str, value: Any, name: str = "s") -> None:
        self.call("PATCH", SERVICES, "ns", name, [{"op": "add", "path": path, "value": value}])

    def service(self, name: str = "s") -> Any:
        return self.call("GET", SERVICES, "ns", name)

    def condition(self, kind: str, name: str = "s") -> str:
        found = self.service(name).get("status", {}).get("conditions", ())
        return next((each["status"] for each in found if each["type"] == kind), "")

    def clusters(self, name: str = "s") -> list[Any]:
        found = self.call("GET", api.RAYCLUSTERS)["items"]
        return [each for each in found if each["metadata"].get("ownerReferences", [{}])[0].get("name") == name]

    def charged(self) -> int:
        """cpu that the leaf is charged with, in thousandths."""
        return int(self.cell.seats["quota_accountant"].state.ledger.used.get("root/ns", {}).get("cpu", 0))

    def decided(self, kind: type[Any]) -> list[Any]:
        return [event for stored in self.cell.log for event in stored.commit.events if isinstance(event, kind)]

    def prove(self) -> None:
        assert not self.decided(WorkloadAdopted), "nothing ran that had not been admitted, and no cluster was a job"
        proven(self.cell.log)
