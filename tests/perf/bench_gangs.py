"""Gangs of pods on a real API server with 1,000 KWOK nodes: from the first pod's creation to the last pod's binding.

Three ways, in one run and on one server. Raw: one client binds pods that exist, with nothing else going on: nobody can
be faster. kube-scheduler: the same pods without gangs, bound one by one. Muster: every service a process of its own,
each gang bound as a whole or not at all; then the same with pods that exist, as those of the raw rate do, and wait for
quota. Every time is read from watch events of pods.

Run: python tests/perf/bench_gangs.py [--nodes 1000] [--gangs 500x20 20x500] [--rounds 1]
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from bench_cluster import LIMIT_S, Bench, cpu, others, total
from figures import Progress, Table

from kit.cluster import furnish
from kit.compose import Running
from kit.controlplane import ControlPlane
from kit.kubeclient import KubeClient
from kit.waiting import until
from muster.bus.server import EmbeddedServer
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.kube.transport import KubeTransport
from muster.model.api import NAMESPACES, NODES, PODS
from muster.ports import ApiUnreachableError

NODE = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "16", "pods": "110"}
POD = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
NOBODY, KUBE, MUSTER = "nobody", "default-scheduler", "muster"
OWN = "the bench"
_rounds = itertools.count(1)


class Size(NamedTuple):
    """So many gangs of so many pods."""

    gangs: int
    members: int

    @property
    def pods(self) -> int:
        return self.gangs * self.members

    def __str__(self) -> str:
        return f"{self.gangs} gangs of {self.members}"


SIZES = [Size(500, 20), Size(20, 500)]


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class Pod(msgspec.Struct):
    """What is read of a pod."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Line(msgspec.Struct):
    type: str
    object: Pod


class Followed:
    """Pods of one namespace as their watch shows them."""

    def __init__(self, transport: KubeTransport, namespace: str) -> None:
        self._transport = transport
        self._path = PODS.path(namespace)
        self.bound: dict[str, float] = {}
        """pod -> when the watch first showed it with a node"""
        self.first = 0.0
        """When the watch showed the first pod."""
        self._news = asyncio.Condition()

    async def run(self, ready: asyncio.Event) -> None:
        found = await self._transport.request("GET", self._path, query={"limit": "1"})
        version = json.loads(found.body)["metadata"]["resourceVersion"]
        decoder = msgspec.json.Decoder(_Line)
        ready.set()
        while True:  # a server that has much to do ends the watch of a client that has as much
            query = {"watch": "1", "resourceVersion": version}
            async for line in self._transport.watch(self._path, query=query, idle_limit_s=LIMIT_S):
                event = decoder.decode(line)
                assert event.type != "ERROR", line
                version = event.object.metadata.resource_version
                await self._note(event.type, event.object, time.perf_counter())

    async def _note(self, _kind: str, pod: Pod, now: float) -> None:
        self.first = self.first or now
        if pod.spec.node_name and pod.metadata.name not in self.bound:
            self.bound[pod.metadata.name] = now
            async with self._news:
                self._news.notify_all()

    async def until_bound(self, count: int) -> float:
        """When the last of so many was bound."""
        try:
            async with asyncio.timeout(LIMIT_S), self._news:
                await self._news.wait_for(lambda: len(self.bound) >= count)
        except TimeoutError:
            raise TimeoutError(f"{len(self.bound)} of {count} pods were bound within {LIMIT_S:.0f} s") from None
        return max(self.bound.values())


def pod(name: str, gang: str, members: int, scheduler: str) -> bytes:
    """A member; gang marks only where they mean something."""
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": gang,
        "pod-group.scheduling.sigs.k8s.io/min-available": str(members),
    }
    container = {"name": "main", "image": "kit.invalid/idle", "resources": {"requests": POD, "limits": POD}}
    spec = {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0}
    body: dict[str, Any] = {"metadata": {"name": name, "labels": labels if scheduler == MUSTER else {}}, "spec": spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", **body}).encode()


class GangBench:
    """Rounds on one API server; each in a namespace of its own."""

    def __init__(self, bench: Bench, transport: KubeTransport) -> None:
        self._bench = bench
        self._transport = transport

    async def post(self, path: str, body: bytes) -> None:
        answer = await self._transport.request("POST", path, body=body, timeout_s=60)
        assert answer.ok, answer.body

    async def add_nodes(self, count: int, amounts: Mapping[str, str] = NODE) -> None:
        bodies = []
        for index in range(count):
            meta = {"name": f"node-{index:04}", "labels": {"kubernetes.io/hostname": f"node-{index:04}"}}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
            bodies.append(json.dumps({**node, "status": {"capacity": amounts, "allocatable": amounts}}).encode())
        await self._bench.at_once([partial(self.post, NODES.path(), body) for body in bodies])

    async def until_ready(self, count: int) -> None:
        """Every node is Ready and takes pods."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                found = json.loads((await self._transport.request("GET", NODES.path(), timeout_s=60)).body)["items"]
                ready = [node for node in found if _ready(node)]
                if len(ready) >= count:
                    return
                await asyncio.sleep(1)

    async def namespace(self) -> str:
        name = f"gangs-{next(_rounds)}"
        await self.post(NAMESPACES.path(), json.dumps({"metadata": {"name": name}}).encode())
        account = {"metadata": {"name": "default"}}
        answer = await self._transport.request(
            "POST", f"/api/v1/namespaces/{name}/serviceaccounts", body=json.dumps(account).encode()
        )
        assert answer.ok or answer.status == 409, answer.body
        return name

    async def bound(self, size: Size, scheduler: str) -> float:
        """Pods bound per second, from the first creation to the last binding."""
        async with self._followed() as (namespace, followed):
            await self._create(namespace, size, scheduler)
            return size.pods / (await followed.until_bound(size.pods) - followed.first)

    async def bound_at_last(self, size: Size, running: Sequence[Running]) -> tuple[float, dict[str, float]]:
        """Pods bound per second of gangs that Muster knows, from the change of their quota to the last binding, and
        what that takes of the machine.
        """

        async def known() -> int:
            return (await total(running, "muster_events", type="pod_observed")).total()

        before = await known()
        async with self._followed() as (namespace, followed):
            await self._bench.set_tree(0, [namespace])
            await self._create(namespace, size, MUSTER)

            async def all_known() -> bool:
                return await known() - before >= size.pods

            await until(all_known, timeout_s=LIMIT_S, every_s=1.0)
            assert not followed.bound, "they wait for quota"
            began, spent = time.perf_counter(), cpu(running) + others(OWN)
            await self._bench.set_tree(size.pods * int(POD["cpu"]), [namespace])
            took = await followed.until_bound(size.pods) - began
            spent = cpu(running) + others(OWN) - spent
            machine = 100 * spent.total() / (1000 * took * (os.cpu_count() or 1))
            each = {f"CPU of {name} per pod, ms": ms / size.pods for name, ms in sorted(spent.items())}
            return size.pods / took, {"CPU of the machine in use, %": machine, **each}

    @asynccontextmanager
    async def _followed(self) -> AsyncIterator[tuple[str, Followed]]:
        """A namespace of its own, and its pods."""
        namespace = await self.namespace()
        followed, ready = Followed(self._transport, namespace), asyncio.Event()
        following = asyncio.ensure_future(followed.run(ready))
        try:
            await ready.wait()
            yield namespace, followed
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self._clear(namespace)

    async def _create(self, namespace: str, size: Size, scheduler: str) -> None:
        bodies = [
            pod(f"gang-{gang:03}-{member:03}", f"gang-{gang:03}", size.members, scheduler)
            for gang in range(size.gangs)
            for member in range(size.members)
        ]
        await self._bench.at_once([partial(self.post, PODS.path(namespace), body) for body in bodies])

    async def raw(self, count: int, nodes: int) -> float:
        """Bindings per second of pods that exist, by one client, with nothing else going on."""
        namespace = await self.namespace()
        names = [f"raw-{index:05}" for index in range(count)]
        path = PODS.path(namespace)
        await self._bench.at_once([partial(self.post, path, pod(name, "", 1, NOBODY)) for name in names])
        calls = []
        for index, name in enumerate(names):
            target = {"apiVersion": "v1", "kind": "Node", "name": f"node-{index % nodes:04}"}
            body = json.dumps({"metadata": {"name": name}, "target": target}).encode()
            calls.append(partial(self.post, PODS.path(namespace, name, "binding"), body))
        began = time.perf_counter()
        await self._bench.at_once(calls)
        took = time.perf_counter() - began
        await self._clear(namespace)
        return count / took

    async def _clear(self, namespace: str) -> None:
        options = json.dumps({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}).encode()
        path = PODS.path(namespace)
        async with asyncio.timeout(LIMIT_S):
            while json.loads((await self._transport.request("GET", path, query={"limit": "1"})).body)["items"]:
                with contextlib.suppress(ApiUnreachableError):  # A connection that the server had just closed.
                    await self._transport.request("DELETE", path, body=options, timeout_s=120)


def _ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not node["spec"].get("taints")


async def measure(nodes: int, sizes: Sequence[Size], rounds: int, say: Progress) -> Table:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            ControlPlane(prepare=furnish, echo=say) as plane,
            EmbeddedServer() as nats,
        ):
            transport = await connect(FromKubeconfig(str(plane.kubeconfig)))
            async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
                bench = Bench(plane, kube, transport, Path(folder))
                gangs = GangBench(bench, transport)
                say(f"gangs: {nodes} nodes")
                await gangs.add_nodes(nodes)
                await gangs.until_ready(nodes)
                counted = [
                    await _round(gangs, bench, nats.url, nodes, sizes, f"{number} of {rounds}", say)
                    for number in range(1, rounds + 1)
                ]
            await transport.close()
    about = (
        f"Gangs of one-GPU pods on {nodes:,} KWOK nodes, a real kube-apiserver and etcd: pods bound per second, from "
        "the first creation to the last binding as a watch shows them; of those that wait for quota, from the change "
        "of the quota on. Raw: bindings of pods that exist by one client, nothing else going on. kube-scheduler: 2,000 "
        "such pods, no gangs. Everything runs on the one machine, KWOK and the bench too."
    )
    return Table("Gangs of pods on a real API server", about, counted)


async def _round(
    gangs: GangBench, bench: Bench, url: str, nodes: int, sizes: Sequence[Size], which: str, say: Progress
) -> dict[str, float]:
    say(f"gangs, round {which}: raw bindings")
    alone = min(2_000, max(size.pods for size in sizes))
    raw = await gangs.raw(alone, nodes)
    found = {"raw bindings/s": raw}
    say(f"gangs, round {which}: kube-scheduler")
    found["kube-scheduler without gangs, pods bound/s"] = await gangs.bound(Size(alone // 20, 20), KUBE)
    async with bench.muster(url, "lean", MUSTER_PLACEMENT="pack") as running:
        for size in sizes:
            say(f"gangs, round {which}: {size}")
            rate = await gangs.bound(size, MUSTER)
            found[f"{size}, pods bound/s"] = rate
            found[f"{size}, first creation to last binding, s"] = size.pods / rate
            found[f"{size}, share of the raw rate"] = rate / raw
            say(f"gangs, round {which}: {size} that wait for quota")
            rate, spent = await gangs.bound_at_last(size, running)
            found[f"{size} that wait for quota, pods bound/s"] = rate
            found[f"{size} that wait for quota, share of the raw rate"] = rate / raw
            found |= {f"{size} that wait for quota, {what}": figure for what, figure in spent.items()}
    return found


def _size(text: str) -> Size:
    gangs, _, members = text.partition("x")
    return Size(int(gangs), int(members))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--gangs", type=_size, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    table = await measure(options.nodes, options.gangs, options.rounds, Progress())
    print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
