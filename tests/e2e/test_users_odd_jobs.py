"""Jobs no queue can do anything with, or that somebody forbids to start: told on the object, and nobody else waits."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from kit.cluster import RAY, Cluster, document_job
from kit.folded import folded, waited_for
from kit.kubeclient import ApiError, Object
from kit.muster import Muster
from muster.core.queueing.sorter import QueueSorter
from muster.events.decisions import QuotaReleased, WorkloadQueued
from muster.events.effects import EffectFailed

ADMISSION = "admissionregistration.k8s.io/v1"
FORBIDDEN = "kit.muster.dev/forbidden"


def odd(change: Callable[[Object], Any], name: str) -> Object:
    job = document_job(name=name, runtime="60s")
    change(job["spec"])
    return job


def _selector(spec: Object) -> None:
    spec["clusterSelector"] = {"ray.io/cluster": "shared"}


def _keeps_cluster(spec: Object) -> None:
    spec["shutdownAfterJobFinishes"] = False
    del spec["ttlSecondsAfterFinished"]


def _no_cluster(spec: Object) -> None:
    del spec["rayClusterSpec"]


def _bad_quantity(spec: Object) -> None:
    container = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "four"}}


def _bad_containers(spec: Object) -> None:
    spec["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"] = "none"


ODD = {
    "selects": (_selector, "CannotSuspend", "spec.clusterSelector"),
    "keeps": (_keeps_cluster, "CannotSuspend", "spec.shutdownAfterJobFinishes"),
    "empty": (_no_cluster, "CannotSuspend", "spec.rayClusterSpec"),
    "quantity": (_bad_quantity, "Unreadable", "spec.rayClusterSpec.headGroupSpec.template.spec.containers[0]"),
    "containers": (_bad_containers, "Unreadable", "spec.rayClusterSpec.workerGroupSpecs"),
}


async def test_each_odd_job_is_told_once_and_the_good_ones_run(cluster: Cluster, muster_up: Muster) -> None:
    await cluster.apply_tree()
    # Some of them KubeRay fails by itself: where it is quicker than we are, nobody has to be told any more.
    async with cluster.without_kuberay():
        for name, (change, _, _) in ODD.items():
            await cluster.submit(odd(change, name))
        for name, (_, reason, field) in ODD.items():

            async def told(name: str = name) -> list[tuple[str, str]]:
                return await cluster.told(name)

            found = await cluster.until(told, what=f"an Event on {name}")
            assert [each for each, _ in found] == [reason], name
            assert field in found[0][1], name
            assert (await cluster.job(name))["spec"]["suspend"] is True
            assert await cluster.unit(name) is None
        # What KubeRay has found invalid once is over for it, whatever is changed then.
        await cluster.patch_job("keeps", {"spec": {"shutdownAfterJobFinishes": True}})
    await cluster.until(lambda: cluster.running("keeps"), what="the mended job to run")
    await cluster.let_end("keeps")
    good = await cluster.submit(document_job(runtime="500ms", ttl_s=0))
    await cluster.complete(good)

    async def released() -> bool:
        return bool(await muster_up.happened(QuotaReleased, good))

    await cluster.until(released, what="its quota to be free again")
    for name in ODD.keys() - {"keeps"}:
        assert (await cluster.job(name))["spec"]["suspend"] is True
        assert await cluster.unit(name) is None
    # One that had to wait gets an Event when it is admitted; the others do not.
    later = {name: [reason for reason, _ in await cluster.told(name) if reason != "Admitted"] for name in ODD}
    assert later == {name: [reason] for name, (_, reason, _) in ODD.items()}, "still one refusal each"


async def test_a_job_as_large_as_the_server_takes(cluster: Cluster, muster_up: Muster) -> None:
    """A megabyte of it is nothing we need: it is queued, shown and run like any other."""
    await cluster.apply_tree()
    job = document_job(runtime="1s", ttl_s=0, name="large", annotations={"kit.muster.dev/much": "x" * 200_000})
    job["spec"]["runtimeEnvYAML"] = "y" * 900_000
    await cluster.submit(job)
    await cluster.complete("large")
    unit = await cluster.until(lambda: cluster.unit("large"), what="the unit of the job")
    assert unit is not None
    assert len(json.dumps(unit)) < 3_000
    too_large = document_job(annotations={"kit.muster.dev/much": "x" * 1_000_000})
    with pytest.raises(ApiError, match="annotations: Too long"):
        await cluster.submit(too_large)


@pytest_asyncio.fixture
async def forbidding(cluster: Cluster) -> AsyncIterator[str]:
    """The name of a policy in force that lets nobody resume a RayJob with the label FORBIDDEN."""
    name = "nobody-resumes"
    rule = "object.spec.suspend || !oldObject.spec.suspend"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["ray.io"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["rayjobs"]}
            ],
            "objectSelector": {"matchLabels": {FORBIDDEN: "yes"}},
        },
        "validations": [{"expression": rule, "message": "not before the audit"}],
    }
    policy = {"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    binding = {
        "apiVersion": ADMISSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    await cluster.kube.create(policy)
    await cluster.kube.create(binding)
    probe = await cluster.submit(document_job("other", name="probe", labels={FORBIDDEN: "yes"}))

    async def denies() -> bool:
        return not await may_resume(cluster, probe, "other")

    await cluster.until(denies, what="the policy to be in force")
    yield name
    await drop(cluster, name)


async def may_resume(cluster: Cluster, name: str, namespace: str = "video") -> bool:
    """What the API server would say to a user who resumes a job."""
    try:
        await cluster.kube.request(
            "PATCH",
            f"/apis/{RAY}/namespaces/{namespace}/rayjobs/{name}",
            body={"spec": {"suspend": False}},
            params={"dryRun": "All"},
            content_type="application/merge-patch+json",
        )
    except ApiError as err:
        assert "not before the audit" in str(err)
        return False
    return True


async def drop(cluster: Cluster, name: str) -> None:
    for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
        if await cluster.kube.find(ADMISSION, kind, name):
            await cluster.kube.delete(ADMISSION, kind, name)


async def test_a_policy_forbids_to_resume_a_job(cluster: Cluster, forbidding: str, muster_up: Muster) -> None:
    """Its quota goes to the others; it is told the policy's words, tried again after a pause, and keeps its place."""
    await cluster.apply_tree()
    job = document_job(runtime="500ms", ttl_s=0, name="forbidden", labels={FORBIDDEN: "yes"})
    await cluster.submit(job)

    async def told() -> bool:
        found = await cluster.told("forbidden")
        words = all("not before the audit" in message for _, message in found)
        return {reason for reason, _ in found} == {"ResumeFailed"} and words

    await cluster.until(told, what="an Event with the policy's words")

    async def shown() -> bool:
        unit = await cluster.unit("forbidden")
        status = unit["status"] if unit is not None else {}
        return (status.get("phase"), status.get("admissions")) == ("TimeoutBackoff", []) and (
            "not before the audit" in status["message"]
        )

    await cluster.until(shown, 60.0, "the unit to say that it was refused, and rests")
    other = await cluster.submit(document_job(runtime="500ms", ttl_s=0))
    await cluster.complete(other)
    assert (await cluster.job("forbidden"))["spec"]["suspend"] is True
    waited = waited_for(await muster_up.commits(), "forbidden", EffectFailed, QuotaReleased)
    assert waited == [], "its quota is free during its pause, not at the end of it"
    await drop(cluster, forbidding)
    await cluster.until(lambda: may_resume(cluster, "forbidden"), what="the policy to be gone")
    await cluster.complete("forbidden")
    failed = await muster_up.happened(EffectFailed, "forbidden")
    queued: list[int] = []
    due: list[int] = []
    pauses: list[int] = []
    for event, state in folded(QueueSorter(), await muster_up.commits()):
        if isinstance(event, WorkloadQueued) and event.ref.name == "forbidden":
            queued.append(state.now)
        elif isinstance(event, QuotaReleased) and event.ref.name == "forbidden" and len(pauses) < len(failed):
            assert event.reason == "resume_failed"
            due.append(state.queues.not_before[event.ref.uid])
            pauses.append(due[-1] - state.now)
    assert pauses == [5_000 * 2**index for index in range(len(failed))]
    assert all(again >= rested for again, rested in zip(queued[1:], due, strict=True)), "no sooner, and once each"
