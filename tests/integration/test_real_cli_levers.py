"""The levers of an operator against a Muster that acts on a cluster: pulled by command, seen in the log and on it."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio

from kit.cli import Cli, Result
from kit.deployed import controllers, shipped_policies
from kit.simulated import served
from kit.story import quota_tree, rayjob
from muster.fakecluster.apiserver.kinds import ResourceRules
from muster.fakecluster.world import SimCluster, VirtualClock
from muster.model import api
from muster.model.api import ApiResource
from muster.runtime.clock import SystemClock
from muster_cli.policychecks import POLICIES

VIDEO = "root/algorithm/video"
LONG = "3600s"


class Theirs:
    """A cluster whose only quota for videos takes one job at a time, and the command line of its operator."""

    def __init__(self, cluster: SimCluster, cli: Cli, kubeconfig: Path) -> None:
        self.cluster, self.cli = cluster, cli
        self.context = ("--context", "theirs", "--kubeconfig", str(kubeconfig))

    def create(self, resource: ApiResource, body: dict[str, Any]) -> None:
        path = resource.path(body["metadata"].get("namespace", ""))
        answer = self.cluster.server.handle("POST", path, body=json.dumps(body).encode())
        assert answer.ok, answer.body

    async def run(self, *args: str) -> Result:
        return await self.cli.run(*args, *self.context, USER="ann")

    def marks(self, name: str) -> dict[str, str]:
        found = self.cluster.server.objects.get(api.RAYJOBS, "video", name)["metadata"]["annotations"]
        return {key: value for key, value in found.items() if key.startswith("muster.dev/")}

    def names(self, resource: ApiResource) -> list[str]:
        return sorted(self.cluster.server.store.table(resource).objects)


def said(word: str, name: str) -> Callable[[str], bool]:
    """Whether a line of the story tells this of a job."""
    return lambda line: f"  {word}  " in line and f"video/{name} " in f"{line} "


@pytest_asyncio.fixture
async def theirs(tmp_path: Path) -> AsyncIterator[Theirs]:
    cluster = SimCluster({"node-1": {"cpu": "48", "memory": "192Gi"}}, clock=VirtualClock(SystemClock().now()))
    async with served(cluster, tmp_path, "theirs") as kubeconfig:
        made = Theirs(cluster, Cli(tmp_path), kubeconfig)
        made.create(api.QUOTA_TREES, quota_tree())
        shipped = shipped_policies()
        for policy in POLICIES:
            for resource in (policy.resource, policy.binding):
                cluster.server.serve(ResourceRules(resource=resource))
                made.create(resource, shipped[resource.kind, policy.name])
        made.create(api.CONFIG_MAPS, controllers())
        yield made


async def test_jobs_are_jumped_held_and_released_and_admissions_paused(theirs: Theirs) -> None:
    async with theirs.cli.start("up", "--headless", "--act", *theirs.context) as up:
        # Jobs created within one second queue in the order of their names.
        for name in ("job-1", "job-2", "job-3", "job-4"):
            theirs.create(api.RAYJOBS, rayjob(name, runtime=LONG))
            await up.line(said("queued", name))
        await up.line(said("running", "job-1"))

        jumped = (await theirs.run("jump", "video/job-4", "--reason", "deadline")).ok()
        assert jumped.lines[0].endswith(": deadline")
        assert f"position 1 of 3 in queue {VIDEO}" in jumped.lines[1]
        marks = theirs.marks("job-4")
        assert (marks["muster.dev/priority"], marks["muster.dev/change-reason"]) == ("1", "deadline")
        assert marks["muster.dev/changed-by"] in jumped.lines[0]
        again = (await theirs.run("jump", "video/job-4", "--reason", "again")).ok()
        assert "is the first of its queue already" in again.out
        refused = await theirs.run("jump", "video/job-1", "--reason", "too late")
        assert (refused.code, "it has its quota" in refused.err) == (1, True)
        lowered = (await theirs.run("priority", "job-2", "-3", "--reason", "can wait")).ok()
        assert f"position 3 of 3 in queue {VIDEO}" in lowered.lines[1]

        held = (await theirs.run("hold", "job-4", "--reason", "no data")).ok()
        assert "it is not queued: on hold by" in held.lines[1]
        assert "no data" in (await theirs.cli.run("why", "video/job-4")).ok().out
        released = (await theirs.run("release", "job-4")).ok()
        assert f"position 1 of 3 in queue {VIDEO}" in released.lines[1]
        assert "muster.dev/hold" not in theirs.marks("job-4")
        assert "is not held" in (await theirs.run("release", "job-4")).ok().out

        paused = (await theirs.run("pause", "admissions", "--queue", VIDEO, "--reason", "network")).ok()
        assert f"pauses admissions of queue {VIDEO}" in paused.lines[0]
        assert "does not show it" not in paused.out
        shown = [(await theirs.cli.run(*look)).ok() for look in (("why", "job-4"), ("queue", "tree"), ("queue", "ls"))]
        for each in shown:
            assert "network" in each.out
            assert f"muster resume admissions --queue {VIDEO}" in " ".join(each.out.split())
        path = api.RAYJOBS.path("video", "job-1")
        assert theirs.cluster.server.handle("DELETE", path, body=b"").ok
        await up.line(said("released", "job-1"))
        resumed = (await theirs.run("resume", "admissions", "--queue", VIDEO)).ok()
        assert "does not show it" not in resumed.out
        admitted = await up.line(lambda line: "  admitted  " in line and "video/job-1" not in line)
        assert "video/job-4" in admitted, "it had jumped, and nobody was let in before the queue was resumed"
        assert (await up.stop()).code == 0


async def test_nothing_is_changed_on_a_job_that_has_finished(theirs: Theirs) -> None:
    async with theirs.cli.start("up", "--headless", "--act", *theirs.context) as up:
        theirs.create(api.RAYJOBS, rayjob("short", runtime="1s"))
        await up.line(said("finished", "short"))
        before = theirs.marks("short")
        for words in (("hold", "short", "--reason", "x"), ("priority", "short", "7", "--reason", "x")):
            refused = await theirs.run(*words)
            assert refused.code == 1
            assert "nothing is changed: RayJob video/short has finished" in refused.err
        assert theirs.marks("short") == before
        assert (await up.stop()).code == 0


async def test_evictions_are_paused_on_the_tree_and_uninstalling_leaves_the_jobs(theirs: Theirs) -> None:
    async with theirs.cli.start("up", "--headless", "--act", *theirs.context) as up:
        for name in ("one", "two"):
            theirs.create(api.RAYJOBS, rayjob(name, runtime=LONG))
            await up.line(said("queued", name))
        await up.line(said("running", "one"))
        assert (await theirs.run("pause", "evictions", "--reason", "checkpoints")).ok()
        tree = theirs.cluster.server.objects.get(api.QUOTA_TREES, "kube-system", "elasticquotatree")
        assert tree["metadata"]["annotations"]["muster.dev/paused"] == "evictions"
        told = (await theirs.cli.run("queue", "ls", "-o", "json")).ok().json()
        assert "checkpoints" in told["pauses"][0]
        assert all("evictions" in queue["paused"] for queue in told["queues"])
        assert (await theirs.run("resume", "evictions", "--reason", "all saved")).ok()
        tree = theirs.cluster.server.objects.get(api.QUOTA_TREES, "kube-system", "elasticquotatree")
        assert not [key for key in tree["metadata"].get("annotations", {}) if key.startswith("muster.dev/paused")]
        assert tree["metadata"]["annotations"]["muster.dev/change-reason"] == "all saved"
        refused = await theirs.run("uninstall", "--yes")
        assert refused.code == 1
        assert "muster still runs here" in refused.err
        assert (await up.stop()).code == 0
    foreign = {
        "apiVersion": api.QUEUES.api_version,
        "kind": "Queue",
        "metadata": {"name": "mine", "namespace": "kube-queue"},
        "spec": {"queuePolicy": "Round"},
    }
    theirs.create(api.QUEUES, foreign)
    for name, annotations in (("ours", {"muster.dev/made-for": "labels"}), ("theirs", {})):
        meta = {"name": name, "namespace": "video", "annotations": annotations}
        group = {"apiVersion": api.POD_GROUPS[0].api_version, "kind": "PodGroup", "metadata": meta}
        theirs.create(api.POD_GROUPS[0], {**group, "spec": {"minMember": 2}})
    would = (await theirs.run("uninstall")).ok()
    assert "Would remove 2 QueueUnits, " in would.out
    assert would.lines[would.lines.index("  RayJob video/two") - 1].startswith("1 job waiting")
    assert len(theirs.names(api.QUEUE_UNITS)) == 2
    before = [theirs.marks(name) for name in ("one", "two")]
    done = (await theirs.run("uninstall", "--yes")).ok()
    assert "Removed 2 QueueUnits, " in done.out
    assert " and 1 PodGroup" in done.out
    assert theirs.names(api.POD_GROUPS[0]) == ["video/theirs"]
    assert theirs.names(api.QUEUE_UNITS) == []
    assert theirs.names(api.QUEUES) == ["kube-queue/mine"]
    assert theirs.names(api.RAYJOBS) == ["video/one", "video/two"]
    assert [theirs.marks(name) for name in ("one", "two")] == before


async def test_resuming_evictions_enables_what_was_off_because_of_foreign_work(theirs: Theirs) -> None:
    theirs.create(api.RAYJOBS, rayjob("early", runtime=LONG, suspend=False))
    async with theirs.cli.start("up", "--headless", "--act", *theirs.context) as up:
        await up.line(said("adopted", "early"))
        missing = await theirs.run("hold", "video/nobody", "--reason", "x")
        assert missing.code == 3
        assert "there is no job video/nobody now" in missing.err
        resumed = (await theirs.run("resume", "evictions")).ok()
        assert "Reclaim is enabled" in resumed.out
        tree = theirs.cluster.server.objects.get(api.QUOTA_TREES, "kube-system", "elasticquotatree")
        marks = tree["metadata"]["annotations"]
        assert (marks["muster.dev/reclaim"], *sorted(marks)) == (
            "enabled",
            "muster.dev/changed-by",
            "muster.dev/reclaim",
        )
        assert "nothing to change" in (await theirs.run("resume", "evictions")).ok().out
        assert (await up.stop()).code == 0
