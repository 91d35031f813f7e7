"""Pods made are pods counted: JobSet, LeaderWorkerSet, Trainer and the Job controller judge what Muster charges.

After each act the charge of the team is what its pods ask for; where it is coarser, the test names the number. At no
moment do pods run for seconds beside the charges. Profile ``full``. The judge reads pods and the status of the tree,
and no code of Muster.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kit import facts, jobs
from kit.cluster import RUN_FOR, TREES, Cluster
from kit.controlplane import ControlPlane
from kit.muster import running
from kit.tenant import of_pod, quantity
from muster.bus.server import EmbeddedServer

pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="session")]

Object = dict[str, Any]
BESIDE_S, SETTLED_S = 15.0, 90.0
FAIL_AFTER = "kit.muster.dev/fail-after"
JOBSET, LWS = "jobset.x-k8s.io/v1alpha2", "leaderworkerset.x-k8s.io/v1"
TRAIN = "trainer.kubeflow.org/v1alpha1"


class Judge:
    """Compares the pods of the team with its charge."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.kube = cluster, cluster.kube
        self._beside = 0.0
        self.told = ""
        self.alive: frozenset[str] = frozenset()
        """The uids of the pods at the last look."""

    async def look(self) -> tuple[int, Decimal, Decimal]:
        """(pods that are not over, the cpu they ask for, the cpu that is charged)"""
        pods = [pod for pod in await self.kube.list_objects("v1", "Pod", "video") if _alive(pod)]
        self.alive = frozenset(pod["metadata"]["uid"] for pod in pods)
        asked = sum((of_pod(pod["spec"]).get("cpu", Decimal(0)) for pod in pods), Decimal(0))
        shown = (await self.cluster.tree_used()).get("root/video", {})
        charged = quantity(shown.get("cpu", 0))
        self.told = f"{len(pods)} pods ask for {asked} cpu, {charged} are charged"
        self._beside = (self._beside or time.monotonic()) if asked > charged else 0.0
        assert not self._beside or time.monotonic() - self._beside < BESIDE_S, f"beside the charges: {self.told}"
        return len(pods), asked, charged

    async def settles(
        self, pods: int, after: str, *, charged: int | None = None, anew: Collection[str] = frozenset()
    ) -> None:
        """So many pods of one cpu there are, and are charged; ``charged``: where the charge is known to be coarser.

        ``anew``: the uids of earlier pods, which all are gone: after a suspension there are as many as before, twice.
        """
        wanted = (pods, Decimal(pods), Decimal(pods if charged is None else charged))

        async def so() -> bool:
            return await self.look() == wanted and self.alive.isdisjoint(anew)

        try:
            await self.cluster.until(so, SETTLED_S, every_s=0.2)
        except AssertionError as err:
            raise AssertionError(f"after {after}, {pods} pods were to be made and charged: {self.told}") from err

    async def mark(
        self, selector: str, number: int | None = None, uids: Collection[str] = frozenset(), **marks: str
    ) -> None:
        """Annotate pods, of ``uids`` where given: ``run_for`` lets them succeed, ``fail_after`` fail."""
        names = {"run_for": RUN_FOR, "fail_after": FAIL_AFTER}
        patch = {"metadata": {"annotations": {names[key]: text for key, text in marks.items()}}}
        found = [pod for pod in await self.kube.list_objects("v1", "Pod", "video", labels=selector) if _alive(pod)]
        found = [pod for pod in found if not uids or pod["metadata"]["uid"] in uids]
        assert found, selector
        for pod in found[:number]:
            await self.kube.patch("v1", "Pod", pod["metadata"]["name"], "video", patch=patch)


def _alive(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def lasting(made: Any) -> Any:
    """Each pod template runs for ever, until a test says otherwise."""
    if isinstance(made, dict):
        if "containers" in made.get("spec", {}):
            made.setdefault("metadata", {}).setdefault("annotations", {})[RUN_FOR] = "99h"
        for inner in made.values():
            lasting(inner)
    elif isinstance(made, list):
        for inner in made:
            lasting(inner)
    return made


@asynccontextmanager
async def judged(plane: ControlPlane, nats: EmbeddedServer, folder: Path) -> AsyncIterator[Judge]:
    async with Cluster(plane, pods=True, remains=(f"/apis/{LWS}/leaderworkersets",)) as cluster:
        leaf = facts.node("video", {"cpu": 20}, {"cpu": 20}, ("video",))
        await cluster.apply_tree(facts.node("root", {"cpu": 20}, {"cpu": 20}, children=(leaf,)))
        full = {"metadata": {"annotations": {"muster.dev/request-profile": "full"}}}
        await cluster.kube.patch(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system", patch=full)
        async with running(cluster, nats.url, folder):
            yield Judge(cluster)


async def test_jobsets(controlled: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """A driver, and two Jobs of two workers each."""
    async with judged(controlled, nats_server, tmp_path) as judge:
        kube = judge.kube
        made = lasting(jobs.jobset("set", replicas=2, failurePolicy={"maxRestarts": 1}))
        await kube.create(made)
        await judge.settles(5, "its admission")
        jobs_of = "jobset.sigs.k8s.io/replicatedjob-name"
        await judge.mark(f"{jobs_of}=driver", run_for="0s")
        await judge.settles(4, "the end of the driver")
        await judge.mark(f"{jobs_of}=workers,jobset.sigs.k8s.io/job-index=0", 1, run_for="0s")
        # What a Job in a JobSet has done counts once the Job is over: the JobSet tells no more.
        await judge.settles(3, "the end of one worker of a Job", charged=4)
        await judge.mark(f"{jobs_of}=workers,jobset.sigs.k8s.io/job-index=0", run_for="0s")
        await judge.settles(2, "the end of a Job of workers")
        await kube.patch(JOBSET, "JobSet", "set", "video", patch={"spec": {"suspend": True}})
        await judge.settles(2, "a suspension, and its next admission", anew=judge.alive)
        for pod in await kube.list_objects("v1", "Pod", "video"):
            if _alive(pod):
                await kube.request("DELETE", f"/api/v1/namespaces/video/pods/{pod['metadata']['name']}")
        await judge.settles(2, "the loss of its pods", anew=judge.alive)
        await judge.mark(f"{jobs_of}=workers", run_for="0s")
        await judge.settles(0, "its success")


async def test_jobsets_that_fail(controlled: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """A failed Job starts all of them again, once; then the JobSet has failed."""
    async with judged(controlled, nats_server, tmp_path) as judge:
        made = lasting(jobs.jobset("set", replicas=2, failurePolicy={"maxRestarts": 1}))
        for role in made["spec"]["replicatedJobs"]:
            role["template"]["spec"]["backoffLimit"] = 0
        await judge.kube.create(made)
        await judge.settles(5, "its admission")
        jobs_of = "jobset.sigs.k8s.io/replicatedjob-name"
        await judge.mark(f"{jobs_of}=driver", run_for="0s")
        await judge.settles(4, "the end of the driver")
        await judge.mark(f"{jobs_of}=workers", 1, fail_after="0s")
        await judge.settles(5, "a restart of everything", anew=judge.alive)
        await judge.mark(f"{jobs_of}=workers", 1, fail_after="0s")
        await judge.settles(0, "its failure")


async def test_leader_worker_sets(controlled: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """Groups of a leader and a worker: each pod is a job of its own."""
    async with judged(controlled, nats_server, tmp_path) as judge:
        pod = lasting({"t": jobs.template("1", schedulerName="muster")})["t"]
        template = {"size": 2, "leaderTemplate": pod, "workerTemplate": pod}
        meta = {"name": "leaders", "namespace": "video"}
        spec = {"replicas": 2, "leaderWorkerTemplate": template}
        await judge.kube.create({"apiVersion": LWS, "kind": "LeaderWorkerSet", "metadata": meta, "spec": spec})
        await judge.settles(4, "its pods are made")
        for replicas in (3, 1, 0):
            patch = {"spec": {"replicas": replicas}}
            await judge.kube.patch(LWS, "LeaderWorkerSet", "leaders", "video", patch=patch)
            await judge.settles(2 * replicas, f"{replicas} replicas")


async def test_train_jobs(controlled: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """Two nodes: through a JobSet and a Job."""
    async with judged(controlled, nats_server, tmp_path) as judge:
        kube = judge.kube
        await kube.create(jobs.trainjob("train", nodes=2))
        await judge.settles(2, "its admission")
        await kube.patch(TRAIN, "TrainJob", "train", "video", patch={"spec": {"suspend": True}})
        await judge.settles(2, "a suspension, and its next admission", anew=judge.alive)
        await judge.mark("jobset.sigs.k8s.io/jobset-name=train", 1, run_for="0s")
        # A TrainJob tells no more of its nodes than how many there are.
        await judge.settles(1, "the end of one node", charged=2)
        await judge.mark("jobset.sigs.k8s.io/jobset-name=train", run_for="0s")
        await judge.settles(0, "its success")


async def test_jobs(controlled: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """An elastic Job of four, and an indexed Job whose indexes fail by themselves."""
    async with judged(controlled, nats_server, tmp_path) as judge:
        kube = judge.kube

        async def change(**spec: object) -> None:
            await kube.patch("batch/v1", "Job", "j", "video", patch={"spec": spec})

        await kube.create(lasting(jobs.job("j", parallelism=4, completions=4, completionMode="Indexed")))
        await judge.settles(4, "its admission")
        await change(parallelism=1)
        await judge.settles(1, "a parallelism of one, while pods end")
        await change(parallelism=3)
        await judge.settles(3, "a parallelism of three")
        await judge.mark("batch.kubernetes.io/job-name=j", 2, run_for="0s")
        await judge.settles(2, "the end of two of four indexes")
        await change(suspend=True)
        await judge.settles(2, "a suspension in the middle, and its next admission", anew=judge.alive)
        await kube.request("DELETE", "/apis/batch/v1/namespaces/video/jobs/j",
                           params={"propagationPolicy": "Foreground"})  # fmt: skip
        await judge.settles(0, "its deletion")
        each: Object = {"backoffLimitPerIndex": 0, "maxFailedIndexes": 5, "completionMode": "Indexed"}
        await kube.create(lasting(jobs.job("k", parallelism=4, completions=6, **each)))
        await judge.settles(4, "the admission of a Job of six indexes")
        await judge.mark("batch.kubernetes.io/job-name=k", 3, fail_after="0s")
        await judge.settles(3, "three failed indexes, three are left")
        await judge.mark("batch.kubernetes.io/job-name=k", 1, run_for="0s")
        await judge.settles(2, "one more that succeeds")
        await judge.mark("batch.kubernetes.io/job-name=k", run_for="0s")
        await judge.settles(0, "its end")


async def test_jobs_that_fail(controlled: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """A Job that makes a failed pod again once, and one that is a success before all of its indexes are."""
    async with judged(controlled, nats_server, tmp_path) as judge:
        await judge.kube.create(lasting(jobs.job("j", parallelism=3, completions=5, backoffLimit=1)))
        await judge.settles(3, "its admission")
        await judge.mark("batch.kubernetes.io/job-name=j", 1, run_for="0s")
        await judge.settles(3, "the end of one of five: another follows")
        some = frozenset([min(judge.alive)])
        await judge.mark("batch.kubernetes.io/job-name=j", fail_after="0s", uids=some)
        await judge.settles(3, "a failure that is tried again", anew=some)
        await judge.mark("batch.kubernetes.io/job-name=j", 1, fail_after="0s")
        await judge.settles(0, "its failure")
        early: Object = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}, "completionMode": "Indexed"}
        await judge.kube.create(lasting(jobs.job("k", parallelism=3, completions=3, **early)))
        await judge.settles(3, "the admission of a Job of three indexes")
        await judge.mark("batch.kubernetes.io/job-completion-index=0", run_for="0s")
        await judge.settles(0, "the success of the index that counts")
