"""How many requests Muster makes for a job, by class: on a real API server, over 40 jobs that come, wait, run and end.

The decision path is what lets jobs run; presentation is what users look at. Queues and the tree's status are kept for
the cell as a whole, at most once in a while each; lists and watches are made once, whatever the number of jobs.
"""

import time
from pathlib import Path

import pytest

from kit import facts
from kit.cluster import Cluster
from kit.counting import Counting
from kit.muster import Muster, running
from kit.story import quota_tree, rayjob
from kit.witness import Witness
from muster.bus.server import EmbeddedServer
from muster.core.reading.watched import required_of
from muster.core.workloads.registry import KINDS
from muster.events.decisions import QuotaReleased, WorkloadQueued
from muster.events.facts import TreeNodeSpec
from muster.model.api import LIMIT_RANGES, NATIVE_POD_GROUPS, RUNTIME_CLASSES
from muster.runtime.clusterlease import RENEW_S
from muster.runtime.presenting.presenter import AGAIN_S

pytestmark = pytest.mark.slow

JOBS = 40
AT_ONCE = 10
TEAMS = ("video", "text", "devops")
BLOCKER = "video/blocker"


def tree() -> TreeNodeSpec:
    """Three queues, ten small jobs at once; one job can have it all."""
    most = {"cpu": 2 * AT_ONCE}
    return facts.node("root", most, most, children=tuple(facts.node(team, {}, most, (team,)) for team in TEAMS))


async def wait_behind_one(cluster: Cluster, muster: Muster) -> list[str]:
    """One job has the whole quota; the others are queued behind it. Returns the others."""
    await cluster.kube.create(quota_tree(tree()))
    await cluster.submit(rayjob("blocker", "video", cpu=str(AT_ONCE), memory="1G", replicas=1, runtime="1h"))
    await cluster.until(lambda: cluster.running("blocker"), 60.0, "the first job to run")
    names = []
    for index in range(JOBS):
        team = TEAMS[index % 3]
        job = rayjob(f"job-{index}", team, cpu="1", memory="1G", replicas=1, runtime="2s", ttl_s=1)
        names.append(f"{team}/{await cluster.submit(job)}")

    async def all_queued() -> bool:
        return len(await muster.happened(WorkloadQueued)) == JOBS + 1

    await cluster.until(all_queued, 60.0, "every job to be queued")
    return names


async def life_of_all(cluster: Cluster, muster: Muster) -> None:
    await cluster.delete_job("blocker")

    async def all_released() -> bool:
        return len(await muster.happened(QuotaReleased)) == JOBS + 1

    await cluster.until(all_released, 120.0, "every job to be over")


def resumed(counted: Counting) -> dict[str, int]:
    """Patches that let a job run. The operator writes defaults into the one that comes to free quota at about the time
    at which that is decided: this patch may be refused once, and is made again for the job as it is then.
    """
    assert counted.fenced.total() <= 1, counted.fenced
    assert counted.fenced.keys() <= {BLOCKER}, counted.fenced
    return dict(counted.decision - counted.fenced)


async def test_requests_in_profile_kube_queue(cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    counted = Counting(cluster.transport)
    witness = Witness(cluster.transport, tree())
    await cluster.follow(witness.follow)
    began = time.monotonic()
    async with running(cluster, nats_server.url, tmp_path, wrap=lambda _: counted) as muster:
        names = await wait_behind_one(cluster, muster)

        async def all_shown() -> bool:
            return all([await cluster.phase(name, team) for team, _, name in (job.partition("/") for job in names)])

        await cluster.until(all_shown, 60.0, "every waiting job to be shown")
        waiting = {name: counted.shown[name] - counted.passing[name] for name in names}
        assert set(counted.decision) == {BLOCKER}, "nothing is written to decide that a job waits"
        assert sum(waiting.values()) <= 3 * JOBS, waiting

        await life_of_all(cluster, muster)
        lasted_s = time.monotonic() - began
        finished = {name: counted.shown[name] - counted.passing[name] for name in names}
    assert resumed(counted) == dict.fromkeys([BLOCKER, *names], 1), "one patch lets a job run"
    # When it comes to wait for something else, that is an Event and a change of its QueueUnit.
    changes = sum(max(0, counted.told[name] - 1) for name in names)
    assert sum(finished.values()) <= 6 * JOBS + 2 * changes, sorted(finished.items(), key=lambda each: -each[1])
    # Who is looked at between two stages is shown there only where nothing else is shown yet, or where it lasts.
    assert counted.passing.total() <= JOBS, counted.passing
    for request, times in counted.kept.items():
        assert times <= 2 + lasted_s / min(AGAIN_S["queue"], AGAIN_S["tree"]), f"{request}: {times} times"
    await witness.clean(BLOCKER, *names)


async def test_requests_in_profile_lean(cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    counted, began = Counting(cluster.transport), time.monotonic()
    async with running(cluster, nats_server.url, tmp_path, profile="lean", wrap=lambda _: counted) as muster:
        names = await wait_behind_one(cluster, muster)
        await life_of_all(cluster, muster)
        read = muster.requests
    assert resumed(counted) == dict.fromkeys([BLOCKER, *names], 1)
    assert (counted.shown, counted.kept) == ({}, {})
    renewals = 2 + (time.monotonic() - began) / RENEW_S
    assert counted.leased["update leases.coordination.k8s.io"] <= renewals, counted.leased
    assert max(read.values()) < JOBS // 4, f"read once, not once for a job: {read}"
    beside = (LIMIT_RANGES, RUNTIME_CLASSES)
    lists = 2 * len((*required_of(KINDS), *beside)) + len(NATIVE_POD_GROUPS)
    assert read.total() <= lists, f"a list and a watch of everything that is read, and which version is served: {read}"
