"""Row C28 of the conformance table on a real API server: runtime quota by weight, published figures in whole GPUs."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from kit import facts
from kit.cluster import RAY, TREES, Cluster
from kit.controlplane import ControlPlane
from kit.kubeclient import Object
from kit.muster import Muster
from kit.story import quota_tree, rayjob
from muster.events.decisions import QuotaDenied, WorkloadQueued

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
GPU = "nvidia.com/gpu"
FIVE = 5


class Team(NamedTuple):
    """``asks`` GPUs in jobs of five, with a min and a weight; it may use ``runtime``."""

    namespace: str
    asks: int
    least: int
    weight: int
    runtime: int


A, B = Team("video", 5, 10, 40, 5), Team("text", 20, 15, 60, 20)
VECTORS = {
    "by weight": (A, B, Team("devops", 40, 20, 50, 35), Team("other", 70, 15, 80, 40)),
    "weight zero gets its min": (A, B, Team("devops", 40, 20, 50, 40), Team("other", 70, 15, 0, 15)),
    "and what it is guaranteed": (A, B, Team("devops", 40, 20, 50, 30), Team("other", 70, 45, 0, 45)),
}


def the_tree(teams: tuple[Team, ...], **rules: str) -> Object:
    """100 GPUs, shared by weight."""
    leaves = tuple(
        facts.node(each.namespace, {"gpu": each.least}, {"gpu": 100}, (each.namespace,), weight=str(each.weight))
        for each in teams
    )
    tree = quota_tree(facts.node("root", {"gpu": 100}, {"gpu": 100}, children=leaves))
    annotations = {"runtime": "weight", **rules}
    tree["metadata"]["annotations"] = {f"muster.dev/{name}": text for name, text in annotations.items()}
    return tree


def gpu_job(name: str, namespace: str) -> Object:
    """A RayJob of one pod of five GPUs that runs for ever."""
    job = rayjob(name, namespace, cpu="1", memory="1G", replicas=0, runtime="99h")
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]
    for amounts in head.values():
        amounts[GPU] = str(FIVE)
    return job


@pytest_asyncio.fixture
async def cluster(muster_plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with Cluster(muster_plane, ready_ms=100) as cluster:
        yield cluster


async def gpus(cluster: Cluster) -> Counter[str]:
    """What is told to run, in GPUs per namespace."""
    jobs = await cluster.kube.list_objects(RAY, "RayJob")
    return Counter({
        name: FIVE * count
        for name, count in Counter(
            job["metadata"]["namespace"] for job in jobs if not job["spec"]["suspend"]
        ).items()
    })  # fmt: skip


async def shown_runtime(cluster: Cluster) -> dict[str, str]:
    tree: dict[str, Any] = await cluster.kube.get(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system")
    children = tree.get("status", {}).get("root", {}).get("children", ())
    return {child["name"]: child["runtime"][GPU] for child in children}


@pytest.mark.parametrize("case", VECTORS)
async def test_c28_what_is_above_the_mins_goes_by_weight(cluster: Cluster, muster_up: Muster, case: str) -> None:
    teams = VECTORS[case]
    await cluster.kube.create(the_tree(teams, paused="admissions"))
    jobs = [(f"{each.namespace}-{n:02}", each.namespace) for each in teams for n in range(each.asks // FIVE)]
    for name, namespace in jobs:
        await cluster.submit(gpu_job(name, namespace))

    async def all_wait() -> bool:
        return len(await muster_up.happened(WorkloadQueued)) == len(jobs)

    await cluster.until(all_wait, 60.0, "all jobs to wait")
    resume = {"metadata": {"annotations": {"muster.dev/paused": None}}}
    await cluster.kube.patch(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system", patch=resume)
    wanted = Counter({each.namespace: each.runtime for each in teams})

    async def divided() -> bool:
        return await gpus(cluster) == wanted

    await cluster.until(divided, 60.0, f"{dict(wanted)} GPUs to be in use")

    async def shown() -> bool:
        return await shown_runtime(cluster) == {each.namespace: str(each.runtime) for each in teams}

    await cluster.until(shown, what="the tree's status to say what each may use")
    last = teams[-1]
    held_up = f"{last.namespace}-{last.asks // FIVE - 1:02}"
    expected = (
        f"Insufficient runtime quota({GPU}) in quota root/{last.namespace}: request 5, runtime {last.runtime}, "
        f"used {last.runtime}."
    )

    async def told() -> bool:
        return (await cluster.message(held_up, last.namespace)).startswith(expected)

    await cluster.until(told, what=f"{held_up} to be told of the runtime")
    assert all(event.short and event.short.of_runtime for event in await muster_up.happened(QuotaDenied))

    # Others ask for less: what they leave is divided anew, and whoever was parked on it follows.
    for name, namespace in jobs:
        if namespace in ("text", "devops"):
            await cluster.delete_job(name, namespace)
    left = Counter({"video": 5, last.namespace: last.asks if last.weight else last.runtime})

    async def followed() -> bool:
        return await gpus(cluster) == left

    await cluster.until(followed, 60.0, f"{dict(left)} GPUs to be in use")
