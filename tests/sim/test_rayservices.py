"""RayServices on a simulated cluster: the operator, all stages, and what is charged while a service is upgraded."""

from __future__ import annotations

import pytest

from kit.disorder import Disorder
from kit.rayservices import IMAGE, SERVICES, ServicePlay
from muster.events.decisions import GangAdmitted, QuotaReleased
from muster.model import api

WILD = Disorder(late=0.6, crash=0.03, unseen=0.3, lost_answer=0.3, stale_patch=0.3)


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
