"""Ray clusters that run beyond their grant: what exceeds goes back, and the cluster runs on."""

from __future__ import annotations

from kit.elastic import CORE, ElasticPlay, raycluster
from muster.events.decisions import SuspensionOrdered
from muster.events.elastic import SurplusOrdered
from muster.model import api


def play_of(most: str, *, scaled_to: int, others: int = 0) -> ElasticPlay:
    """A cluster of two one-core workers, scaled by hand, under a quota of so many cores."""
    play = ElasticPlay(("ns", most, most))
    stored = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    stored["metadata"]["annotations"]["muster.dev/overuse-timeout"] = "1m"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", stored)
    made = raycluster(replicas=2)
    made["spec"]["enableInTreeAutoscaling"] = False
    play.create(made).stopped = True
    if others:
        beside = raycluster("beside", replicas=others)
        beside["spec"]["enableInTreeAutoscaling"] = False
        play.create(beside).stopped = True
    play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": scaled_to}])
    play.cell.advance(3_000)
    assert len(play.pods()) == scaled_to
    return play


def test_the_workers_beyond_the_grant_go_and_the_cluster_runs_on() -> None:
    play = play_of("3", scaled_to=5)
    play.cell.advance(50_000)
    assert len(play.pods()) == 5 and not play.told(SurplusOrdered)
    play.cell.advance(20_000)
    [order] = play.told(SurplusOrdered)
    assert order.surplus == {"cpu": 2 * CORE}, "no more than exceeds the max"
    assert (len(play.pods()), play.group()["replicas"], play.cpu()) == (3, 3, 3 * CORE)
    play.cell.advance(600_000)
    assert len(play.pods()) == 3 and not play.told(SuspensionOrdered)
    play.clean()


def test_within_the_max_nothing_goes() -> None:
    play = play_of("8", scaled_to=5)
    play.cell.advance(600_000)
    assert len(play.pods()) == 5 and not play.told(SurplusOrdered)
    play.clean()


def test_the_youngest_excess_goes_first_and_the_others_are_left_alone() -> None:
    play = play_of("5", scaled_to=3, others=2)
    play.cell.advance(70_000)
    assert [order.ref.name for order in play.told(SurplusOrdered)] == []
    play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 4}])
    play.cell.advance(70_000)
    assert [order.ref.name for order in play.told(SurplusOrdered)] == ["auto"]
    assert (len(play.pods()), len(play.pods("beside"))) == (3, 2)
    assert not play.told(SuspensionOrdered)
    play.clean()


def test_workers_that_come_back_cost_the_whole_cluster() -> None:
    """Another controller writes the size again and again."""
    play = play_of("3", scaled_to=5)
    for _ in range(140):
        play.cell.advance(1_000)
        if play.group()["replicas"] < 5 and not play.raycluster()["spec"].get("suspend"):
            play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 5}])
    assert [order.reason for order in play.told(SuspensionOrdered)] == ["overuse"]
    assert len(play.told(SurplusOrdered)) == 1


def test_workers_of_a_cluster_that_scales_itself_go_down_to_its_grant() -> None:
    """Its owner scales it by hand."""
    play = ElasticPlay(("ns", "2500m", "2500m"))
    stored = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    stored["metadata"]["annotations"]["muster.dev/overuse-timeout"] = "1m"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", stored)
    scaler = play.create(raycluster())
    scaler.start("actor-0")
    scaler.start("actor-1")
    play.tick(3)
    assert len(play.pods()) == 2
    at = "/spec/workerGroupSpecs/0"
    scaler.stopped = True
    play.edit([{"op": "replace", "path": f"{at}/{name}", "value": 5} for name in ("maxReplicas", "replicas")])
    play.cell.advance(10_000)
    assert len(play.pods()) == 5 and play.over()["cpu"] == 3 * CORE
    play.cell.advance(65_000)
    assert [order.surplus["cpu"] for order in play.told(SurplusOrdered)] == [3 * CORE]
    assert (len(play.pods()), play.group()["replicas"], play.group()["maxReplicas"]) == (2, 2, 2)
    play.cell.advance(300_000)
    assert not play.told(SuspensionOrdered) and len(play.pods()) == 2
    play.clean()
