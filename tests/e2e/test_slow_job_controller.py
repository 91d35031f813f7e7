"""A Job that is evicted before the real job controller has acted on its resume: it is not stopped, and nothing of its
quota is released, until the controller has.
"""

from __future__ import annotations

from pathlib import Path

from kit import facts, jobs
from kit.cluster import RUN_FOR, SCHEDULING, Cluster
from kit.controlplane import ControlPlane
from kit.controlplane.plane import CONTROLLER_MANAGER
from kit.follow import Follow
from kit.kubeclient import Object, condition
from kit.muster import running
from kit.slowcontroller import BORROWER, LENDER, NodesJudge
from muster.bus.server import EmbeddedServer
from muster.events.decisions import EvictionOrdered, QuotaReleased, WorkloadAdopted
from muster.model import api


async def test_a_job_that_was_resumed_a_moment_ago_is_stopped_once_its_controller_has_seen_that(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with (
        Cluster(muster_plane, pods=True) as cluster,
        running(cluster, nats_server.url, tmp_path) as muster,
    ):
        versions: list[tuple[bool, str]] = []
        """(spec.suspend, status of condition Suspended) of each version of the victim"""

        def heard(_kind: str, job: Object) -> None:
            if job["metadata"]["name"] == "victim":
                versions.append((job["spec"]["suspend"], condition(job, "Suspended").get("status", "")))

        async def submit(name: str, namespace: str) -> None:
            job = jobs.job(name, namespace)
            job["spec"]["template"]["metadata"] = {"annotations": {RUN_FOR: "99h"}}
            await cluster.kube.create(job)

        async def ready(name: str, namespace: str) -> bool:
            status = (await cluster.kube.get("batch/v1", "Job", name, namespace)).get("status", {})
            return int(status.get("ready") or 0) == 2

        lender = facts.node(LENDER, {"cpu": 2}, {"cpu": 2}, (LENDER,))
        borrower = facts.node(BORROWER, {"cpu": 0}, {"cpu": 2}, (BORROWER,))
        whole = facts.node("root", {"cpu": 2}, {"cpu": 2}, children=(lender, borrower))
        await cluster.follow(Follow(cluster.transport, api.JOBS, heard, BORROWER))
        await submit("victim", BORROWER)
        await cluster.until(lambda: (True, "True") in versions, what="its controller to have seen it suspended")
        with muster_plane.frozen(CONTROLLER_MANAGER):
            judge = NodesJudge(await cluster.apply_tree(whole))
            await cluster.follow(Follow(cluster.transport, api.PODS, judge.heard))
            await cluster.until(lambda: (False, "True") in versions, what="it to be resumed")
            await submit("claimant", LENDER)

            async def ordered() -> bool:
                return bool(await muster.happened(EvictionOrdered))

            await cluster.until(ordered, what="its eviction to be ordered")

            async def told() -> bool:
                unit = await cluster.kube.find(SCHEDULING, "QueueUnit", "victim", BORROWER) or {}
                return "claimant" in unit.get("status", {}).get("message", "") or versions[-1][0]

            await cluster.until(told, what="its owner to be told that it leaves")
        await cluster.until(lambda: ready("claimant", LENDER), 60.0, "the claimant to run")
        resumed = versions.index((False, "True"))
        stopped = next(each for each in versions[resumed:] if each[0])
        assert stopped == (True, "False"), "it was stopped before its controller had acted on the resume"
        assert not judge.above
        released = await muster.happened(QuotaReleased)
        assert [(each.ref.name, each.reason) for each in released] == [("victim", "evicted")]
        assert not await muster.happened(WorkloadAdopted)
