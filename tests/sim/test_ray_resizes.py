"""Workers that Ray's autoscaler grows in place: a request like any other, never beyond what is granted."""

from __future__ import annotations

import json
from typing import Any

from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster, rayjob
from kit.rayscaler import RayScaler
from muster.events.elastic import GrowthDenied, GrowthGranted, GrowthWithdrawn
from muster.model import api

GROWN = "small/cpu+3/memory+3Gi"
SIZES = {"groups": {"small": {"max-cpu": 4, "max-memory": "4Gi", "resize-timeout": 60}}}


def growing(make: Any = raycluster, sizes: Any = SIZES, **group: Any) -> dict[str, Any]:
    made: dict[str, Any] = make(**group)
    made["metadata"].setdefault("annotations", {})["ray.io/ippr"] = json.dumps(sizes)
    return made


def notes(play: ElasticPlay) -> dict[str, str]:
    found: dict[str, str] = play.raycluster()["metadata"]["annotations"]
    return found


def most_cpu(play: ElasticPlay) -> object:
    return json.loads(notes(play)["ray.io/ippr"])["groups"]["small"]["max-cpu"]


def sizes(play: ElasticPlay) -> list[str]:
    return sorted(str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for pod in play.pods())


def with_a_large_worker() -> tuple[ElasticPlay, RayScaler]:
    """One that has grown in place to four cores, three of them for what fits no worker."""
    play = ElasticPlay()
    scaler = play.create(growing())
    scaler.start("small-one")
    play.tick(3)
    scaler.start("large", cpu=3)
    play.tick(3)
    assert sizes(play) == ["4"]
    return play, scaler


def test_nothing_grows_that_is_not_granted_and_its_autoscaler_is_not_refused() -> None:
    play = ElasticPlay()
    scaler = play.create(growing())
    assert most_cpu(play) == "1000m", "what its autoscaler reads is the size of the template"
    assert json.loads(notes(play)["muster.dev/ippr"]) == SIZES
    assert notes(play)["muster.dev/resize"] == ""
    scaler.start("small-one")
    play.tick(3)
    assert (sizes(play), play.cpu(), scaler.refused) == (["1"], HEAD_CPU + CORE, 0)
    assert play.resize("auto", play.pods()[0]["metadata"]["name"], 4, "4Gi") is False
    play.clean()


def test_what_fits_no_worker_makes_one_larger_once_that_is_granted() -> None:
    for make in (raycluster, rayjob):
        play = ElasticPlay()
        scaler = play.create(growing(make))
        scaler.start("small-one")
        play.tick(3)
        scaler.start("large", cpu=3)
        play.tick(4)
        assert (sizes(play), scaler.waiting, scaler.refused) == (["4"], [], 0)
        assert play.told(GrowthGranted)[-1].added == {GROWN: 1}
        assert play.cpu() == HEAD_CPU + 4 * CORE
        assert not play.over()
        play.tick(8)
        assert most_cpu(play) == "1000m", "nothing waits for it any more: it is closed"
        assert play.cpu() == HEAD_CPU + 4 * CORE, "what has grown stays granted"
        before = len(play.cell.log)
        play.tick(8)
        assert len(play.cell.log) - before <= 1
        play.clean()


def test_all_of_a_group_may_grow_and_what_did_not_is_given_back() -> None:
    play = ElasticPlay()
    scaler = play.create(growing())
    for number in range(3):
        scaler.start(f"small-{number}")
    play.tick(3)
    assert sizes(play) == ["1", "1", "1"]
    scaler.start("large", cpu=3)
    play.tick(3)
    assert sizes(play) == ["1", "1", "4"]
    assert play.told(GrowthGranted)[-1].added == {GROWN: 3}, "its autoscaler picks which one"
    play.tick(8)
    assert play.cpu() == HEAD_CPU + 6 * CORE
    assert play.told(GrowthWithdrawn)[-1].removed == {GROWN: 2}
    play.clean()


def test_growth_waits_for_room_as_replicas_do() -> None:
    play = ElasticPlay(("ns", "3", "3"))
    scaler = play.create(growing())
    scaler.start("small-one")
    play.tick(3)
    scaler.start("large", cpu=3)
    play.tick(5)
    assert (sizes(play), scaler.waiting, scaler.refused) == (["1"], ["large"], 0)
    [refusal] = play.told(GrowthDenied)
    assert (refusal.groups, refusal.short.path) == ({GROWN: 1}, "root/ns")
    tree = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    tree["spec"]["root"]["children"][0]["max"]["cpu"] = "20"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", tree)
    play.tick(3)
    assert sizes(play) == ["4"]
    play.clean()


def test_without_a_worker_one_is_made_that_may_grow() -> None:
    play = ElasticPlay()
    scaler = play.create(growing())
    scaler.start("large", cpu=4)
    play.tick(6)
    assert (sizes(play), scaler.waiting) == (["4"], [])
    assert play.told(GrowthGranted)[0].added == {"small": 1, GROWN: 1}
    assert play.cpu() == HEAD_CPU + 4 * CORE
    scaler.end("large")
    play.tick(12)
    assert (sizes(play), play.cpu()) == ([], HEAD_CPU)
    play.clean()


def test_what_can_never_be_placed_is_not_asked_for() -> None:
    play = ElasticPlay()
    scaler = play.create(growing())
    scaler.start("too-large", cpu=5)
    play.tick(5)
    assert not play.told(GrowthGranted)
    play.clean()


def test_a_worker_that_is_made_smaller_gives_back_what_it_had() -> None:
    play, scaler = with_a_large_worker()
    scaler.end("large")
    assert play.resize("auto", play.pods()[0]["metadata"]["name"], "1", "1Gi")
    play.tick(8)
    assert (sizes(play), play.cpu()) == (["1"], HEAD_CPU + CORE)
    play.clean()


def test_the_same_manifest_applied_again_and_again_while_pods_grow_changes_nothing() -> None:
    play = ElasticPlay()
    manifest = growing()
    scaler = play.create(manifest)
    for number in range(20):
        if number % 6 == 0:
            scaler.start(f"large-{number}", cpu=3)
        play.edit([{"op": "add", "path": "/metadata/annotations/ray.io~1ippr", "value": json.dumps(SIZES)}])
        play.apply(manifest)
        play.tick()
    play.tick(4)
    assert sizes(play) == ["4"] * 4
    assert not scaler.waiting
    assert json.loads(notes(play)["muster.dev/ippr"]) == SIZES
    play.tick(10)
    assert play.cpu() == HEAD_CPU + 16 * CORE
    play.clean()


def test_an_owner_who_takes_the_annotation_away_closes_it() -> None:
    play, scaler = with_a_large_worker()
    play.edit([{"op": "remove", "path": "/metadata/annotations/ray.io~1ippr"}])
    scaler.end("large")
    assert play.resize("auto", play.pods()[0]["metadata"]["name"], "1", "1Gi")
    play.tick(8)
    assert notes(play)["muster.dev/resize"] == ""
    assert play.cpu() == HEAD_CPU + CORE
    play.clean()
