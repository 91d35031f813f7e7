"""What users do to their jobs that surprises a scheduler: on a real API server, seen from where users look."""

import asyncio
from typing import Any

from kit import facts
from kit.cluster import RAY, SCHEDULING, Cluster, document_job
from kit.kubeclient import ApiError, Object
from kit.muster import Muster
from kit.witness import Witness
from muster.events.decisions import (
    QuotaReleased,
    SuspensionRecorded,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)

VIDEO = "root/algorithm/video"


async def witnessed(cluster: Cluster) -> Witness:
    witness = Witness(cluster.transport, facts.t0())
    await cluster.follow(witness.follow)
    return witness


async def one_runs(cluster: Cluster, **options: Any) -> str:
    """The tree is there, and a job that fills its quota runs."""
    await cluster.apply_tree()
    name = await cluster.submit(document_job(**{"runtime": "60s", **options}))
    await cluster.until(lambda: cluster.running(name), what=f"{name} to run")
    return name


async def another_waits(cluster: Cluster, **options: Any) -> str:
    name = await cluster.submit(document_job(**{"runtime": "500ms", "ttl_s": 0, **options}))

    async def told() -> bool:
        return bool(await cluster.told(name)) and "Insufficient quota" in await cluster.message(name)

    await cluster.until(told, what=f"{name} to wait")
    return name


async def started_again(cluster: Cluster, witness: Witness, name: str) -> None:
    """Return once a job has been started a second time; that run ends soon."""
    await cluster.until(lambda: witness.started[f"video/{name}"] == 2, what=f"{name} to start again")
    await cluster.let_end(name)


async def used_cpu(cluster: Cluster, amount: str) -> None:
    """Return once the tree shows so much in use at the video leaf."""

    async def shown() -> bool:
        return (await cluster.tree_used()).get(VIDEO, {}).get("cpu") == amount

    await cluster.until(shown, what=f"{amount} cpu in use")


async def test_the_manifest_is_applied_again_after_admission(cluster: Cluster, muster_up: Muster) -> None:
    """Its `suspend: true` stops the job: told, freed, queued again and run again; not lost."""
    witness = await witnessed(cluster)
    name = await one_runs(cluster, ttl_s=0)
    await cluster.patch_job(name, {"spec": {"suspend": True}})
    await started_again(cluster, witness, name)
    await cluster.complete(name)
    await cluster.quiet()
    await witness.clean(f"video/{name}", times=2)
    [stopped] = await muster_up.happened(SuspensionRecorded, name)
    assert stopped.by, "who applied it is named"
    queued = await muster_up.happened(WorkloadQueued, name)
    assert [event.attempt for event in queued] == [1, 2]
    assert queued[0].queued_at == queued[1].queued_at, "it keeps its place"

    async def freed() -> list[str]:
        return [event.reason for event in await muster_up.happened(QuotaReleased, name)]

    await cluster.until(lambda: _equal(freed, ["suspended_outside", "finished"]), what="both releases")


async def _equal(asked: Any, wanted: Any) -> bool:
    return bool(await asked() == wanted)


async def test_the_object_is_replaced_after_admission_with_somebody_waiting(
    cluster: Cluster, muster_up: Muster
) -> None:
    """`kubectl replace` also takes our annotations away. Whoever waited follows, and both run one after the other."""
    witness = await witnessed(cluster)
    manifest = document_job(runtime="60s", ttl_s=0, name="replaced")
    await cluster.apply_tree()
    await cluster.submit(manifest)
    await cluster.until(lambda: cluster.running("replaced"))
    waiting = await another_waits(cluster)
    # KubeRay writes the status meanwhile: as a user would, until there is no conflict.
    await cluster.until(lambda: _replace(cluster, manifest), what="the replacement")
    await started_again(cluster, witness, "replaced")
    await cluster.complete("replaced", waiting)
    await cluster.quiet()
    await witness.follow.caught_up()
    assert witness.started == {"video/replaced": 2, f"video/{waiting}": 1}
    assert not witness.over
    assert witness.most == 1


async def _replace(cluster: Cluster, manifest: Object) -> bool:
    found = await cluster.job(manifest["metadata"]["name"])
    manifest["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
    manifest["metadata"]["finalizers"] = found["metadata"].get("finalizers", [])
    try:
        await cluster.kube.replace(manifest)
    except ApiError as err:
        assert err.status == 409
        return False
    return True


async def test_a_waiting_job_is_resumed_by_hand(cluster: Cluster, muster_up: Muster) -> None:
    """It runs over the limit; it is charged, so nobody else is let in until both are gone."""
    first = await one_runs(cluster, ttl_s=0)
    bypass = await another_waits(cluster, runtime="60s")
    third = await another_waits(cluster)
    await cluster.patch_job(bypass, {"spec": {"suspend": False}})
    await cluster.until(lambda: cluster.running(bypass), what="the bypassing job to run")
    await used_cpu(cluster, "24")
    assert (await cluster.job(third))["spec"]["suspend"] is True
    for name in (first, bypass):
        await cluster.let_end(name)
    await cluster.complete(bypass, third)
    left = await muster_up.happened(WorkloadDequeued, bypass)
    assert [event.reason for event in left] == ["started_outside"]
    adopted = await muster_up.happened(WorkloadAdopted, bypass)
    assert [event.reason for event in adopted] == ["bypassed"]
    await cluster.until(lambda: _phase(cluster, bypass, "Succeed"), what="the unit to be Succeed")


async def test_a_job_that_was_never_suspended_is_charged(cluster: Cluster, muster_up: Muster) -> None:
    await cluster.apply_tree()
    await cluster.until(lambda: cluster.queues())
    job = document_job(runtime="60s", ttl_s=0, name="eager")
    job["spec"]["suspend"] = False
    await cluster.submit(job)
    await cluster.until(lambda: cluster.running("eager"))
    waiting = await another_waits(cluster)
    assert "max 14, used 12" in await cluster.message(waiting)
    await cluster.let_end("eager")
    await cluster.complete("eager", waiting)
    assert await muster_up.happened(WorkloadAdopted, "eager")


async def test_the_spec_of_a_waiting_job_is_edited(cluster: Cluster, muster_up: Muster) -> None:
    """What is shown follows the edit; a smaller job fits beside the running one, at once, and nobody has to move."""
    await one_runs(cluster)
    large, edited = await another_waits(cluster), await another_waits(cluster)
    base = "/spec/rayClusterSpec"
    fewer = {"op": "replace", "path": f"{base}/workerGroupSpecs/0/replicas", "value": 1}
    await cluster.patch_job(edited, [fewer])

    async def shows(cpu: str, memory: str, message: str) -> bool:
        unit = await cluster.unit(edited) or {}
        asked = {"cpu": cpu, "memory": memory}
        return (unit["spec"]["resource"], unit["spec"]["podSet"][1]["count"]) == (asked, 1) and (
            message in unit["status"]["message"]
        )

    await cluster.until(lambda: shows("8", "8G", "request 8, max 14, used 12"), what="the unit to show the edit")
    one = {"requests": {"cpu": "1", "memory": "1G"}, "limits": {"cpu": "1", "memory": "1G"}}
    places = ("headGroupSpec/template", "workerGroupSpecs/0/template")
    smaller = [
        {"op": "replace", "path": f"{base}/{place}/spec/containers/0/resources", "value": one} for place in places
    ]
    await cluster.patch_job(edited, smaller)
    await cluster.complete(edited)
    await cluster.until(lambda: shows("2", "2G", ""), what="the unit to show the second edit")
    assert (await cluster.job(large))["spec"]["suspend"] is True


async def test_a_running_job_is_deleted(cluster: Cluster, muster_up: Muster) -> None:
    witness = await witnessed(cluster)
    running = await one_runs(cluster)
    waiting = await another_waits(cluster)
    await cluster.delete_job(running)
    await cluster.complete(waiting)
    await witness.clean(f"video/{running}", f"video/{waiting}")
    assert witness.most == 1


async def test_a_waiting_job_is_deleted_and_made_anew_under_its_name(cluster: Cluster, muster_up: Muster) -> None:
    """The QueueUnit is the new one's in the end, and the new one stands where it was made."""
    running = await one_runs(cluster)
    names = [await another_waits(cluster, name=name) for name in ("again", "between")]
    await cluster.delete_job("again")

    async def gone() -> bool:
        return await cluster.state("again") == "gone"

    await cluster.until(gone)
    await cluster.submit(document_job(runtime="500ms", ttl_s=0, name="again"))

    async def anew() -> bool:
        uid = (await cluster.job("again"))["metadata"]["uid"]
        unit = await cluster.unit("again")
        owned = unit is not None and [owner["uid"] for owner in unit["metadata"]["ownerReferences"]] == [uid]
        line = [item["name"] for item in (await cluster.line()).get("backoff", [])]
        return owned and line == ["between-ray-qu", "again-ray-qu"]

    await cluster.until(anew, what="the unit and the place of the new job")
    await cluster.delete_job(running)
    await cluster.complete(*names)


async def test_the_objects_muster_keeps_are_deleted(cluster: Cluster, muster_up: Muster) -> None:
    """They come back as they were, and nothing that runs or waits is disturbed."""
    running = await one_runs(cluster)
    waiting = await another_waits(cluster)
    await cluster.until(lambda: _in_line(cluster, waiting), what="the queue to show who waits")
    await cluster.until(lambda: _phase(cluster, running, "Running"), what="the unit to be Running")
    before = {name: await cluster.unit(name) for name in (running, waiting)}
    queue = (await cluster.queues())[VIDEO]["metadata"]
    for name in (running, waiting):
        await cluster.kube.delete(SCHEDULING, "QueueUnit", f"{name}-ray-qu", "video")
    await cluster.kube.delete(SCHEDULING, "Queue", queue["name"], "kube-queue")

    async def back() -> bool:
        found = (await cluster.queues()).get(VIDEO)
        units = [await cluster.unit(name) for name in before]
        anew = found is not None and found["metadata"]["uid"] != queue["uid"]
        return anew and all(unit is not None for unit in units) and await _in_line(cluster, waiting)

    await cluster.until(back, what="the deleted objects to be back")
    for name, was in before.items():
        unit = await cluster.unit(name)
        assert unit is not None
        assert was is not None
        assert unit["metadata"]["uid"] != was["metadata"]["uid"]
        assert (unit["spec"], unit["status"]["phase"]) == (was["spec"], was["status"]["phase"])
    assert (await cluster.queues())[VIDEO]["metadata"]["name"] == queue["name"]
    assert await cluster.running(running)
    assert not await muster_up.happened(QuotaReleased)


async def _in_line(cluster: Cluster, name: str) -> bool:
    return [item["name"] for item in (await cluster.line()).get("backoff", [])] == [f"{name}-ray-qu"]


async def test_the_raycluster_of_a_running_job_is_deleted(cluster: Cluster, muster_up: Muster) -> None:
    """KubeRay makes it anew: it stays the same admission, and the quota stays charged between the two."""
    witness = await witnessed(cluster)
    name = await one_runs(cluster, ttl_s=0)
    waiting = await another_waits(cluster)
    raycluster = (await cluster.job(name))["status"]["rayClusterName"]
    await cluster.kube.delete(RAY, "RayCluster", raycluster, "video")
    await started_again(cluster, witness, name)
    await cluster.complete(name, waiting)
    await cluster.quiet()
    await witness.follow.caught_up()
    assert witness.started == {f"video/{name}": 2, f"video/{waiting}": 1}
    assert not witness.over
    assert [event.attempt for event in await muster_up.happened(QuotaReleased, name)] == [1]


async def test_describe_says_why_and_where(cluster: Cluster, muster_up: Muster) -> None:
    """One Event per reason on the job itself: it names the quota, the numbers and the position."""
    first = await one_runs(cluster, ttl_s=0)
    waiting = [await another_waits(cluster) for _ in range(3)]
    for position, name in enumerate(waiting, start=1):
        told = await cluster.told(name)
        assert len(told) == 1
        reason, message = told[0]
        assert reason == "InsufficientQuota"
        assert "quota(cpu) in quota root/algorithm/video: request 12, max 14, used 12" in message
        assert f"position {position} of {position} in queue {VIDEO}" in message
    await cluster.let_end(first)
    await cluster.complete(*waiting)
    await asyncio.gather(*(cluster.until(lambda name=name: _phase(cluster, name, "Succeed")) for name in waiting))


async def _phase(cluster: Cluster, name: str, phase: str) -> bool:
    return await cluster.phase(name) == phase
