"""Upgrades of RayServices that something crosses: a max that falls, a second edit, a hold, a lost head."""

from __future__ import annotations

import pytest
from test_upgrades import cores, limited, play_of, scaling, serves, upgraded

from kit.elastic import CORE
from kit.rayservices import IMAGE, ServicePlay
from muster.events.decisions import EvictionOrdered, SuspensionOrdered
from muster.model import api


def serving(most: int) -> ServicePlay:
    """A service of four cores that serves."""
    play = play_of(most)
    play.create()
    play.cell.advance(20_000)
    assert play.condition("Ready") == "True" and play.charged() == 4 * CORE
    return play


def test_the_max_falls_below_the_serving_cluster_while_an_upgrade_waits() -> None:
    play = serving(6)
    play.edit(IMAGE, "ray:new")
    serves(play, 20_000, 6)
    limited(play, 2)
    for _ in range(200):
        play.cell.advance(1_000)
        assert play.condition("Ready") == "True" and cores(play) == 4
    assert not play.decided(SuspensionOrdered)
    limited(play, 8)
    serves(play, 180_000, 8)
    assert upgraded(play) and play.charged() == 4 * CORE
    play.prove()


def test_the_max_falls_while_both_clusters_run() -> None:
    """Both are granted: the upgrade goes on, and ends within the max."""
    play = serving(8)
    play.edit(IMAGE, "ray:new")
    for _ in range(20):
        play.cell.advance(1_000)
        if cores(play) > 4:
            break
    limited(play, 5)
    for _ in range(200):
        play.cell.advance(1_000)
        assert play.condition("Ready") == "True"
    assert upgraded(play) and cores(play) == 4 and play.charged() == 4 * CORE
    assert not play.decided(SuspensionOrdered)
    play.prove()


def edited_twice(play: ServicePlay, after_ms: int, *, most: int, cores_after: int) -> None:
    """The service serves throughout, within ``most`` cores, and ends with the second edit."""
    play.edit(IMAGE, "ray:one")
    serves(play, after_ms, most)
    play.edit(IMAGE, "ray:new")
    serves(play, 300_000, most)
    assert upgraded(play) and play.charged() == cores_after * CORE
    assert not play.decided(SuspensionOrdered)
    play.prove()


@pytest.mark.parametrize("after_ms", [1_000, 3_000, 6_000, 30_000, 70_000])
def test_two_edits_in_a_row_with_room_for_two_clusters(after_ms: int) -> None:
    """The cluster of the first edit lingers; the second edit waits for its quota, and the old cluster serves."""
    edited_twice(serving(8), after_ms, most=8, cores_after=4)


@pytest.mark.parametrize("after_ms", [1_000, 6_000, 30_000, 70_000])
def test_two_edits_in_a_row_of_one_that_scales_itself(after_ms: int) -> None:
    play = play_of(7)
    scaling(play)
    play.cell.advance(20_000)
    edited_twice(play, after_ms, most=7, cores_after=3)


def test_a_second_upgrade_to_a_smaller_cluster_waits_for_what_runs_beside_it() -> None:
    """After the first upgrade four cores serve; the next cluster takes two and a half, and the max is six."""
    play = serving(8)
    play.edit(IMAGE, "ray:one")
    serves(play, 20_000, 8)
    limited(play, 6)
    small = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    play.edit("/spec/rayClusterConfig/workerGroupSpecs/0/template/spec/containers/0/resources", small)
    play.cell.advance(60_000)
    serves(play, 120_000, 4)
    assert play.charged() == 4 * CORE and not play.decided(SuspensionOrdered)
    limited(play, 7)
    for _ in range(180):
        play.cell.advance(1_000)
        assert play.condition("Ready") == "True" and play.charged() <= 7 * CORE
    assert play.charged() == 2_500
    play.prove()


@pytest.mark.parametrize("most", [6, 8])
def test_an_edit_is_taken_back_while_its_cluster_waits_or_starts(most: int) -> None:
    play = serving(most)
    [old] = play.clusters()
    for _ in range(3):
        play.edit(IMAGE, "ray:one")
        serves(play, 4_000, most)
        play.edit(IMAGE, old["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"])
        serves(play, 4_000, most)
    serves(play, 300_000, most)
    assert play.charged() == 4 * CORE and not play.decided(SuspensionOrdered)
    play.prove()


@pytest.mark.parametrize("after_ms", [2_000, 40_000])
def test_a_hold_in_the_middle_of_an_upgrade_frees_everything_and_its_end_starts_the_newest(after_ms: int) -> None:
    play = serving(8)
    play.edit(IMAGE, "ray:new")
    play.cell.advance(after_ms)
    play.call("PATCH", api.RAYSERVICES, "ns", "s",
              [{"op": "add", "path": "/metadata/annotations", "value": {"muster.dev/hold": "true"}},
               {"op": "add", "path": "/spec/suspend", "value": True}])  # fmt: skip
    play.cell.advance(120_000)
    assert (cores(play), play.charged()) == (0, 0)
    play.call("PATCH", api.RAYSERVICES, "ns", "s", [{"op": "remove", "path": "/metadata/annotations/muster.dev~1hold"}])
    play.cell.advance(120_000)
    assert play.condition("Ready") == "True" and upgraded(play) and play.charged() == 4 * CORE
    play.prove()


def test_the_head_of_the_serving_cluster_is_lost_while_an_upgrade_waits() -> None:
    play = serving(6)
    play.edit(IMAGE, "ray:new")
    serves(play, 20_000, 6)
    [head] = [pod for pod in play.call("GET", api.PODS)["items"]
              if pod["metadata"]["labels"]["ray.io/node-type"] == "head"]  # fmt: skip
    play.call("DELETE", api.PODS, "ns", head["metadata"]["name"])
    for _ in range(120):
        play.cell.advance(1_000)
        assert cores(play) <= 6 and play.charged() == 4 * CORE
    assert play.condition("Ready") == "True" and not play.decided(SuspensionOrdered)
    limited(play, 8)
    play.cell.advance(180_000)
    assert upgraded(play) and play.charged() == 4 * CORE
    play.prove()


def test_two_services_upgrade_at_once_with_room_for_one_after_the_other() -> None:
    """Eight cores of ten serve; each upgrade takes four more: three clusters never fit with a fourth."""
    play = play_of(12)
    for name in ("s", "other"):
        play.create(name)
    play.cell.advance(20_000)
    for name in ("s", "other"):
        play.edit(IMAGE, "ray:new", name)
    for _ in range(400):
        play.cell.advance(1_000)
        assert cores(play) <= 12 and play.charged() <= 12 * CORE
        assert all(play.condition("Ready", name) == "True" for name in ("s", "other"))
    assert play.charged() == 8 * CORE and len(play.clusters()) + len(play.clusters("other")) == 2
    assert not play.decided(SuspensionOrdered) and not play.decided(EvictionOrdered)
    play.prove()
