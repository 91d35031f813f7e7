"""Rows C9 to C15 of the conformance table, one test each, on a real API server: borrowing, reclaim, order, policies."""

from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio

from kit import facts
from kit.cluster import RAY, SCHEDULING, TREES, Cluster
from kit.controlplane import ControlPlane
from kit.folded import folded
from kit.kubeclient import Object
from kit.muster import Muster
from kit.story import rayjob
from kit.witness import Witness
from muster.core.actuation.intents import Actuator
from muster.core.cell.deciders import DECIDERS
from muster.core.queueing.sorter import QueueSorter
from muster.core.stage import Folder, Stage
from muster.events.decisions import (
    EvictionOrdered,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    SuspensionOrdered,
    WorkloadQueued,
)
from muster.events.facts import QueueObserved, TreeNodeSpec
from muster.model.keys import Ref

LEAVES = ("video", "text", "intern-text", "intern-video")
FOR_EVER = "99h"


@pytest_asyncio.fixture
async def cluster(muster_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """RayClusters are ready after ``request.param`` ms, or soon."""
    async with Cluster(muster_plane, ready_ms=getattr(request, "param", 200)) as cluster:
        yield cluster


def small(name: str, namespace: str, cpu: str = "5", **options: object) -> Object:
    """A RayJob of one pod that runs for ever, unless said."""
    options = {"runtime": FOR_EVER, "replicas": 0, "memory": "1G", **options}
    return rayjob(name, namespace, cpu=cpu, **options)  # type: ignore[arg-type]


async def admitted(cluster: Cluster) -> Counter[str]:
    """How many RayJobs are told to run, per namespace."""
    jobs = await cluster.kube.list_objects(RAY, "RayJob")
    return Counter(job["metadata"]["namespace"] for job in jobs if not job["spec"]["suspend"])


async def names_admitted(cluster: Cluster) -> set[str]:
    jobs = await cluster.kube.list_objects(RAY, "RayJob")
    return {job["metadata"]["name"] for job in jobs if not job["spec"]["suspend"]}


async def rule(cluster: Cluster, **rules: str) -> None:
    """Annotate the tree: ``min_run="5m"`` is ``muster.dev/min-run: 5m``."""
    annotations = {f"muster.dev/{name.replace('_', '-')}": text for name, text in rules.items()}
    await cluster.kube.patch(
        TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system", patch={"metadata": {"annotations": annotations}}
    )


async def at_rest(cluster: Cluster, muster: Muster) -> None:
    """Nothing is decided, carried out or held any more: the log says so, folded by the stages themselves."""

    async def nothing_due() -> bool:
        stages: list[Stage[Any]] = [*(make() for make in DECIDERS.values()), Actuator()]
        states = [stage.initial() for stage in stages]
        folders = [Folder(stage) for stage in stages]
        for stored in await muster.commits():
            for folder, state in zip(folders, states, strict=True):
                folder.fold(state, stored)
        held = any(getattr(getattr(state, "ledger", None), "claim", None) for state in states)
        due = any(stage.decide(state) for stage, state in zip(stages, states, strict=True))
        return not held and not due and not states[-1].outstanding

    await cluster.until(nothing_due, what="the log to come to rest")


def four_teams() -> TreeNodeSpec:
    """Root 40 cpu; a and b of 20 to 40; in each two leaves of 10 to 20."""

    def leaf(name: str) -> TreeNodeSpec:
        return facts.node(name, {"cpu": 10}, {"cpu": 20}, (name,))

    a = facts.node("a", {"cpu": 20}, {"cpu": 40}, children=(leaf(LEAVES[0]), leaf(LEAVES[1])))
    b = facts.node("b", {"cpu": 20}, {"cpu": 40}, children=(leaf(LEAVES[2]), leaf(LEAVES[3])))
    return facts.node("root", {"cpu": 40}, {"cpu": 40}, children=(a, b))


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_c9_each_team_gets_its_guarantee_back(cluster: Cluster, muster_up: Muster) -> None:
    await cluster.apply_tree(four_teams())
    witness = Witness(cluster.transport, four_teams())
    await cluster.follow(witness.follow)
    # b is guaranteed 20: the third team has all of it, and the fourth team, owed at its own queue, takes back its 10.
    for namespace, expected in zip(LEAVES, ([4, 0, 0, 0], [4, 4, 0, 0], [2, 2, 4, 0], [2, 2, 2, 2]), strict=True):
        for index in range(5):
            await cluster.submit(small(f"{namespace}-{index}", namespace))

        async def as_expected(wanted: list[int] = expected) -> bool:
            counts = await admitted(cluster)
            return [counts[name] for name in LEAVES] == wanted

        await cluster.until(as_expected, 60.0, f"{expected}")
        await at_rest(cluster, muster_up)
        assert await as_expected(), "and it stays like this"
    await witness.follow.caught_up()
    assert not witness.over
    evicted = [victim.ref for event in await muster_up.happened(EvictionOrdered) for victim in event.victims]
    assert Counter(ref.namespace for ref in evicted) == Counter({"video": 2, "text": 2, "intern-text": 2})
    assert len({ref.uid for ref in evicted}) == 6, "nobody is evicted twice"
    rights = set[str]()
    for ref in evicted:

        async def told_so(ref: Ref = ref) -> dict[str, str] | None:
            told = dict(await cluster.told(ref.name, ref.namespace))
            waits = await cluster.phase(ref.name, ref.namespace) == "Enqueued"
            return told if waits and "Reclaimed" in told else None

        told = await cluster.until(told_so, what=f"{ref} to wait again, and to be told why") or {}
        rights.add(told["Reclaimed"].partition(" was within the min of ")[2].partition(",")[0])
        assert "position " in told["Reclaimed"]
    assert "its queue root/b/intern-video" in rights
    assert "quota root/b above its queue root/b/intern-text" in rights
    jobs = await cluster.kube.list_objects(RAY, "RayJob")
    assert len(jobs) == 20, "nothing is lost"


@pytest.mark.slow
async def test_c10_interns_give_first(cluster: Cluster, muster_up: Muster) -> None:
    """The document's story of the interns: they borrow, and give back when the team itself has work."""
    await cluster.apply_tree()
    others = [("text", "text", "8"), ("devops", "devops", "8"), ("infra", "infra-devops", "8")]
    for name, namespace, cpu in others:
        await cluster.submit(small(name, namespace, cpu))
    interns = [f"intern-{index}" for index in range(3)]
    for name in interns:
        await cluster.submit(small(name, "intern-video", "4"))
    firm = small("firm", "intern-video", "1")
    firm["metadata"]["labels"]["quota.scheduling.koordinator.sh/preemptible"] = "false"
    await cluster.submit(firm)

    async def borrowing() -> bool:
        return await names_admitted(cluster) == {"text", "devops", "infra", *interns}

    await cluster.until(borrowing, what="everybody but the non-preemptible intern to run")

    async def refused() -> bool:
        message = await cluster.message("firm", "intern-video")
        return message.startswith("Exceeds min quota(cpu) in quota root/algorithm/intern-video: request 1, min 0")

    await cluster.until(refused, what="the non-preemptible intern to be told")
    await cluster.submit(small("video", "video", "12"))
    await cluster.until(lambda: cluster.running("video"), what="the team's own job to run")
    left = await names_admitted(cluster)
    assert {"text", "devops", "infra", "video"} <= left, "whoever is within its min is not touched"
    assert len(left & set(interns)) == 1, "two of three interns were enough"
    gone = sorted(set(interns) - left)
    for name in gone:

        async def waits_again(name: str = name) -> bool:
            suspended = await cluster.state(name, "intern-video") == "Suspended"
            return suspended and await cluster.phase(name, "intern-video") == "Enqueued"

        await cluster.until(waits_again, what=f"{name} to wait again")
    assert "firm" not in left


async def line_of(cluster: Cluster, path: str) -> list[str]:
    """Names of the QueueUnits in the Queue's own list, in order."""
    shown = await cluster.line(path)
    items = sorted([*shown.get("active", ()), *shown.get("backoff", ())], key=lambda item: item["position"])
    return [item["name"].removesuffix("-ray-qu") for item in items]


async def test_c11_jumping_the_queue(cluster: Cluster, muster_up: Muster) -> None:
    await cluster.apply_tree()
    await cluster.kube.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "fifty"}, "value": 50}
    )
    try:
        await cluster.submit(small("runs", "video", "12"))
        await cluster.until(lambda: cluster.running("runs"), what="the first job")
        for name in "abc":
            await cluster.submit(small(name, "video", "12"))

            # Its unit is not written again then, and what is written into it below stays.
            async def enqueued(name: str = name) -> bool:
                return "Insufficient quota" in await cluster.message(name)

            await cluster.until(enqueued, what=f"{name} to wait")
        await cluster.kube.patch(SCHEDULING, "QueueUnit", "c-ray-qu", "video", patch={"spec": {"priority": 100}})
        await cluster.submit(small("d", "video", "12", priority_class="fifty"))

        async def in_order() -> bool:
            return await line_of(cluster, "root/algorithm/video") == ["c", "d", "a", "b"]

        await cluster.until(in_order, what="C, D, A, B in the Queue")
        await cluster.kube.patch(SCHEDULING, "QueueUnit", "runs-ray-qu", "video", patch={"spec": {"priority": -5}})
        order = ["runs"]
        for expected in ("c", "d", "a", "b"):
            # Of one that is deleted before its RayCluster is seen nobody knows that it holds nothing: not for a minute.
            await cluster.until(lambda name=order[-1]: cluster.running(name), what=f"{order[-1]} to run")
            await cluster.delete_job(order[-1])

            async def next_runs(before: str = order[-1]) -> set[str]:
                return await names_admitted(cluster) - {before}

            order += await cluster.until(next_runs, 60.0, f"{expected} to run")
        assert order == ["runs", "c", "d", "a", "b"]
    finally:
        await cluster.kube.delete("scheduling.k8s.io/v1", "PriorityClass", "fifty")


@pytest.mark.parametrize(("policy", "overtakes"), [("Round", True), ("Priority", True), ("Block", False)])
async def test_c12_policies(cluster: Cluster, muster_up: Muster, policy: str, overtakes: bool) -> None:
    await cluster.apply_tree()
    path = "root/algorithm/video"

    async def queue() -> Object | None:
        return (await cluster.queues()).get(path)

    found = await cluster.until(queue, what="the Queue of video")
    assert found is not None
    await cluster.kube.patch(
        SCHEDULING, "Queue", found["metadata"]["name"], "kube-queue", patch={"spec": {"queuePolicy": policy}}
    )

    async def known() -> bool:
        return [each.policy for each in await muster_up.happened(QueueObserved) if each.path == path][-1:] == [policy]

    await cluster.until(known, what=f"the policy {policy} to be known")
    await cluster.submit(small("runs", "video", "8"))
    await cluster.until(lambda: cluster.running("runs"), what="the first job")
    await cluster.submit(small("big", "video", "12"))

    async def waits() -> bool:
        return "Insufficient quota" in await cluster.message("big")

    await cluster.until(waits, what="the head to be refused")
    await cluster.submit(small("fits", "video", "2"))
    if overtakes:
        await cluster.until(lambda: cluster.running("fits"), what="the second to overtake")
        return
    await cluster.submit(small("elsewhere", "text", "2"))
    await cluster.until(lambda: cluster.running("elsewhere", "text"), what="the other quota to go on")
    await at_rest(cluster, muster_up)
    assert await names_admitted(cluster) == {"runs", "elsewhere"}
    await cluster.delete_job("big")
    await cluster.until(lambda: cluster.running("fits"), what="the second, once the head is deleted")


async def test_c13_so_many_jobs_and_no_more(cluster: Cluster, muster_up: Muster) -> None:
    leaf = facts.node("video", {}, {"cpu": 10, "kube-queue/max-jobs": 1}, ("video",))
    await cluster.apply_tree(facts.node("root", {"cpu": 10}, {"cpu": 10}, children=(leaf,)))
    await cluster.submit(small("one", "video", "1"))
    await cluster.until(lambda: cluster.running("one"), what="the first job")
    await cluster.submit(small("two", "video", "1"))

    async def told() -> bool:
        return "Insufficient quota" in await cluster.message("two")

    await cluster.until(told, what="the second to be told")
    assert await cluster.message("two") == (
        "Insufficient quota(kube-queue/max-jobs) in quota root/video: request 1, max 1, used 1. "
        "Wait for running jobs to complete; position 1 in queue root/video"
    )

    async def counted() -> bool:
        return (await cluster.tree_used()).get("root/video", {}).get("kube-queue/max-jobs") == "1"

    await cluster.until(counted, what="the tree's status to count it")
    await cluster.delete_job("one")
    await cluster.until(lambda: cluster.running("two"), what="the second job")


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_c14_visible_backoff_where_a_queue_asks_for_it(cluster: Cluster, muster_up: Muster) -> None:
    await cluster.apply_tree()

    async def queue() -> Object | None:
        return (await cluster.queues()).get("root/algorithm/video")

    found = await cluster.until(queue, what="the Queue of video")
    assert found is not None
    args = {"kube-queue/queue-args": "--podInitialBackoffSeconds=1 --podMaxBackoffSeconds=4"}
    await cluster.kube.patch(
        SCHEDULING, "Queue", found["metadata"]["name"], "kube-queue", patch={"metadata": {"annotations": args}}
    )

    async def known() -> bool:
        return any(each.backoff_ms == (1000, 4000) for each in await muster_up.happened(QueueObserved))

    await cluster.until(known, what="the pauses to be known")
    await cluster.submit(small("runs", "video", "12"))
    await cluster.until(lambda: cluster.running("runs"), what="the first job")
    await cluster.submit(small("waits", "video", "12"))

    async def tried() -> bool:
        return len(await muster_up.happened(QuotaDenied, "waits")) >= 4

    await cluster.until(tried, 90.0, "four tries")
    tries: list[int] = []
    times: list[int] = []
    pauses: list[int] = []
    for event, state in folded(QueueSorter(), await muster_up.commits()):
        if isinstance(event, QuotaDenied) and event.ref.name == "waits":
            [retry] = state.queues.retries.values()
            tries.append(event.tries)
            times.append(state.now)
            pauses.append(retry.at - state.now)
    assert tries[:4] == [1, 2, 3, 4]
    assert pauses[:4] == [1000, 2000, 4000, 4000], "when it is due again"
    gaps = [after - before for before, after in pairwise(times[:4])]
    assert all(gap >= pause for gap, pause in zip(gaps, pauses[:3], strict=True)), "and no sooner it is tried"
    assert (await cluster.tree_used())["root/algorithm/video"]["cpu"] == "12", "the quota is what it was"


@pytest.mark.parametrize("cluster", [10**9], indirect=True)
async def test_c15_a_job_that_never_runs_gives_its_quota_back(cluster: Cluster, muster_up: Muster) -> None:
    await cluster.apply_tree()
    # Each lasts long enough to be looked at.
    await rule(cluster, running_timeout="4s", backoff="4s")

    async def known() -> bool:
        return any(event.tree.rules.backoff_ms == 4_000 for event in await muster_up.happened(QuotaTreeAccepted))

    await cluster.until(known, what="the rules to be known")
    await cluster.submit(small("stuck", "video", "12"))
    for wanted in ("Dequeued", "TimeoutBackoff"):

        async def reached(wanted: str = wanted) -> bool:
            return await cluster.phase("stuck") == wanted

        await cluster.until(reached, 60.0, f"it to be {wanted}")

    async def went_round() -> bool:
        return len(await muster_up.happened(QuotaReserved)) >= 2

    await cluster.until(went_round, 60.0, "it to be tried a second time")
    happened = (WorkloadQueued, QuotaReserved, SuspensionOrdered, QuotaReleased)
    events = [event for stored in await muster_up.commits() for event in stored.commit.events]
    course = [event for event in events if isinstance(event, happened)]
    again = [WorkloadQueued, QuotaReserved]
    assert [type(event) for event in course][:6] == [*again, SuspensionOrdered, QuotaReleased, *again]
    assert [event.reason for event in course[2:4]] == ["running_timeout", "timed_out"]  # type: ignore[union-attr]
    told = dict(await cluster.told("stuck"))
    assert "did not start in time" in told["RunningTimeout"]
