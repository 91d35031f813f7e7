"""Upgrades of RayServices under a quota: the new cluster is growth, and the serving cluster is never its price."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kit import jobs
from kit.disorder import Disorder
from kit.elastic import NODES, tree
from kit.rayservices import IMAGE, ServicePlay
from muster.events.decisions import EvictionOrdered, SuspensionOrdered
from muster.events.elastic import GateSet, GrowthDenied, GrowthGranted
from muster.model import api
from muster.model.placing import GPU, GPU_MEMORY

WILD = Disorder(late=0.6, crash=0.03, unseen=0.3, lost_answer=0.3, stale_patch=0.3)
OVERUSE = "muster.dev/overuse-timeout"


def play_of(most: int, seed: int = 0, **settings: Any) -> ServicePlay:
    """A leaf of so many cores, with the overuse timeout that the page of the installation sets."""
    play = ServicePlay(seed, **settings)
    stored = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    stored["metadata"]["annotations"][OVERUSE] = "1m"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", stored)
    limited(play, most)
    play.cell.advance(1_000)
    return play


def limited(play: ServicePlay, most: int) -> None:
    """The quota has another min and max from now on."""
    stored = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    stored["spec"]["root"]["children"][0] |= {"min": {"cpu": str(most)}, "max": {"cpu": str(most)}}
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", stored)


def cores(play: ServicePlay) -> int:
    """Pods that live, of one core each."""
    return len(play.call("GET", api.PODS)["items"])


def serves(play: ServicePlay, ms: int, most: int) -> None:
    """All this time a cluster serves, and nothing runs beyond the max."""
    for _ in range(ms // 1_000):
        play.cell.advance(1_000)
        assert play.condition("Ready") == "True"
        assert cores(play) <= most and play.charged() <= most * 1_000


def upgraded(play: ServicePlay) -> bool:
    [cluster] = play.clusters()
    return bool(cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] == "ray:new")


def test_with_room_for_both_it_is_granted_as_growth_and_falls_back_to_one() -> None:
    play = play_of(10)
    play.create()
    play.cell.advance(20_000)
    play.edit(IMAGE, "ray:new")
    serves(play, 180_000, 10)
    assert upgraded(play) and play.charged() == 4_000
    assert [event.added for event in play.decided(GrowthGranted)] == [{"cluster/pending": 1}]
    assert not play.decided(GrowthDenied) and not play.decided(SuspensionOrdered)
    play.prove()


@pytest.mark.parametrize("most", [4, 6], ids=["no room", "half a cluster's room"])
def test_without_room_it_waits_while_the_old_one_serves(most: int) -> None:
    play = play_of(most)
    play.create()
    play.cell.advance(20_000)
    [old] = play.clusters()
    play.edit(IMAGE, "ray:new")
    serves(play, 300_000, most)
    [denied] = play.decided(GrowthDenied)
    assert (denied.short.path, denied.short.resource, denied.short.asked) == ("root/ns", "cpu", 4_000)
    assert not play.decided(SuspensionOrdered)
    assert old["metadata"]["name"] in [each["metadata"]["name"] for each in play.clusters()]
    limited(play, 8)
    serves(play, 180_000, 8)
    assert upgraded(play) and play.charged() == 4_000
    play.prove()


def test_room_that_a_job_leaves_goes_to_the_waiting_upgrade() -> None:
    play = play_of(8)
    play.create()
    play.create("other")
    play.cell.advance(20_000)
    play.edit(IMAGE, "ray:new")
    serves(play, 60_000, 8)
    play.call("DELETE", api.RAYSERVICES, "ns", "other")
    serves(play, 180_000, 8)
    assert upgraded(play) and play.charged() == 4_000
    play.prove()


def test_a_new_edit_while_one_waits_asks_for_the_newest_alone() -> None:
    play = play_of(6)
    play.create()
    play.cell.advance(20_000)
    for image in ("ray:one", "ray:two", "ray:new"):
        play.edit(IMAGE, image)
        serves(play, 20_000, 6)
    serves(play, 120_000, 6)
    play.edit(IMAGE, "ray")
    serves(play, 120_000, 6)
    assert play.charged() == 4_000 and not play.decided(SuspensionOrdered)
    play.prove()


def test_one_that_started_before_muster_saw_it_is_held_and_the_service_stays() -> None:
    """Where no policy suspends clusters at birth."""
    play = play_of(6)
    play.create()
    play.cell.advance(20_000)
    play.cluster.server.objects._mutate = None
    play.edit(IMAGE, "ray:new")
    play.cell.advance(10_000)
    serves(play, 240_000, 6)
    assert [event.suspend for event in play.decided(GateSet)][-1:] == [True]
    assert not play.decided(SuspensionOrdered)
    play.prove()


@pytest.mark.parametrize("at_once", [False, True], ids=["within a second", "at once"])
def test_an_operator_that_takes_the_suspension_back_is_asked_less_and_less_often(at_once: bool) -> None:
    """As KubeRay 1.6 does: the cluster of a service is what the service says."""
    play = play_of(6)
    play.create()
    play.cell.advance(20_000)
    server = play.cluster.server
    server.objects._mutate = None
    for node in play.call("GET", api.NODES)["items"]:  # The new cluster never serves.
        cordoned = [{"op": "add", "path": "/spec/unschedulable", "value": True}]
        play.call("PATCH", api.NODES, "", node["metadata"]["name"], cordoned)
    answered = server.handle

    def undo() -> None:
        for cluster in play.clusters():
            if cluster["spec"].get("suspend"):
                path = api.RAYCLUSTERS.path("ns", cluster["metadata"]["name"])
                undone = json.dumps([{"op": "replace", "path": "/spec/suspend", "value": False}]).encode()
                answered("PATCH", path, body=undone, content_type="application/json-patch+json")

    def handled(method: str, path: str, *rest: Any, **more: Any) -> Any:
        answer = answered(method, path, *rest, **more)
        if method == "PATCH" and "/rayclusters/" in path:
            undo()
        return answer

    if at_once:
        server.handle = handled  # type: ignore[method-assign]
    play.edit(IMAGE, "ray:new")
    for _ in range(120):
        play.cell.advance(1_000)
        undo()
    held = [event for event in play.decided(GateSet) if event.suspend]
    assert 3 <= len(held) <= 6  # 5, 10, 20, 40 and 80 s between them


def scaling(play: ServicePlay, name: str = "s") -> None:
    """A service of a head and two workers, whose autoscaler may add three."""
    body = jobs.rayservice(name, "ns", replicas=2)
    del body["spec"]["suspend"]
    body["spec"]["rayClusterConfig"]["enableInTreeAutoscaling"] = True
    body["spec"]["rayClusterConfig"]["workerGroupSpecs"][0] |= {"minReplicas": 0, "maxReplicas": 5}
    play.call("POST", api.RAYSERVICES, "ns", body=body)


@pytest.mark.parametrize("most", [4, 7], ids=["it waits", "it is granted"])
def test_one_that_scales_itself_is_upgraded_alike(most: int) -> None:
    play = play_of(most)
    scaling(play)
    play.cell.advance(20_000)
    assert play.charged() == 3_000
    play.edit(IMAGE, "ray:new")
    serves(play, 180_000, most)
    assert not play.decided(SuspensionOrdered)
    assert (len(play.clusters()), play.charged()) == ((1, 3_000) if most == 7 else (2, 3_000))
    play.prove()


@pytest.mark.parametrize("seed", [*range(6), 15, 31])
def test_whatever_happens_each_ends_with_one_cluster_and_its_charge(seed: int) -> None:
    """Edits and suspensions under a max that moves, in a disordered cell; with odd seeds no policy holds a cluster."""
    drawn, play = random.Random(seed), ServicePlay(seed, WILD)
    for name in "abc":
        if drawn.random() < 0.5:
            scaling(play, name)
        else:
            play.create(name, replicas=1 + drawn.randrange(3))
    if seed % 2:
        play.cell.advance(15_000)
        play.cluster.server.objects._mutate = None
    for step in range(14):
        play.cell.advance(drawn.choice([1_000, 3_000, 15_000, 40_000]))
        name, chance = drawn.choice("abc"), drawn.random()
        if chance < 0.8:
            path, value = (IMAGE, f"ray:{step}") if chance < 0.7 else ("/spec/suspend", True)
            play.edit(path, value, name)
        else:
            limited(play, drawn.choice([4, 6, 10, 14]))
    play.cell.advance(400_000)
    limited(play, 30)
    play.cell.advance(400_000)
    assert [play.condition("Ready", name) for name in "abc"] == ["True"] * 3
    clusters = [cluster for name in "abc" for cluster in play.clusters(name)]
    pods = sum(group["replicas"] for each in clusters for group in each["spec"]["workerGroupSpecs"]) + len(clusters)
    assert (len(clusters), play.charged()) == (3, pods * 1_000)
    play.prove()


def test_an_upgrade_within_the_guarantee_takes_back_what_is_lent() -> None:
    play = play_of(8)
    stored = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    stored["spec"] = tree(("ns", "8", "8"), ("other", "2", "10"), total="10")["spec"]
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", stored)
    play.create()
    play.cell.advance(20_000)
    lent = jobs.rayservice("lent", "other", replicas=5)
    del lent["spec"]["suspend"]
    play.call("POST", api.RAYSERVICES, "other", body=lent)
    play.cell.advance(20_000)
    play.edit(IMAGE, "ray:new")
    play.cell.advance(20_000)
    [order] = play.decided(EvictionOrdered)
    assert (order.ref.name, [victim.ref.name for victim in order.victims]) == ("s", ["lent"])
    serves(play, 180_000, 10)
    assert upgraded(play) and play.charged() == 4_000
    play.prove()


def test_shares_of_devices_are_asked_for_as_they_are_charged() -> None:
    """Three workers with a tenth of a device each: two clusters are six tenths, where a whole device was asked for."""
    play = play_of(10)
    for name in NODES:
        labels = {"metadata": {"labels": {GPU_MEMORY: "80000"}}}
        path = api.NODES.path("", name)
        answer = play.cluster.server.handle(
            "PATCH", path, body=json.dumps(labels).encode(), content_type="application/merge-patch+json"
        )
        assert answer.ok, answer.body
    stored = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    for node in (stored["spec"]["root"], *stored["spec"]["root"]["children"]):
        node["min"][GPU] = node["max"][GPU] = "1"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", stored)
    service = jobs.rayservice("s", "ns", replicas=3)
    del service["spec"]["suspend"]
    for group in service["spec"]["rayClusterConfig"]["workerGroupSpecs"]:
        group["template"].setdefault("metadata", {})["annotations"] = {"gpu-memory": "8000"}
    play.call("POST", api.RAYSERVICES, "ns", body=service)
    play.cell.advance(20_000)
    leaf = play.cell.seats["quota_accountant"].state.ledger.used["root/ns"]
    assert leaf[GPU] == 300
    play.edit(IMAGE, "ray:new")
    serves(play, 180_000, 10)
    assert upgraded(play) and not play.decided(GrowthDenied) and not play.decided(SuspensionOrdered)
    assert play.cell.seats["quota_accountant"].state.ledger.used["root/ns"][GPU] == 300
    play.prove()
