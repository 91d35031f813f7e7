"""Ray clusters that scale themselves grow as far as they are granted, in virtual time through all stages."""

from __future__ import annotations

from typing import Any

import pytest

from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster, rayjob
from muster.events.elastic import GateSet, GrowthDenied, GrowthGranted, GrowthWithdrawn
from muster.model import api


@pytest.mark.parametrize("make", (raycluster, rayjob))
def test_it_starts_with_what_was_admitted_and_keeps_its_ceiling_in_mind(make: Any) -> None:
    play = ElasticPlay()
    play.create(make(replicas=1))
    assert play.sizes() == (1, 1, 1)
    notes = play.raycluster()["metadata"]["annotations"]
    assert (notes["muster.dev/granted"], notes["muster.dev/max-replicas"]) == ("small=1", "small=10")
    assert play.cpu() == HEAD_CPU + CORE
    assert not play.told(GateSet), "it was let in with the right limit"
    play.clean()


@pytest.mark.parametrize("make", (raycluster, rayjob))
def test_it_grows_when_something_waits(make: Any) -> None:
    play = ElasticPlay()
    scaler = play.create(make())
    assert play.sizes() == (0, 0, 0)
    scaler.start("actor-1")
    play.tick(3)
    assert play.sizes() == (1, 1, 1)
    assert not scaler.waiting
    scaler.start("actor-2")
    play.tick(3)
    assert play.sizes() == (2, 2, 2)
    assert play.cpu() == HEAD_CPU + 2 * CORE
    assert [event.groups for event in play.told(GrowthGranted)] == [{"small": 1}, {"small": 2}]
    play.clean()


def test_what_fits_is_granted_and_the_rest_when_there_is_room() -> None:
    play = ElasticPlay(("ns", "3", "3"))
    scaler = play.create(raycluster())
    for number in range(5):
        scaler.start(f"actor-{number}")
    play.tick(4)
    assert play.sizes() == (2, 2, 2), "half a core is the autoscaler's"
    assert len(scaler.waiting) == 3
    [refusal] = play.told(GrowthDenied)
    assert (refusal.short.path, refusal.short.resource, refusal.short.limit) == ("root/ns", "cpu", 3_000)
    tree = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    tree["spec"]["root"]["children"][0]["max"]["cpu"] = "20"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", tree)
    play.tick(3)
    assert play.sizes() == (5, 5, 5)
    play.clean()


def test_what_can_never_be_placed_is_not_asked_for() -> None:
    play = ElasticPlay()
    scaler = play.create(raycluster())
    scaler.start("too-large", cpu=2)
    play.tick(4)
    assert play.sizes() == (0, 0, 0)
    assert not play.told(GrowthGranted)
    play.clean()


def test_a_placement_group_is_granted_whole_or_not_at_all() -> None:
    play = ElasticPlay(("ns", "3", "3"))
    scaler = play.create(raycluster())
    for number in range(3):
        scaler.start(f"bundle-{number}", gang="pg")
    play.tick(4)
    assert play.sizes() == (0, 0, 0), "two of three would fit"
    assert play.told(GrowthDenied)[0].groups == {"small": 3}
    play.clean()


def test_a_placement_group_that_fits_is_granted_at_once() -> None:
    play = ElasticPlay()
    scaler = play.create(raycluster())
    for number in range(3):
        scaler.start(f"bundle-{number}", gang="pg")
    play.tick(4)
    assert play.sizes() == (3, 3, 3)
    assert [event.added for event in play.told(GrowthGranted)] == [{"small": 3}]
    play.clean()


def test_what_nobody_uses_is_given_back() -> None:
    play = ElasticPlay()
    scaler = play.create(raycluster())
    for number in range(3):
        scaler.start(f"actor-{number}")
    play.tick(4)
    assert play.sizes() == (3, 3, 3)
    scaler.end("actor-0")
    scaler.end("actor-1")
    play.tick(8)
    assert play.sizes() == (1, 1, 1)
    assert play.cpu() == HEAD_CPU + CORE
    assert sum(sum(event.removed.values()) for event in play.told(GrowthWithdrawn)) == 2
    scaler.end("actor-2")
    play.tick(8)
    assert play.sizes() == (0, 0, 0)
    assert play.cpu() == HEAD_CPU
    play.clean()


def test_a_grant_whose_demand_is_gone_before_it_is_used_is_withdrawn() -> None:
    play = ElasticPlay()
    scaler = play.create(raycluster())
    scaler.start("actor")
    play.read()
    play.cell.advance(100)
    assert play.sizes() == (0, 1, 0)
    scaler.end("actor")
    play.tick(5)
    assert play.sizes() == (0, 0, 0)
    assert play.cpu() == HEAD_CPU
    play.clean()


def test_the_same_manifest_applied_again_and_again_changes_nothing() -> None:
    play = ElasticPlay()
    manifest = raycluster()
    scaler = play.create(manifest)
    for number in range(20):
        if number % 4 == 0:
            scaler.start(f"actor-{number}")
        play.apply(manifest)
        play.tick()
        group = play.group()
        assert group["replicas"] <= group["maxReplicas"] or group["maxReplicas"] == 10
    play.tick(2)
    assert play.sizes() == (5, 5, 5)
    notes = play.raycluster()["metadata"]["annotations"]
    assert notes["muster.dev/max-replicas"] == "small=10"
    assert not scaler.waiting
    play.clean()


def test_a_new_ceiling_counts_and_is_no_grant() -> None:
    play = ElasticPlay()
    scaler = play.create(raycluster(maxReplicas=2))
    for number in range(5):
        scaler.start(f"actor-{number}")
    play.tick(4)
    assert play.sizes() == (2, 2, 2)
    play.apply(raycluster(maxReplicas=4))
    play.tick(4)
    assert play.sizes()[1:] == (4, 4)
    assert play.raycluster()["metadata"]["annotations"]["muster.dev/max-replicas"] == "small=4"
    play.clean()


def test_min_is_never_above_max() -> None:
    play = ElasticPlay()
    play.create(raycluster(minReplicas=2, maxReplicas=5))
    assert play.sizes()[1:] == (2, 2), "replicas is below min; the operator makes two"
    assert play.cpu() == HEAD_CPU + 2 * CORE
    play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/minReplicas", "value": 4}])
    play.tick(3)
    assert play.group()["maxReplicas"] == 4
    assert play.cpu() == HEAD_CPU + 4 * CORE
    play.clean()


def test_a_deleted_cluster_gives_everything_back() -> None:
    play = ElasticPlay()
    scaler = play.create(raycluster())
    scaler.start("actor")
    play.tick(3)
    play.call("DELETE", api.RAYCLUSTERS, "ns", "auto")
    play.cell.advance(60_000)
    assert not play.cell.seats["quota_accountant"].state.ledger.charges
    bridge = play.cell.seats["autoscaler_bridge"].state
    assert not bridge.clusters and not bridge.grants and not bridge.heard and not bridge.workers
    play.clean()


def test_a_second_replica_is_two_pods_where_a_replica_has_two_hosts() -> None:
    play = ElasticPlay()
    scaler = play.create(raycluster(numOfHosts=2))
    scaler.start("actor")
    play.tick(3)
    assert play.sizes() == (1, 1, 2)
    assert play.cpu() == HEAD_CPU + 2 * CORE
    play.clean()


def test_request_resources_is_held_and_not_on_top() -> None:
    play = ElasticPlay()
    scaler = play.create(raycluster())
    scaler.explicit = 3
    scaler.start("actor")
    play.tick(4)
    assert play.sizes() == (3, 3, 3)
    scaler.end("actor")
    play.tick(10)
    assert play.sizes() == (3, 3, 3), "it is asked for explicitly"
    play.clean()


def test_a_job_that_comes_later_gets_what_is_given_back() -> None:
    play = ElasticPlay(("ns", "4", "4"))
    scaler = play.create(raycluster())
    for number in range(3):
        scaler.start(f"actor-{number}")
    play.tick(4)
    play.create(raycluster("later", replicas=2, minReplicas=2))
    assert not play.pods("later", "head")
    scaler.end("actor-0")
    scaler.end("actor-1")
    play.tick(10)
    assert len(play.pods("later", "head")) == 1
    assert play.cpu("auto") + play.cpu("later") == 2 * HEAD_CPU + 3 * CORE
    play.clean()


def test_one_that_was_let_in_with_a_fixed_size_and_scales_itself_later_is_gated_too() -> None:
    play = ElasticPlay(("ns", "4500m", "4500m"))
    fixed = raycluster(replicas=2)
    fixed["spec"]["enableInTreeAutoscaling"] = False
    scaler = play.create(fixed)
    assert play.sizes()[2] == 2
    fixed["spec"]["enableInTreeAutoscaling"] = True
    play.apply(fixed)
    play.cell.advance(2_000)
    for number in range(8):
        scaler.start(f"actor-{number}")
    play.tick(5)
    assert play.sizes() == (4, 4, 4), "its quota but for its autoscaler, and not the ten of its own maxReplicas"
    assert not play.over(), "its autoscaler came later, and was asked for like its workers"
    assert play.told(GrowthDenied)
    play.clean()


def test_what_came_to_run_beyond_its_grant_is_granted_once_there_is_room() -> None:
    play = ElasticPlay(("ns", "4", "4"))
    scaler = play.create(raycluster())
    for number in range(6):
        scaler.start(f"actor-{number}")
    play.apply(raycluster())
    scaler_saw = play.group()["maxReplicas"]
    play.tick(1)
    play.tick(4)
    assert scaler_saw == 10, "it read the limit before that was ours again"
    assert play.sizes()[2] == 6
    assert play.over() == {"cpu": 6 * CORE, "memory": 6 * 1024**3}
    tree = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    tree["spec"]["root"]["children"][0]["max"]["cpu"] = "20"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", tree)
    play.tick(2)
    assert not play.over()
    assert play.told(GrowthGranted)[-1].groups == {"small": 6}
    play.clean()


@pytest.mark.parametrize(("options", "each"), [({}, 500), ({"resources": {"requests": {"cpu": "2"}}}, 2_000)])
def test_the_collector_of_the_history_server_is_counted_in_every_pod(options: Any, each: int) -> None:
    """Row 18, and a worker that is granted later is charged with its collector too."""
    play = ElasticPlay()
    made = raycluster(replicas=1, minReplicas=1)
    made["spec"]["historyServerOptions"] = {"collectorOptions": {"image": "collector", **options}}
    scaler = play.create(made)
    assert play.cpu() == HEAD_CPU + CORE + 2 * each
    scaler.start("actor-1")
    scaler.start("actor-2")
    play.tick(3)
    assert play.sizes() == (2, 2, 2)
    assert (play.cpu(), play.over()) == (HEAD_CPU + 2 * CORE + 3 * each, {})
    play.clean()
