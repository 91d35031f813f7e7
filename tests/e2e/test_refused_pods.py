"""Admitted, and the cluster refuses the pods: the real Job controller says who refused, and so does Muster, at once.

The refusals are of the real API server: the ResourceQuota of the namespace, a PriorityClass that is not there, a
LimitRange, a policy of others. One job has no pod, one has lost its pod, one has only a part of its pods.
"""

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest_asyncio

from kit import facts, jobs
from kit.cluster import RUN_FOR, SCHEDULING, TREES, Cluster
from kit.controlplane import ControlPlane
from kit.kubeclient import Object
from kit.muster import Muster, running
from muster.bus.server import EmbeddedServer
from muster.core.workloads.registry import KINDS
from muster.events.decisions import QuotaReleased, QuotaReserved, SuspensionOrdered

LIMIT_S, SLACK_S = 24, 8
NAMED, POLICY = "policy-of-others", "admissionregistration.k8s.io/v1"
QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"requests.cpu": "2"}}}
RANGE = {"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": [{"type": "Container", "max": {"cpu": "3"}}]}}
RULES: Object = {
    "matchConstraints": {
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "objectSelector": {"matchLabels": {"team": "none"}},
    },
    "validations": [{"expression": "false", "message": "every pod names its team"}],
}
BOUND = {"policyName": NAMED, "validationActions": ["Deny"]}
REFUSERS = {
    "denied": "exceeded quota: of-the-namespace",
    "typo": "no PriorityClass with name hihg was found",
    "limited": "less than or equal to cpu limit of 3",
    "teamless": "every pod names its team",
    "lost": "exceeded quota: of-the-namespace",
    "half": "exceeded quota: of-the-namespace",
}


@pytest_asyncio.fixture
async def cluster(muster_plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with Cluster(muster_plane, pods=True) as cluster:
        kube, named = cluster.kube, {"metadata": {"name": "of-the-namespace", "namespace": "video"}}
        leaf = facts.node("video", {"cpu": 13}, {"cpu": 13}, ("video",))
        await cluster.apply_tree(facts.node("root", {"cpu": 13}, {"cpu": 13}, children=(leaf,)))
        rules = {"metadata": {"annotations": {"muster.dev/start-timeout": f"{LIMIT_S}s", "muster.dev/backoff": "2s"}}}
        await kube.patch(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system", patch=rules)
        made = [await kube.create(QUOTA | named), await kube.create(RANGE | named)]
        for kind, spec in (("ValidatingAdmissionPolicy", RULES), ("ValidatingAdmissionPolicyBinding", BOUND)):
            policy = {"apiVersion": POLICY, "kind": kind, "metadata": {"name": NAMED}, "spec": spec}
            made.append(await kube.create(policy))
        try:
            yield cluster
        finally:
            for each in made:
                version, kind, meta = each["apiVersion"], each["kind"], each["metadata"]
                if await kube.find(version, kind, meta["name"], meta.get("namespace", "")):
                    await kube.delete(version, kind, meta["name"], meta.get("namespace", ""))


async def test_who_refused_the_pods_is_told_and_the_jobs_come_back(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    kube, uids = cluster.kube, dict[str, str]()

    async def submit(name: str, cpu: str, parallelism: int = 1, labels: Object | None = None, **pod: object) -> None:
        job = jobs.job(name, cpu=cpu, parallelism=parallelism)
        job["spec"]["template"]["metadata"] = {"annotations": {RUN_FOR: "99h"}, "labels": labels or {}}
        job["spec"]["template"]["spec"] |= pod
        uids[name] = (await kube.create(job))["metadata"]["uid"]

    async def active(name: str) -> int:
        return int((await kube.get("batch/v1", "Job", name, "video")).get("status", {}).get("active") or 0)

    async def lacks(reason: str) -> list[str]:
        """Which jobs have no such Event with the words of the refuser."""
        told = {name: await cluster.events(uid) for name, uid in uids.items()}
        return [
            name
            for name, events in told.items()
            if not any(event["reason"] == reason and REFUSERS[name] in event["message"] for event in events)
        ]

    async def ended_in_time(muster: Muster) -> set[str]:
        """The jobs without a pod whose first charge ended soon after the stated time; all others have released too."""
        reserved: dict[str, int] = {}
        times: dict[str, int] = {}
        for stored in await muster.commits():
            for event in stored.commit.events:
                if isinstance(event, QuotaReserved):
                    reserved.setdefault(event.ref.name, stored.commit.at)
                elif isinstance(event, QuotaReleased):
                    times.setdefault(event.ref.name, stored.commit.at - reserved[event.ref.name])
        return {name for name, ms in times.items() if ms <= (LIMIT_S + SLACK_S) * 1000 and times.keys() == uids.keys()}

    async def run_whole() -> bool:
        return [await active(name) for name in ("denied", "lost", "half")] == [1, 1, 2]

    async with running(cluster, nats_server.url, tmp_path) as muster:
        await submit("lost", "1")
        await cluster.until(lambda: _is(active("lost"), 1), 20.0, "the first job to run")
        await submit("half", "1", parallelism=2)
        await submit("denied", "3")
        await submit("typo", "1", priorityClassName="hihg")
        await submit("limited", "4")
        await submit("teamless", "1", labels={"team": "none"})
        await cluster.until(lambda: _is(active("half"), 1), 20.0, "a part of the pods")
        tighter = {"spec": {"hard": {"requests.cpu": "1"}}}
        await kube.patch("v1", "ResourceQuota", "of-the-namespace", "video", patch=tighter)
        [pod] = await kube.list_objects("v1", "Pod", "video", labels="job-name=lost")
        await kube.delete("v1", "Pod", pod["metadata"]["name"], "video")
        units: dict[str, str] = {}

        async def shown() -> bool:
            for name in REFUSERS:
                unit = await kube.find(SCHEDULING, "QueueUnit", name + KINDS["Job"].unit_suffix, "video") or {}
                units[name] = str((unit.get("status") or {}).get("message"))
            silent = {name for name, words in REFUSERS.items() if words not in units[name]}
            return silent | {*await lacks("PodsRefused")} <= {
                "lost"
            }  # Its controller waits for ten seconds before it makes the next pod.

        try:
            await cluster.until(shown, LIMIT_S * 0.75, "the refusals to be told")
        except AssertionError:
            raise AssertionError((units, await lacks("PodsRefused"))) from None
        assert await muster.happened(SuspensionOrdered) == [], "told while they are charged"
        await cluster.until(lambda: _is(lacks("RunningTimeout"), []), 2.5 * LIMIT_S, "the suspensions to be told")
        await cluster.until(
            lambda: _at_least(ended_in_time(muster), uids.keys() - {"half", "lost"}), 20.0, "the quota to be free"
        )
        await kube.delete("v1", "ResourceQuota", "of-the-namespace", "video")
        await cluster.until(run_whole, 40.0, "the jobs to run once nothing refuses them")
        assert [each.ref.name for each in await muster.happened(QuotaReserved)].count("denied") >= 2


async def _at_least(asked: Awaitable[set[str]], wanted: set[str]) -> bool:
    return await asked >= wanted


async def _is(asked: Awaitable[object], wanted: object) -> bool:
    return await asked == wanted
