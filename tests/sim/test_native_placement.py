"""Jobs that Muster admits and kube-scheduler places: its verdict is told, and a gang without places waits again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit.disorder import Disorder, DisorderedCell
from kit.doubles.nativegangs import DEFINITION, NativeScheduler
from kit.proof import proven
from kit.story import quota_tree, rayjob
from kit.why import why
from kit.words import in_words
from muster.core.actuation.patches import GROUPS
from muster.core.objects.meta import ATTEMPT
from muster.events.decisions import GangAdmitted, QuotaReleased, SuspensionOrdered
from muster.events.effects import EffectFailed
from muster.events.gangs import PodsPlaced
from muster.events.system import PlacementChosen
from muster.fakecluster.world import SimCluster, node
from muster.model import api
from muster.told.views.story import Story
from muster_cli.nativechecks import native_findings

NODES = {f"node-{index}": {"cpu": "8", "memory": "64Gi"} for index in range(2)}
"""Four places of 4 cpu: one job of three pods fits, and not two."""
WILD = Disorder(late=0.6, crash=0.03, repeat=0.1, lost_answer=0.3)
NATIVE = PlacementChosen(mode="native", grow_ms=5_000)


class Play:
    def __init__(
        self,
        *,
        seed: int = 1,
        disorder: Disorder | None = None,
        served: bool = True,
        scheduler: bool = True,
        placement: PlacementChosen = NATIVE,
    ) -> None:
        definitions = [DEFINITION] if served else []
        native = NativeScheduler() if served and scheduler else None
        self.cluster = SimCluster(
            NODES,
            seed=seed,
            scheduler=not served,
            others=[native] if native else [],
            definitions=definitions,
        )
        self.simulation = DisorderedCell(self.cluster, seed=seed, disorder=disorder, placement=placement)
        self.post(api.QUOTA_TREES, quota_tree())
        self.simulation.advance(1_000)

    def post(self, resource: api.ApiResource, obj: dict[str, Any]) -> None:
        path = resource.path(obj["metadata"].get("namespace", ""))
        answer = self.cluster.server.handle("POST", path, body=json.dumps(obj).encode())
        assert answer.ok, answer.body

    def submit(self, count: int, runtime: str = "30s") -> None:
        for index in range(count):
            namespace = ("video", "text")[index % 2]
            self.post(api.RAYJOBS, rayjob(f"job-{index}", namespace, runtime=runtime, submissionMode="HTTPMode"))
            self.simulation.advance(500)

    def found(self, resource: api.ApiResource) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.cluster.server.handle("GET", resource.path()).body)["items"]
        return items

    def unfinished(self) -> list[str]:
        jobs = self.found(api.RAYJOBS)
        return [j["metadata"]["name"] for j in jobs if j["status"].get("jobDeploymentStatus") != "Complete"]

    def why(self, job: str) -> str:
        """What ``muster why`` says of a job: where it stands, and its story."""
        story = Story(job)
        for stored in self.simulation.log:
            story.feed(stored)
        found = story.of(job)
        return "\n".join([found.standing.text, *(each.entry.text for each in found.happenings)])

    def decided(self, kind: type) -> list[Any]:
        return [event for stored in self.simulation.log for event in stored.commit.events if isinstance(event, kind)]

    def clean(self) -> None:
        proven(self.simulation.log, but="I11")  # Facts are stored twice on purpose.


def test_kube_scheduler_binds_what_is_admitted_and_the_group_goes_with_the_job() -> None:
    play = Play()
    play.submit(1)
    play.simulation.advance(10_000)
    [group] = play.found(GROUPS)
    [job] = play.found(api.RAYJOBS)
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 3}}}
    assert group["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert [each["status"] for each in group["status"]["conditions"]] == ["True"]
    pods = play.found(api.PODS)
    assert len(pods) == 3
    assert {each["spec"]["schedulingGroup"]["podGroupName"] for each in pods} == {group["metadata"]["name"]}
    assert all(each["spec"].get("nodeName") for each in pods)
    assert {each["spec"]["schedulerName"] for each in pods} == {"default-scheduler"}
    assert play.decided(PodsPlaced) == []
    play.simulation.advance(60_000)
    assert play.unfinished() == []
    path = api.RAYJOBS.path("video", "job-0")
    assert play.cluster.server.handle("DELETE", path).ok
    play.simulation.advance(10_000)
    assert play.found(GROUPS) == []
    play.clean()


def test_a_gang_without_places_is_bound_by_nobody_and_gives_its_quota_back_with_the_reason() -> None:
    play = Play()
    play.submit(2, runtime="300s")
    play.simulation.advance(4_000)
    names = {each["metadata"]["name"] for each in play.found(api.PODS) if each["spec"].get("nodeName")}
    assert len(names) == 3
    said = "kube-scheduler places it: it has no places for it (Unschedulable): 1 of 3 pods have a place on 2 nodes"
    assert said in play.why("text/job-1")
    assert "it has places for it" in play.why("video/job-0")
    play.simulation.advance(20_000)
    [ordered] = play.decided(SuspensionOrdered)
    assert (ordered.ref.name, ordered.reason) == ("job-1", "unschedulable")
    assert in_words(ordered.problem) == "Unschedulable: 1 of 3 pods have a place on 2 nodes"
    assert [(each.ref.name, each.reason) for each in play.decided(QuotaReleased)] == [("job-1", "timed_out")]
    assert len(play.found(api.PODS)) == 3
    assert f"kube-scheduler has not placed its gang ({in_words(ordered.problem)})" in play.why("text/job-1")
    play.clean()


def test_it_is_tried_again_after_the_pause_under_a_group_of_its_own_attempt() -> None:
    play = Play()
    play.submit(2, runtime="200s")
    play.simulation.advance(100_000)
    admitted = [each.attempt for each in play.decided(GangAdmitted) if each.ref.name == "job-1"]
    assert admitted == [1, 2]
    [group] = [each for each in play.found(GROUPS) if "job-1" in each["metadata"]["name"]]
    assert group["metadata"]["annotations"][ATTEMPT] == "2"
    play.cluster.server.objects.create(api.NODES, "", node("node-9", {"cpu": "32"}, play.cluster.clock.now()))
    play.simulation.advance(600_000)
    assert play.unfinished() == []
    play.clean()


def test_when_we_place_jobs_again_their_pods_name_no_group() -> None:
    play = Play()
    play.submit(2, runtime="30s")
    play.simulation.advance(15_000)
    assert play.decided(SuspensionOrdered)
    play.simulation.append("gang_admitter", "input", [PlacementChosen(mode="pack")])
    play.simulation.advance(600_000)
    assert play.unfinished() == []
    [first, *_, last] = play.decided(GangAdmitted)
    assert (first.together, bool(first.placements)) == (3, False)
    assert (last.together, bool(last.placements)) == (0, True)
    placed = next(each for each in play.found(api.RAYJOBS) if each["metadata"]["name"] == "job-1")
    text = json.dumps(placed["spec"])
    assert "schedulingGroup" not in text
    assert '"schedulerName": "muster"' in text
    play.clean()


def test_jobs_that_we_placed_once_are_placed_by_us() -> None:
    play = Play(placement=PlacementChosen(mode="pack"))
    play.submit(1, runtime="300s")
    play.simulation.advance(10_000)
    play.simulation.append("gang_admitter", "input", [NATIVE])
    body = [{"op": "add", "path": "/spec/suspend", "value": True}]
    path = api.RAYJOBS.path("video", "job-0")
    patch = json.dumps(body).encode()
    assert play.cluster.server.handle("PATCH", path, body=patch, content_type=api.JSON_PATCH).ok
    play.simulation.advance(60_000)
    assert len(play.decided(GangAdmitted)) == 2
    assert play.found(GROUPS) == []
    play.simulation.advance(900_000)
    assert play.unfinished() == []
    play.clean()


def test_without_podgroups_nothing_is_resumed_and_the_way_out_is_told() -> None:
    play = Play(served=False)
    play.submit(1)
    play.simulation.advance(5_000)
    told = {why(each) for each in play.decided(EffectFailed)}
    [text] = told
    assert "does not serve podgroups" in text
    assert "MUSTER_PLACEMENT=off" in text
    assert play.found(api.PODS) == []
    play.clean()


async def test_doctor_refuses_the_mode_where_nobody_serves_podgroups() -> None:
    transport = Play(served=False).cluster.transport()
    [bad] = await native_findings(transport, placed=True, acting=True, policies=False)
    assert bad.grade == "bad"
    assert "MUSTER_PLACEMENT=native resumes no job without" in bad.detail
    assert "GenericWorkload=true" in bad.fix
    assert "set MUSTER_PLACEMENT to off, pack or spread" in bad.fix
    [found] = await native_findings(Play().cluster.transport(), placed=True, acting=True, policies=False)
    assert found.grade == "ok"


@pytest.mark.parametrize("placed", [True, False])
async def test_doctor_says_that_the_gangs_of_1_35_are_not_read(placed: bool) -> None:
    older = api.NATIVE_WORKLOADS_OF_1_35
    names = {"plural": older.plural, "singular": "workload", "kind": older.kind}
    version = {"name": older.version, "served": True, "storage": True}
    spec = {"group": older.group, "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {**DEFINITION, "metadata": {"name": f"workloads.{older.group}"}, "spec": spec}
    transport = SimCluster(NODES, definitions=[definition]).transport()
    [found] = await native_findings(transport, placed=placed, acting=True, policies=False)
    assert (found.grade, "spec.workloadRef of a pod) are not read, 1.36 is needed" in found.detail) == (
        "bad" if placed else "note",
        True,
    )


@pytest.mark.parametrize("seed", range(6))
def test_all_come_to_their_end_in_disorder(seed: int) -> None:
    play = Play(seed=seed, disorder=WILD)
    play.submit(5)
    play.simulation.advance(3_600_000)
    assert play.unfinished() == []
    play.clean()


def judged_elsewhere(job: dict[str, Any], namespace: str, name: str) -> dict[str, Any]:
    """A PodGroup that says it is of a job, as anybody with a namespace may write it."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "controller": True}
    owner |= {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    meta = {"name": name, "namespace": namespace, "annotations": {ATTEMPT: "1"}, "ownerReferences": [owner]}
    told = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": "says a stranger"}
    gang = {"schedulingPolicy": {"gang": {"minCount": 99}}}
    kind = {"apiVersion": GROUPS.api_version, "kind": GROUPS.kind}
    return {**kind, "metadata": meta, "spec": gang, "status": {"conditions": [told]}}


@pytest.mark.parametrize("namespace", ["text", "video"])
def test_only_the_podgroup_that_was_made_for_a_job_speaks_of_it(namespace: str) -> None:
    """Its owner and its annotations are no proof: a stranger may write them, in another namespace too."""
    play = Play(scheduler=False)
    play.submit(1)
    play.simulation.advance(1_000)
    [job] = play.found(api.RAYJOBS)
    forged, path = judged_elsewhere(job, namespace, "forged"), GROUPS.path(namespace, "forged/status")
    play.post(GROUPS, forged)
    patch = json.dumps({"status": forged["status"]}).encode()
    assert play.cluster.server.handle("PATCH", path, body=patch, content_type=api.MERGE_PATCH).ok
    play.simulation.advance(60_000)
    assert len(play.found(api.PODS)) == 3
    assert play.decided(SuspensionOrdered) == []
    assert "says a stranger" not in play.why("video/job-0")


def test_what_is_said_before_a_job_is_charged_counts_once_it_is() -> None:
    """Of a log that begins while a gang waits for places: the PodGroup is seen before the job is adopted."""
    old = Play()
    old.submit(2, runtime="300s")
    old.simulation.advance(3_000)
    assert old.decided(SuspensionOrdered) == []
    group = next(each for each in old.found(GROUPS) if "job-1" in each["metadata"]["name"])
    assert group["status"]["conditions"][0]["status"] == "False"
    new = DisorderedCell(old.cluster, seed=2, placement=NATIVE)
    new.advance(30_000)
    events = [event for stored in new.log for event in stored.commit.events]
    [ordered] = [each for each in events if isinstance(each, SuspensionOrdered)]
    assert (ordered.ref.name, ordered.reason) == ("job-1", "unschedulable")
