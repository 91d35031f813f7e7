"""The rest of a KubeRay user's life under the queue: what an attacker who had not read the code made up."""

from __future__ import annotations

import re
from typing import Any

import pytest
from test_ray_beside import Upgrading, fault_tolerant
from test_ray_retried import state, used
from test_sizes_told import Shown
from test_upgrades import cores, limited, play_of, scaling, serves, upgraded

from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster
from kit.rayscaler import RayScaler
from kit.rayservices import IMAGE
from kit.story import rayjob
from muster.events.base import Event
from muster.events.decisions import EvictionOrdered, GangAdmitted, SuspensionOrdered
from muster.events.elastic import GrowthWithdrawn, SurplusOrdered, WorkersChosen
from muster.fakecluster.apiserver.names import moment
from muster.fakecluster.kuberay.settings import OUTCOME, STOP_AFTER
from muster.model import api
from muster.model.raydemand import RayDemand, RayIdle
from muster.model.resources import parse_quantity


def on(play: ElasticPlay, *, live: bool = False) -> int:
    """cpu of all pods that are not over, in thousandths. ``live``: without those that are being deleted."""
    total = 0
    for pod in play.call("GET", api.PODS)["items"]:
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        if live and pod["metadata"].get("deletionTimestamp"):
            continue
        for container in pod["spec"]["containers"]:
            asked = (container.get("resources") or {}).get("requests") or {}
            total += parse_quantity(str(asked.get("cpu", "0")), "cpu")
    return total


def patched(play: ElasticPlay, name: str, op: dict[str, Any]) -> None:
    play.call("PATCH", api.RAYJOBS, "ns", name, [op], "application/json-patch+json")


def with_timeout(play: ElasticPlay) -> ElasticPlay:
    stored = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    stored["metadata"]["annotations"]["muster.dev/overuse-timeout"] = "1m"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", stored)
    return play


class Forgetful(RayScaler):
    """Beside a head that says nothing true of its workers until ``says`` is empty."""

    says: str = ""
    now: int = 0

    def tick(self, cluster: Any, pods: list[Any], now: int) -> list[Any]:
        ops = super().tick(cluster, pods, now)
        return [] if self.says else ops

    def demand(self) -> RayDemand:
        idle = tuple(RayIdle(name, "small", self.now - 3_000) for name in sorted(self.live))
        match self.says:
            case "nothing joined":
                return RayDemand(session="new", version="v2")
            case "all idle":
                return RayDemand(session="new", version="v2", joined={"small": 3}, idle=idle)
            case "nothing":
                return RayDemand(session="new", version="v2", trouble="unreachable")
        return super().demand()


def test_deletion_rules_free_step_by_step_what_a_finished_job_holds() -> None:
    """A job of three cores that ran before the namespace was managed: its workers go after 20 s, its head after 50."""
    play = ElasticPlay(("ns", "3", "3"))
    rule = {"jobStatus": "SUCCEEDED"}
    rules = [
        {"policy": "DeleteWorkers", "condition": {**rule, "ttlSeconds": 20}},
        {"policy": "DeleteCluster", "condition": {**rule, "ttlSeconds": 50}},
        {"policy": "DeleteSelf", "condition": {**rule, "ttlSeconds": 90}},
    ]
    body = rayjob("ruled", "ns", cpu="1", runtime="5s", deletionStrategy={"deletionRules": rules})
    for key in ("suspend", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished"):
        del body["spec"][key]
    body["spec"]["submissionMode"] = "HTTPMode"
    play.create_raw(body)
    seen: list[int] = []
    for _ in range(8):
        play.cell.advance(1_000)
    play.create_raw(rayjob("next", "ns", cpu="1", runtime="5s", replicas=1, submissionMode="HTTPMode"))
    for _ in range(140):
        play.cell.advance(1_000)
        if seen[-1:] != [used(play)]:
            seen.append(used(play))
        assert used(play) <= 3 * CORE and on(play) <= 3 * CORE
    assert state(play, "next") == "Complete"
    names = [job["metadata"]["name"] for job in play.call("GET", api.RAYJOBS)["items"]]
    assert names == ["next"] and used(play) == 0
    assert seen[0] == 3 * CORE, seen
    play.clean()


def test_a_cron_of_ray_jobs_queues_in_order_while_the_queue_is_full() -> None:
    """Every 20 s another job; each takes all there is for 30 s. One of those that wait is taken back by the cron."""
    play = ElasticPlay(("ns", "3", "3"))
    stored = play.call("POST", api.CONFIG_MAPS, "ns", body={"metadata": {"name": "often", "namespace": "ns"}})
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCronJob", "name": "often", "controller": True}
    owner["uid"] = stored["metadata"]["uid"]  # The simulated cluster keeps no RayCronJobs; its collector asks by uid.
    ran: list[str] = []
    for step in range(420):
        if step % 20 == 0 and step < 120:
            body = rayjob(f"often-{step:03}", "ns", cpu="1", runtime="30s", ttl_s=0, submissionMode="HTTPMode")
            body["metadata"]["ownerReferences"] = [owner]
            play.create_raw(body)
        if step == 70:
            play.call("DELETE", api.RAYJOBS, "ns", "often-060")
        play.cell.advance(1_000)
        assert used(play) <= 3 * CORE and on(play) <= 3 * CORE
        for job in play.call("GET", api.RAYJOBS)["items"]:
            name = job["metadata"]["name"]
            if job.get("status", {}).get("jobDeploymentStatus") == "Running" and name not in ran:
                ran.append(name)
    assert ran == ["often-000", "often-020", "often-040", "often-080", "often-100"], ran
    assert used(play) == 0
    play.clean()


def failing(play: ElasticPlay, *, runtime: str, stops: str) -> None:
    """A job of three pods that fails once and is tried again; its pods take so long to stop."""
    notes = {OUTCOME: "failed"}
    body = rayjob("again", "ns", cpu="1", runtime=runtime, annotations=notes, backoffLimit=1, submissionMode="HTTPMode")
    spec = body["spec"]["rayClusterSpec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        group["template"].setdefault("metadata", {}).setdefault("annotations", {})[STOP_AFTER] = stops
    play.create_raw(body)


def test_a_retry_pays_nothing_for_the_pods_of_its_last_try() -> None:
    """KubeRay makes the next cluster at once: for 90 s six cores run of three. What goes by itself is charged, and is
    not taken back from the new cluster.
    """
    play = with_timeout(ElasticPlay(("ns", "3", "3")))
    failing(play, runtime="100s", stops="90s")
    play.create_raw(rayjob("next", "ns", cpu="1", runtime="5s", submissionMode="HTTPMode"))
    play.cell.advance(105_000)
    assert (state(play, "again"), on(play), on(play, live=True)) == ("Running", 6 * CORE, 3 * CORE)
    for _ in range(88):
        play.cell.advance(1_000)
        assert used(play) == on(play) <= 6 * CORE and on(play, live=True) == 3 * CORE
    assert used(play) == 3 * CORE and not play.told(SurplusOrdered, SuspensionOrdered)
    shown = Shown(play.cell.log, "RayJob")
    assert not [message for _, _, message in shown.events if "taken back at" in message]
    play.cell.advance(200_000)
    assert state(play, "again") == "Failed" and state(play, "next") == "Complete"
    play.clean()


def test_a_retry_that_is_scaled_beyond_its_grant_pays_for_that_alone() -> None:
    play = with_timeout(ElasticPlay(("ns", "3", "3")))
    failing(play, runtime="100s", stops="90s")
    play.cell.advance(105_000)
    name = play.call("GET", api.RAYJOBS, "ns", "again")["status"]["rayClusterName"]
    play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}], name)
    play.cell.advance(75_000)
    [order] = play.told(SurplusOrdered)
    assert order.surplus["cpu"] == CORE and len(play.pods(name)) == 3, "two that stay, and one that stops"
    assert on(play, live=True) == 3 * CORE
    play.cell.advance(60_000)
    assert not play.told(SuspensionOrdered)
    play.clean()


def test_nobody_else_pays_for_the_pods_of_a_last_try() -> None:
    """A neighbor runs a worker beyond its grant, within the max; a retry doubles the job beside it for 90 s."""
    play = with_timeout(ElasticPlay(("ns", "6", "6")))
    failing(play, runtime="100s", stops="90s")
    made = raycluster(replicas=2)
    made["spec"]["enableInTreeAutoscaling"] = False
    play.create(made).stopped = True
    play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}])
    play.cell.advance(105_000)
    assert used(play) == 9 * CORE and play.over() == {"cpu": CORE, "memory": 1 << 30}
    play.cell.advance(88_000)
    assert len(play.pods()) == 3 and not play.told(SurplusOrdered, SuspensionOrdered)
    play.clean()


@pytest.mark.parametrize("says", ["nothing joined", "all idle", "nothing"])
def test_a_head_that_has_forgotten_its_workers_takes_none_of_them(says: str) -> None:
    """With GCS fault tolerance: the new head hears of its workers half a minute later, or does not answer so long."""
    play, scaler, workers = fault_tolerant()
    before, most = play.cpu(), play.group()["maxReplicas"]
    assert most == 3
    [head] = play.pods(node_type="head")
    play.call("DELETE", api.PODS, "ns", head["metadata"]["name"])
    scaler = play.scalers["auto"] = Forgetful(actors=scaler.actors, session="new", says=says)
    for _ in range(18 if says == "nothing" else 6):
        scaler.now = play.cluster.clock.now()
        play.tick()
        assert play.cpu() == before and play.group()["maxReplicas"] == most
    scaler.says = ""
    play.tick(6)
    assert {pod["metadata"]["uid"] for pod in play.pods()} == workers and play.cpu() == before
    assert not play.told(GrowthWithdrawn, WorkersChosen, SuspensionOrdered)
    play.clean()


def test_the_max_falls_below_the_serving_cluster_while_both_run() -> None:
    play = play_of(8)
    play.create()
    play.cell.advance(20_000)
    play.edit(IMAGE, "ray:new")
    serves(play, 6_000, 8)
    limited(play, 2)
    for _ in range(100):
        play.cell.advance(1_000)
        assert play.condition("Ready") == "True" and cores(play) <= 8
    assert cores(play) == 4 and play.charged() == 4 * CORE
    assert upgraded(play) and not play.decided(SuspensionOrdered)
    play.prove()


@pytest.mark.parametrize("first", ["upgrade", "growth"])
def test_an_upgrade_and_growth_at_the_same_moment(first: str) -> None:
    """Three and a half cores run; the new cluster takes as much again, growth takes three: of nine one of both fits."""
    play = Upgrading(9)
    if first == "upgrade":
        play.upgrade()
        play.wants(1, 2)
    else:
        play.wants(1, 2)
        play.upgrade()
    for _ in range(100):
        play.cell.advance(1_000)
        assert play.cpu("s") <= 9 * CORE and on(play) <= 9 * CORE
    assert not play.told(SuspensionOrdered, EvictionOrdered)
    play.clean()


@pytest.mark.parametrize(("most", "left"), [("6500m", 4), ("8500m", 8)])
def test_overuse_of_slices_takes_whole_slices(most: str, left: int) -> None:
    """Four hosts for each replica; its owner scales by hand to three slices."""
    play = with_timeout(ElasticPlay(("ns", most, most)))
    scaler = play.create(raycluster(numOfHosts=4))
    for number in range(4):
        scaler.start(f"actor-{number}")
    play.tick(3)
    assert len(play.pods()) == 4
    scaler.stopped = True
    at = "/spec/workerGroupSpecs/0"
    play.edit([{"op": "replace", "path": f"{at}/{name}", "value": 3} for name in ("maxReplicas", "replicas")])
    play.cell.advance(120_000)
    assert len(play.pods()) == left and play.cpu() == HEAD_CPU + left * CORE
    replicas: dict[str, int] = {}
    for pod in play.pods():
        name = pod["metadata"]["labels"]["ray.io/worker-group-replica-name"]
        replicas[name] = replicas.get(name, 0) + 1
    assert set(replicas.values()) == {4}
    assert not play.told(SuspensionOrdered)
    play.clean()


def test_a_job_that_waits_for_its_user_is_no_victim_until_its_user_has_submitted() -> None:
    play = ElasticPlay(("ns", "0", "6"), ("other", "3", "6"), total="6")
    play.create_raw(rayjob("mine", "ns", cpu="1", replicas=4, runtime="300s", submissionMode="InteractiveMode"))
    play.cell.advance(20_000)
    assert state(play, "mine") == "Waiting" and used(play) == 5 * CORE
    owed = rayjob("owed", "other", cpu="1", runtime="20s", submissionMode="HTTPMode")
    play.create_raw(owed)
    play.cell.advance(90_000)
    before = len(play.told(EvictionOrdered, SuspensionOrdered))
    assert state(play, "mine") == "Waiting" and used(play) == 5 * CORE
    assert before == 0, play.told(EvictionOrdered, SuspensionOrdered)
    patched(play, "mine", {"op": "add", "path": "/spec/jobId", "value": "by-hand"})
    play.cell.advance(40_000)
    found = play.call("GET", api.RAYJOBS, "other", "owed")["status"]["jobDeploymentStatus"]
    assert found in ("Running", "Complete"), (found, state(play, "mine"))
    play.cell.advance(600_000)
    assert play.told(EvictionOrdered)
    play.clean()


@pytest.mark.parametrize(("after_ms", "scales"), [(1_500, True), (5_000, False)])
def test_a_user_suspends_in_the_middle_of_an_upgrade_and_edits_again(after_ms: int, scales: bool) -> None:
    play = play_of(8)
    if scales:
        scaling(play)
    else:
        play.create()
    size = 3 if scales else 4
    play.cell.advance(20_000)
    play.edit(IMAGE, "ray:one")
    play.cell.advance(after_ms)
    play.edit("/spec/suspend", True)
    play.cell.advance(700)
    play.edit(IMAGE, "ray:new")
    for _ in range(90):
        play.cell.advance(1_000)
        assert cores(play) <= 8 and play.charged() <= 8 * CORE
    assert play.condition("Ready") == "True" and upgraded(play) and cores(play) == size
    assert play.charged() == size * CORE
    play.prove()


@pytest.mark.parametrize("to", [1, 5])
def test_the_size_of_a_waiting_job_is_edited_in_the_moment_of_its_admission(to: int) -> None:
    """Six cores; two jobs of three run. One ends, and the third job, of three, is edited before it is resumed."""
    play = ElasticPlay(("ns", "6", "6"))
    plain, edited = play.cell.step, list[str]()

    def step(key: str) -> list[Event]:
        decided = plain(key)
        if any(isinstance(event, GangAdmitted) and event.ref.name == "third" for event in decided) and not edited:
            edited.append(key)
            assert play.call("GET", api.RAYJOBS, "ns", "third")["spec"]["suspend"]
            path = "/spec/rayClusterSpec/workerGroupSpecs/0/replicas"
            patched(play, "third", {"op": "replace", "path": path, "value": to})
        return decided

    play.cell.step = step  # type: ignore[method-assign]
    for name, runtime in (("long", "300s"), ("short", "6s"), ("third", "300s")):
        play.create_raw(rayjob(name, "ns", cpu="1", runtime=runtime, ttl_s=0, submissionMode="HTTPMode"))
        play.cell.advance(300)
    for _ in range(30):
        play.cell.advance(1_000)
        assert used(play) <= 6 * CORE and on(play) <= 6 * CORE
    assert edited and used(play) == on(play) == (5 * CORE if to == 1 else 3 * CORE)
    play.clean()


def test_a_job_in_a_cluster_that_is_evicted_is_no_job_of_the_queue() -> None:
    play = ElasticPlay(("ns", "0", "6"), ("other", "4", "6"), total="6", kinds=("RayJob", "RayCluster", "Job"))
    base = raycluster("base", replicas=3, minReplicas=3, maxReplicas=3)
    base["spec"]["enableInTreeAutoscaling"] = False
    play.create_raw(base)
    play.cell.advance(10_000)
    body = rayjob("inside", "ns", cpu="1", runtime="60s", submissionMode="HTTPMode",
                  clusterSelector={"ray.io/cluster": "base"})  # fmt: skip
    for key in ("suspend", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "rayClusterSpec"):
        del body["spec"][key]
    play.create_raw(body)
    play.cell.advance(10_000)
    before = used(play)
    assert state(play, "inside") == "Running" and before == 3 * CORE
    play.create_raw(rayjob("owed", "other", cpu="1", replicas=3, runtime="20s", ttl_s=0, submissionMode="HTTPMode"))
    for _ in range(120):
        play.cell.advance(1_000)
        assert on(play) <= 6 * CORE and used(play) <= 3 * CORE
    assert play.told(EvictionOrdered)
    assert {event.ref.name for event in play.told(GangAdmitted)} == {"base", "owed"}
    assert used(play) == 3 * CORE and len(play.pods("base")) == 3
    play.cell.advance(120_000)
    assert [event.ref.name for event in play.told(GangAdmitted)] == ["base", "owed", "base"]
    play.clean()


@pytest.mark.parametrize("again", [False, True])
def test_overuse_is_taken_back_at_the_time_that_was_announced(again: bool) -> None:
    """``again``: the excess goes in time, and comes back later: another time is announced."""
    play = with_timeout(ElasticPlay(("ns", "3", "3")))
    made = raycluster(replicas=2)
    made["spec"]["enableInTreeAutoscaling"] = False
    play.create(made).stopped = True
    at = "/spec/workerGroupSpecs/0/replicas"
    play.edit([{"op": "replace", "path": at, "value": 5}])
    play.cell.advance(4_000)
    if again:
        play.cell.advance(30_000)
        play.edit([{"op": "replace", "path": at, "value": 2}])
        play.cell.advance(30_000)
        play.edit([{"op": "replace", "path": at, "value": 5}])
        play.cell.advance(4_000)
    shown = Shown(play.cell.log, "RayCluster")
    notes = [message for _, reason, message in shown.events if reason == "BeyondGrant"]
    times = re.findall(r"taken back at (\S+Z)", " ".join(notes))
    play.cell.advance(75_000)
    taken = [stored.commit for stored in play.cell.log
             if any(isinstance(event, SurplusOrdered) for event in stored.commit.events)]  # fmt: skip
    assert times and len(taken) == 1
    assert 0 <= taken[0].at - moment(times[-1]) <= 3_000, (times, taken[0].at)
    assert len(set(times)) == 1 + again
    play.clean()
