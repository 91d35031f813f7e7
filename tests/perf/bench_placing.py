"""Placing one-GPU jobs and gangs on a real API server, in the scenarios that KAI Scheduler was measured in.

Batch Jobs in KAI queues on KWOK nodes of eight GPUs; the real job controller makes their pods, and Muster places and
binds these (layout `all`, placement `pack`). Every time is read from watch events of pods. KAI's figures in brackets:
version 0.17, five components with their defaults, the same scenarios and nodes on a machine of this kind.
kube-scheduler: the same Jobs without a queue.

Run: python tests/perf/bench_placing.py [--rounds 1] [--layout all]
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench_cluster import LIMIT_S, Bench, cpu, others, total
from bench_gangs import KUBE, MUSTER, Followed, GangBench, Pod
from figures import Progress, Table

from kit import jobs
from kit.cluster import furnish
from kit.compose import Running
from kit.controlplane import ControlPlane
from kit.kubeclient import KubeClient
from muster.bus.server import EmbeddedServer
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.kube.transport import KubeTransport
from muster.model.api import PODS

GPU = "nvidia.com/gpu"
NODE = {"cpu": "64", "memory": "512Gi", GPU: "8", "pods": "110"}
NODES, HALF = 50, 48
"""Two queues are guaranteed a half each of what a third one leaves, so many GPUs."""
CHURN_S, CHURN_RATE, CHURN_LASTS_S = 20.0, 4.0, 2.0
IDLE_S = 20.0
KAI = {
    "fill with 400 pods, s": "29.4",
    "fill with 400 pods, requests a pod": "22",
    "fill with 400 pods, CPU a pod, ms": "43",
    "40 gangs of 8, s": "53",
    "40 gangs of 8, requests a pod": "22",
    "4 a second, created to bound, p50 s": "0.96",
    "4 a second, created to bound, p99 s": "1.98",
    "4 a second, requests a pod": "39",
    "reclaim of 48 GPUs by single GPUs, s": "6.5",
    "reclaim of 48 GPUs by single GPUs, GPU-s empty": "80",
    "reclaim of 48 GPUs by gangs of 8, s": "8.3",
    "reclaim of 48 GPUs by gangs of 8, GPU-s empty": "102",
    "empty cluster, CPU per 10 s, s": "0.04 to 0.07",
}


class Seen(Followed):
    """Pods of a namespace, those that have gone too, and how many GPUs were in use at each change."""

    def __init__(self, transport: KubeTransport, namespace: str) -> None:
        super().__init__(transport, namespace)
        self.created: dict[str, float] = {}
        self.alive: set[str] = set()
        self.levels: list[tuple[float, int]] = []

    async def _note(self, kind: str, pod: Pod, now: float) -> None:
        name = pod.metadata.name
        self.created.setdefault(name, now)
        if kind == "DELETED" or pod.status.phase in ("Succeeded", "Failed"):
            self.alive.discard(name)
        elif pod.spec.node_name:
            self.alive.add(name)
        if not self.levels or self.levels[-1][1] != len(self.alive):
            self.levels.append((now, len(self.alive)))
        await super()._note(kind, pod, now)

    def empty(self, whole: int, until: float) -> float:
        """GPU-seconds below ``whole`` up to a time."""
        times = [*(at for at, _ in self.levels[1:]), until]
        pairs = zip(self.levels, times, strict=True)
        return sum((whole - level) * max(0.0, min(end, until) - at) for (at, level), end in pairs if level < whole)


def queue(name: str, quota: int) -> dict[str, Any]:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": free, "gpu": {**free, "quota": quota}, "memory": free}
    meta = {"name": name}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": meta, "spec": {"resources": resources}}


def work(name: str, namespace: str, owner: str, pods: int = 1) -> bytes:
    """A Job of so many pods of one GPU; of nobody's queue where ``owner`` is empty."""
    made = jobs.job(name, namespace, parallelism=pods, suspend=bool(owner))
    spec = made["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 0
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: "1"}}
    if owner:
        made["metadata"]["labels"] = {"kai.scheduler/queue": owner}
        spec["schedulerName"] = MUSTER
    else:
        spec["schedulerName"] = KUBE
    return json.dumps(made).encode()


class Placing:
    """The scenarios on one API server; ``running``: Muster, nobody where kube-scheduler places alone."""

    def __init__(
        self, bench: Bench, gangs: GangBench, transport: KubeTransport, running: Sequence[Running], small: int
    ) -> None:
        self._gpus = NODES // small * 8
        self._half = HALF // small
        self._bench = bench
        self._gangs = gangs
        self._transport = transport
        self._running = running
        self.found: dict[str, float] = {}

    async def _create(self, bodies: Sequence[bytes], namespace: str) -> None:
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        await self._bench.at_once([partial(self._gangs.post, path, body) for body in bodies])

    @asynccontextmanager
    async def _seen(self) -> AsyncIterator[tuple[str, Seen]]:
        namespace = await self._gangs.namespace()
        seen, ready = Seen(self._transport, namespace), asyncio.Event()
        following = asyncio.ensure_future(seen.run(ready))
        try:
            await ready.wait()
            yield namespace, seen
        finally:
            await self._gone(namespace)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _gone(self, namespace: str) -> None:
        """The Jobs of a namespace are deleted, and their pods have gone."""
        options = json.dumps({"propagationPolicy": "Background"}).encode()
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        await self._transport.request("DELETE", path, body=options, timeout_s=60)
        async with asyncio.timeout(LIMIT_S):
            while json.loads((await self._transport.request("GET", PODS.path(namespace), query={"limit": "1"})).body)[
                "items"
            ]:
                await asyncio.sleep(0.5)

    async def _spent(self) -> tuple[Counter[str], int]:
        """(requests, ms of CPU) of Muster and its NATS so far."""
        requests = await total(self._running, "muster_kube_requests")
        return requests, cpu(self._running).total() + others("the bench")["nats-server"]

    async def fill(self, name: str, pods: int, owner: str = "whole") -> None:
        """Jobs of so many pods on an empty cluster, four fifths of it by gangs: until the last is bound."""
        count = self._gpus if pods == 1 else self._gpus // pods * 4 // 5
        before = await self._spent()
        async with self._seen() as (namespace, seen):
            began = time.perf_counter()
            await self._create([work(f"j{index:04}", namespace, owner, pods) for index in range(count)], namespace)
            self.found[f"{name}, s"] = await seen.until_bound(count * pods) - began
            await self._note(name, before, count * pods)

    async def _note(self, name: str, before: tuple[Counter[str], int], pods: int) -> None:
        if self._running:
            await asyncio.sleep(2.0)  # What is shown of it comes a moment later.
            requests, spent = await self._spent()
            made = requests - before[0]
            self.found[f"{name}, requests a pod"] = made.total() / pods
            for what, times in sorted(made.items()):
                if times > pods / 20:
                    self.found[f"{name}, of these {what}"] = times / pods
            self.found[f"{name}, CPU a pod, ms"] = (spent - before[1]) / pods

    async def churn(self) -> None:
        """Jobs come at a pace, and are deleted a moment after they are bound."""
        name, count = f"{CHURN_RATE:.0f} a second", int(CHURN_S * CHURN_RATE)
        before = await self._spent()
        async with self._seen() as (namespace, seen):
            made: dict[str, float] = {}
            path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
            options = json.dumps({"propagationPolicy": "Background"}).encode()

            async def life(index: int) -> None:
                await asyncio.sleep(index / CHURN_RATE)
                job = f"c{index:04}"
                made[job] = time.perf_counter()
                await self._gangs.post(path, work(job, namespace, "whole"))
                while not any(pod.startswith(job) for pod in seen.bound):
                    await asyncio.sleep(0.05)
                await asyncio.sleep(CHURN_LASTS_S)
                await self._transport.request("DELETE", f"{path}/{job}", body=options, timeout_s=60)

            async with asyncio.timeout(LIMIT_S):
                await asyncio.gather(*(life(index) for index in range(count)))
            waits = sorted(at - made[pod.rpartition("-")[0]] for pod, at in seen.bound.items())
            self.found[f"{name}, created to bound, p50 s"] = statistics.median(waits)
            self.found[f"{name}, created to bound, p99 s"] = waits[int(len(waits) * 0.99)]
            await self._note(name, before, count)

    async def reclaim(self, name: str, pods: int) -> None:
        """One queue uses the other's half; the other asks for its own back in Jobs of so many pods."""
        half, spare, count = self._half, self._gpus - 2 * self._half, self._half // pods
        async with self._seen() as (rest, filler), self._seen() as (namespace, seen):
            await self._create([work(f"r{index:04}", rest, "rest") for index in range(spare)], rest)
            await filler.until_bound(spare)
            await self._create([work(f"b{index:04}", namespace, "b") for index in range(2 * half)], namespace)
            await seen.until_bound(2 * half)
            await asyncio.sleep(3.0)
            seen.levels[:] = seen.levels[-1:]
            began = time.perf_counter()
            seen.levels[0] = (began, 2 * half)
            await self._create([work(f"a{index:04}", namespace, "a", pods) for index in range(count)], namespace)
            last = await seen.until_bound(3 * half)
            self.found[f"{name}, s"] = last - began
            self.found[f"{name}, GPU-s empty"] = seen.empty(2 * half, last)

    async def idle(self) -> None:
        before = cpu(self._running).total() + others("the bench")["nats-server"]
        await asyncio.sleep(IDLE_S)
        spent = cpu(self._running).total() + others("the bench")["nats-server"] - before
        self.found["empty cluster, CPU per 10 s, s"] = spent / 1000 / IDLE_S * 10


async def measure(rounds: int, say: Progress, layout: str = "all", small: int = 1) -> list[Table]:
    """``small``: one such part of the nodes and GPUs."""
    nodes = NODES // small
    counted: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with ControlPlane(prepare=furnish, echo=say) as plane, EmbeddedServer() as nats:
            transport = await connect(FromKubeconfig(str(plane.kubeconfig)))
            async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
                for name, quota in _quotas(8 * nodes, HALF // small).items():
                    await kube.create(queue(name, quota))
                # A cluster of KAI has no QueueUnits.
                await kube.delete(
                    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "queueunits.scheduling.x-k8s.io"
                )
                bench = Bench(plane, kube, transport, Path(folder))
                gangs = GangBench(bench, transport)
                await gangs.add_nodes(nodes, NODE)
                await gangs.until_ready(nodes)
                counted = [await _round(bench, gangs, transport, nats.url, layout, small, say) for _ in range(rounds)]
            await transport.close()
    shown = [{f"{name} (KAI: {KAI[name]})" if name in KAI else name: each[name] for name in each} for each in counted]
    about = (
        f"Batch Jobs of one-GPU pods in KAI queues on {nodes} KWOK nodes of 8 GPUs, a real kube-apiserver, etcd and "
        "job controller; Muster in one process, placement `pack`, its nats-server counted in. In brackets KAI "
        "Scheduler 0.17 with its defaults in the same scenarios on a machine of this kind. kube-scheduler: the same "
        "Jobs without queues and gangs. Requests: all that Muster asks of the API server."
    )
    return [Table("Placing, beside KAI", about, shown)]


def _quotas(gpus: int, half: int) -> dict[str, int]:
    return {"whole": gpus, "a": half, "b": half, "rest": gpus - 2 * half}


async def _round(
    bench: Bench, gangs: GangBench, transport: KubeTransport, url: str, layout: str, small: int, say: Progress
) -> dict[str, float]:
    say("placing: kube-scheduler")
    floor = Placing(bench, gangs, transport, (), small)
    await floor.fill("kube-scheduler: fill with 400 pods", 1, owner="")
    async with bench.muster(url, "kube-queue", layout, MUSTER_PLACEMENT="pack") as running:
        placing = Placing(bench, gangs, transport, running, small)
        say("placing: an empty cluster")
        await asyncio.sleep(5.0)
        await placing.idle()
        say("placing: fill")
        await placing.fill("fill with 400 pods", 1)
        say("placing: gangs")
        await placing.fill("40 gangs of 8", 8)
        say("placing: churn")
        await placing.churn()
        say("placing: reclaim")
        await placing.reclaim("reclaim of 48 GPUs by single GPUs", 1)
        await placing.reclaim("reclaim of 48 GPUs by gangs of 8", 8)
    async with bench.muster(url, "lean", layout, MUSTER_PLACEMENT="pack") as running:
        say("placing: fill without PodGroups")
        lean = Placing(bench, gangs, transport, running, small)
        await asyncio.sleep(5.0)
        await lean.fill("profile lean: fill with 400 pods", 1)
    return {**floor.found, **placing.found, **lean.found}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--small", type=int, default=1, help="one such part of the nodes")
    parser.add_argument("--layout", default="all", choices=["all", "separate"])
    options = parser.parse_args()
    for table in await measure(options.rounds, Progress(), options.layout, options.small):
        print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
