"""RayServices on a simulated cluster: the operator, all stages, and what is charged while a service is upgraded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import jobs
from kit.disorder import Disorder, DisorderedCell
from kit.elastic import NODES, tree
from kit.proof import proven
from muster.events.decisions import GangAdmitted, QuotaReleased, WorkloadAdopted
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.model.api import ApiResource

WILD = Disorder(late=0.6, crash=0.03, unseen=0.3, lost_answer=0.3, stale_patch=0.3)
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


def test_it_is_suspended_at_birth_and_runs_when_it_is_admitted() -> None:
    play = ServicePlay()
    play.create()
    play.cell.advance(20_000)
    assert [each.ref.kind for each in play.decided(GangAdmitted)] == ["RayService"]
    assert (play.condition("Ready"), len(play.clusters()), play.charged()) == ("True", 1, 4_000)
    play.prove()


def test_one_that_does_not_fit_has_no_cluster() -> None:
    play = ServicePlay()
    play.create("big", replicas=20)
    play.cell.advance(20_000)
    assert (play.condition("Suspended", "big"), play.clusters("big"), play.charged()) == ("True", [], 0)
    play.prove()


def test_an_upgrade_is_charged_for_both_clusters_until_the_old_one_is_gone() -> None:
    play = ServicePlay()
    play.create()
    play.cell.advance(20_000)
    [old] = play.clusters()
    play.edit(IMAGE, "ray:new")
    play.cell.advance(30_000)
    assert (len(play.clusters()), play.charged()) == (2, 8_000)
    play.create("late")
    play.cell.advance(5_000)
    assert play.clusters("late") == [], "8 of 10 cores are charged: 4 more do not fit"
    play.cell.advance(120_000)
    [new] = play.clusters()
    assert new["metadata"]["name"] != old["metadata"]["name"]
    assert len(play.clusters("late")) == 1 and play.charged() == 8_000, "its own four, and those of the other one"
    play.prove()


def test_a_suspension_in_the_middle_of_an_upgrade_frees_both() -> None:
    play = ServicePlay()
    play.create()
    play.cell.advance(20_000)
    play.edit(IMAGE, "ray:new")
    play.cell.advance(4_000)
    assert len(play.clusters()) == 2
    play.edit("/metadata/annotations", {**play.service()["metadata"]["annotations"], "muster.dev/hold": "true"})
    play.edit("/spec/suspend", True)
    play.cell.advance(60_000)
    assert (play.clusters(), play.charged(), play.condition("Suspended")) == ([], 0, "True")
    assert [each.reason for each in play.decided(QuotaReleased)] == ["suspended_outside"]
    play.prove()


def test_one_that_is_deleted_in_the_middle_of_an_upgrade_frees_both() -> None:
    play = ServicePlay()
    play.create()
    play.cell.advance(20_000)
    play.edit(IMAGE, "ray:new")
    play.cell.advance(4_000)
    play.call("DELETE", SERVICES, "ns", "s")
    play.cell.advance(120_000)
    assert (play.clusters(), play.charged()) == ([], 0)
    play.prove()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_both_clusters_are_charged_and_nothing_stays(seed: int) -> None:
    play = ServicePlay(seed, WILD)
    for name in ("a", "b", "c"):
        play.create(name, replicas=1 + seed % 3)
    for step in range(12):
        play.cell.advance(15_000)
        name = "abc"[(seed + step) % 3]
        if step % 4 != 3:
            play.edit(IMAGE, f"ray:{step}", name)
        elif not play.service(name)["spec"].get("suspend"):
            play.edit("/spec/suspend", True, name)
    for name in ("a", "b", "c"):
        play.call("DELETE", SERVICES, "ns", name)
    play.cell.advance(600_000)
    assert (play.call("GET", api.RAYCLUSTERS)["items"], play.charged()) == ([], 0)
    play.prove()
