"""Gangs of bare pods on a real API server: bound together by us, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kit.cluster import NODES, Cluster, document_job
from kit.muster import running
from kit.nats import new_cell
from kit.podgangs import SIGS
from muster.bus.server import EmbeddedServer
from muster.events.decisions import WorkloadAdopted
from muster.events.effects import EffectApplied
from muster.events.gangs import GangHeldBack, PodsPlaced
from muster.ports import ApiResponse, ApiTransport, ApiUnreachableError

NAMESPACE = "video"


def member(name: str, gang: str = "tf-smoke", minimum: int = 3, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.invalid/none", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "labels": {f"{SIGS}/name": gang, f"{SIGS}/min-available": str(minimum)}},
        "spec": {
            "schedulerName": "muster",
            "containers": [container],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }


class Faulty:
    """A transport on whose bindings something goes wrong."""

    def __init__(self, inner: ApiTransport) -> None:
        self.inner = inner
        self.asked = 0
        self.faults: list[str] = []

    async def request(self, method: str, path: str, **rest: Any) -> ApiResponse:
        if not path.endswith("/binding"):
            return await self.inner.request(method, path, **rest)
        self.asked += 1
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "unreachable":
            raise ApiUnreachableError("no answer")
        if fault == "unavailable":
            return ApiResponse(503, b"{}")
        answer = await self.inner.request(method, path, **rest)
        if fault == "lost":
            raise ApiUnreachableError("the answer is lost")
        return answer

    def watch(self, path: str, **rest: Any) -> Any:
        return self.inner.watch(path, **rest)


async def create(cluster: Cluster, *pods: dict[str, Any]) -> None:
    for pod in pods:
        await cluster.kube.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body=pod)


async def test_three_pods_are_bound_together(cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    async with running(cluster, nats_server.url, tmp_path) as muster:
        await create(cluster, member("a"), member("b"))

        async def two_known() -> bool:
            return len(await cluster.nodes()) == 2

        await cluster.until(two_known, what="two pods")
        assert set((await cluster.nodes()).values()) == {""}
        await create(cluster, member("c"))

        async def bound() -> bool:
            return all((await cluster.nodes()).values())

        await cluster.until(bound, what="three pods to be bound")
        placed = await muster.happened(PodsPlaced)
        assert len(placed) == 1
        assert placed[0].gangs == (f"{NAMESPACE}/tf-smoke",)
        assert {each.ref.name: each.node for each in placed[0].pods} == await cluster.nodes()

        async def told() -> bool:
            return len([each for each in await muster.happened(EffectApplied) if each.action == "bind"]) == 3

        await cluster.until(told, what="three effects")


async def test_bindings_that_fail_on_the_way_are_made(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    faulty: list[Faulty] = []

    def wrap(inner: ApiTransport) -> ApiTransport:
        faulty.append(Faulty(inner))
        faulty[0].faults = ["unreachable", "lost", "unavailable", "lost", "unavailable"]
        return faulty[0]

    async with running(cluster, nats_server.url, tmp_path, wrap=wrap) as muster:
        await create(cluster, *(member(name) for name in ("a", "b", "c")))

        async def told() -> bool:
            return len([each for each in await muster.happened(EffectApplied) if each.action == "bind"]) == 3

        await cluster.until(told, what="three bindings")
        assert all((await cluster.nodes()).values())
        assert len(await muster.happened(PodsPlaced)) == 1
    assert faulty[0].asked > 5


async def test_a_decision_is_carried_out_by_whoever_comes_next(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Everything of ours ends after the decision, with one of three pods bound and no effect stored of it."""
    cell = new_cell()

    def wrap(inner: ApiTransport) -> ApiTransport:
        made = Faulty(inner)
        made.faults = ["lost", *["unreachable"] * 1000]
        return made

    async with running(cluster, nats_server.url, tmp_path, cell=cell, wrap=wrap, prove=False) as muster:
        await create(cluster, *(member(name) for name in ("a", "b", "c")))

        async def one_bound() -> bool:
            return len([node for node in (await cluster.nodes()).values() if node]) == 1

        await cluster.until(one_bound, what="one of three to be bound")
        decided = await muster.happened(PodsPlaced)
    async with running(cluster, nats_server.url, tmp_path, cell=cell) as muster:

        async def told() -> bool:
            return len({each.ref.name for each in await muster.happened(EffectApplied)}) == 3

        await cluster.until(told, what="three bindings")
        assert await muster.happened(PodsPlaced) == decided
        assert {each.ref.name: each.node for each in decided[0].pods} == await cluster.nodes()


async def test_room_that_others_have_taken_is_not_given_again(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Pods of nobody's, as of a DaemonSet: bound by somebody else, with another scheduler's name."""
    others = [
        member(f"other-{index}", cpu="15500m", schedulerName="default-scheduler", nodeName=f"node-{index}")
        for index in range(NODES)
    ]
    for each in others:
        del each["metadata"]["labels"]
    await create(cluster, *others)
    async with running(cluster, nats_server.url, tmp_path) as muster:
        await create(cluster, *(member(name, cpu="1") for name in ("a", "b", "c")))

        async def told() -> bool:
            return bool(await muster.happened(GangHeldBack))

        await cluster.until(told, what="the gang to be told why it waits")
        short = (await muster.happened(GangHeldBack))[0].shortage
        assert short is not None
        assert [(each.code, each.detail, each.nodes) for each in short.obstacles] == [("insufficient", "cpu", NODES)]
        for each in others[:2]:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{each['metadata']['name']}"
            await cluster.kube.request("DELETE", path)

        async def bound() -> bool:
            found = await cluster.nodes()
            return all(found.get(name) for name in ("a", "b", "c"))

        await cluster.until(bound, what="the gang to be bound")
        assert {(await cluster.nodes())[name] for name in ("a", "b", "c")} <= {"node-0", "node-1"}


async def test_a_gang_of_bare_pods_is_charged_where_the_tree_says_so(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A job waits for what the pods take, and is told so; it starts when they have gone."""
    made = await cluster.apply_tree()
    meta = made["metadata"]
    note = [{"op": "add", "path": "/metadata/annotations", "value": {"muster.dev/charge-pods": "ours"}}]
    await cluster.kube.patch(made["apiVersion"], made["kind"], meta["name"], meta["namespace"], patch=note)
    async with running(cluster, nats_server.url, tmp_path) as muster:
        await create(cluster, *(member(name, cpu="2") for name in ("a", "b", "c")))

        async def charged() -> dict[str, int]:
            found = {event.ref.name: event.request["cpu"] for event in await muster.happened(WorkloadAdopted)}
            return found if len(found) == 3 else {}

        assert await cluster.until(charged, what="the pods to be charged") == dict.fromkeys("abc", 2000)
        await cluster.submit(document_job(name="waits", runtime="1h"))

        async def told() -> bool:
            return "used 6. " in await cluster.message("waits")

        await cluster.until(told, what="the job to be told what the pods use")
        for name in ("a", "b", "c"):
            await cluster.kube.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
        await cluster.until(lambda: cluster.running("waits"), 60.0, what="the job to run")


async def test_pods_wait_for_the_quota_of_their_namespace(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Six pods of 7 cpu that name us, half of them as KAI Scheduler, in a quota of 14: two of them run at any time."""
    await cluster.apply_tree()
    names = [f"p{index}" for index in range(6)]
    async with running(cluster, nats_server.url, tmp_path) as muster:
        for index, name in enumerate(names):
            pod = member(name, cpu="7")
            pod["spec"]["schedulerName"] = ("muster", "kai-scheduler")[index % 2]
            del pod["metadata"]["labels"]
            await create(cluster, pod)
        over = set[str]()

        async def told() -> bool:
            held = [event for event in await muster.happened(GangHeldBack) if event.reason == "no_quota"]
            return {event.pods[0].name for event in held} >= set(names) - await bound() - over

        async def bound() -> set[str]:
            found = {name for name, node in (await cluster.nodes()).items() if node}
            assert len(found) <= 2
            return found

        while len(over) < len(names):

            async def full() -> bool:
                return len(await bound()) == min(2, len(names) - len(over)) and await told()

            await cluster.until(full, what="as many pods as the quota has room for")
            for name in await bound():
                await cluster.kube.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
                over.add(name)
        assert {event.reason for event in await muster.happened(WorkloadAdopted)} == {"reserved"}
