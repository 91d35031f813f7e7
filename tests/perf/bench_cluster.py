"""RayJobs on a real API server, admitted by Muster as it is deployed: each service a process of its own, or all in one.

N suspended RayJobs wait behind a quota that lets none in; then the quota is raised, and all of them are resumed as fast
as Muster and the API server can. Beside it, in the same round and on the same server: how many such patches one client
gets through with nothing else going on. Then N more, a few at a time: each is deleted as soon as it is resumed, so that
its quota is free for the next one.

Run: python tests/perf/bench_cluster.py [--jobs 1000] [--rounds 3] [--profile lean kube-queue] [--layout separate all]
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import psutil
from figures import Progress, Table

from kit import facts
from kit.cluster import TREES, furnish
from kit.compose import ANONYMOUS, Running, services
from kit.controlplane import ControlPlane
from kit.kubeclient import KubeClient
from kit.story import quota_tree, rayjob
from kit.waiting import until
from muster.bus.server import EmbeddedServer, free_port
from muster.events.facts import TreeNodeSpec
from muster.kube.config import connect
from muster.kube.deltas import Upsert
from muster.kube.reflector import Reflector
from muster.kube.sources import FromKubeconfig
from muster.kube.transport import KubeTransport
from muster.model.api import JSON_PATCH, RAYJOBS
from muster.ports import ApiUnreachableError
from muster.runtime.layouts import GROUPS, LAYOUTS, members
from muster.runtime.runners.acting import MAX_IN_FLIGHT

NAMESPACES = [f"bench-{index}" for index in range(10)]
FORMS = {"separate": "every service a process of its own", "all": "all services but the keeper in one process"}
"""{layout: what it is}"""
AT_ONCE = 100
LIMIT_S = 240.0
_cells = itertools.count(1)


def tree(cpu: int, namespaces: Sequence[str]) -> dict[str, Any]:
    """Room for so much cpu in all, and in each namespace."""
    most = {"cpu": cpu}
    leaves = tuple(facts.node(name, {}, most, (name,)) for name in namespaces)
    root: TreeNodeSpec = facts.node("root", most, most, children=leaves)
    return quota_tree(root)


class _Spec(msgspec.Struct):
    suspend: bool = False


class _Job(msgspec.Struct):
    spec: _Spec


class Bench:
    """One round on one API server."""

    def __init__(self, plane: ControlPlane, kube: KubeClient, transport: KubeTransport, folder: Path) -> None:
        self.plane = plane
        self.kube = kube
        self.transport = transport
        self.folder = folder
        self.resumed: set[str] = set()
        self.deleting = False
        self.cell = ""
        """The newest."""
        self.news = asyncio.Condition()

    async def at_once(self, calls: Sequence[Any]) -> None:
        """As many at once as the actuator makes."""
        waiting = iter(calls)

        async def work() -> None:
            for call in waiting:
                await call()

        await asyncio.gather(*(work() for _ in range(MAX_IN_FLIGHT)))

    async def create_jobs(self, prefix: str, count: int) -> list[tuple[str, str]]:
        """Suspended RayJobs of one cpu; (namespace, name) each."""
        names = [(NAMESPACES[index % len(NAMESPACES)], f"{prefix}-{index:05}") for index in range(count)]

        async def create(namespace: str, name: str) -> None:
            body = json.dumps(rayjob(name, namespace, cpu="500m", memory="1G", replicas=1)).encode()
            answer = await self.transport.request("POST", RAYJOBS.path(namespace), body=body, timeout_s=60)
            assert answer.ok, answer.body

        await self.at_once([lambda each=each: create(*each) for each in names])
        return names

    async def delete_all(self) -> None:
        for namespace in NAMESPACES:
            await self.transport.request("DELETE", RAYJOBS.path(namespace), timeout_s=60)

    async def raw_patches(self, jobs: Sequence[tuple[str, str]]) -> float:
        """Patches per second: what the actuator writes, by the same client, with nothing else going on."""
        stamps = {"muster.dev/intent": "1-1-0", "muster.dev/dequeued-at": "2026-01-01T00:00:00Z"}
        ops: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/generation", "value": 1}]
        ops += [
            {"op": "add", "path": f"/metadata/annotations/{key.replace('/', '~1')}", "value": value}
            for key, value in stamps.items()
        ]
        body = json.dumps([*ops, {"op": "add", "path": "/spec/suspend", "value": False}]).encode()

        async def patch(namespace: str, name: str) -> None:
            path = RAYJOBS.path(namespace, name)
            answer = await self.transport.request("PATCH", path, body=body, content_type=JSON_PATCH, timeout_s=60)
            assert answer.ok, answer.body

        began = time.perf_counter()
        await self.at_once([lambda each=each: patch(*each) for each in jobs])
        return len(jobs) / (time.perf_counter() - began)

    @asynccontextmanager
    async def muster(
        self, nats_url: str, profile: str, layout: str = "separate", **settings: str
    ) -> AsyncIterator[list[Running]]:
        """The services of docker-compose.yml in processes, on a cell of their own; ``settings``: more environment."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        self.cell = f"bench-{next(_cells)}"
        common = {
            **ANONYMOUS,
            "MUSTER_NATS_URL": nats_url,
            "MUSTER_CELL": self.cell,
            "MUSTER_LOG_LEVEL": "warning",
        }
        creation = Running("log-init", folder, 0, {**common, "MUSTER_LOG_MAX_BYTES": str(1 << 30)})
        await creation.start()
        assert await creation.finished() == 0, creation.tail()
        running = []
        for process in LAYOUTS[layout]:
            service, port = members(process)[0].replace("_", "-"), free_port()
            env = {**common, "MUSTER_HEALTH_HOST": "127.0.0.1", "MUSTER_HEALTH_PORT": str(port)}
            env |= {"MUSTER_PROFILE": profile, **settings}
            if "MUSTER_KUBECONFIG" in services()[service].env:
                env["MUSTER_KUBECONFIG"] = str(self.plane.kubeconfig)
            command = ("muster", "run", process) if process in GROUPS else ()
            running.append(Running(service, folder, port, env, name=process.replace("_", "-"), command=command))
        try:
            for service in running:
                await service.start()
            for service in running:
                await service.until_healthy()
            yield running
        except (AssertionError, TimeoutError):
            await keep_log(nats_url, self.cell)
            raise
        finally:
            await asyncio.gather(*(service.stop() for service in running))

    async def follow(self) -> None:
        """Note which jobs are resumed; delete each at once where that is wanted.

        By the product's reflector: an API server closes a watch whenever it likes, and a raw one ends with it.
        """
        deletions: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        async def delete() -> None:
            while True:
                namespace, name = await deletions.get()
                try:
                    await self.transport.request("DELETE", RAYJOBS.path(namespace, name), timeout_s=60)
                except ApiUnreachableError:
                    deletions.put_nowait((namespace, name))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(MAX_IN_FLIGHT):
                tasks.create_task(delete())
            async for delta in Reflector(self.transport, RAYJOBS).deltas():
                if not isinstance(delta, Upsert):
                    continue
                name = delta.meta.name
                if name in self.resumed or msgspec.json.decode(delta.raw, type=_Job).spec.suspend:
                    continue
                self.resumed.add(name)
                if self.deleting:
                    deletions.put_nowait((NAMESPACES[int(name.rpartition("-")[2]) % len(NAMESPACES)], name))
                async with self.news:
                    self.news.notify_all()

    async def until_resumed(self, count: int, following: asyncio.Future[None]) -> None:
        """Raises what ended the following, and AssertionError when nobody more is resumed."""

        async def resumed() -> None:
            async with self.news:
                await self.news.wait_for(lambda: len(self.resumed) >= count)

        waiting = asyncio.ensure_future(resumed())
        await asyncio.wait({waiting, following}, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            if following.done():
                following.result()
            raise AssertionError(f"{len(self.resumed)} of {count} were resumed in {LIMIT_S:.0f} s")

    async def set_tree(self, cpu: int, namespaces: Sequence[str] = NAMESPACES) -> None:
        wanted = tree(cpu, namespaces)
        meta = wanted["metadata"]
        if await self.kube.find(TREES, "ElasticQuotaTree", meta["name"], meta["namespace"]) is None:
            await self.kube.create(wanted)
            return
        change = [{"op": "replace", "path": "/spec", "value": wanted["spec"]}]
        await self.kube.patch(TREES, "ElasticQuotaTree", meta["name"], meta["namespace"], patch=change)


async def keep_log(nats_url: str, cell: str) -> None:
    """Export the log of a cell that stands still, for whoever looks into it."""
    out = Path(tempfile.mkdtemp(prefix="muster-bench-")) / "log.jsonl.gz"
    argv = [sys.executable, "-m", "muster_cli", "export", "--url", nats_url, "--cell", cell, "--out", str(out)]
    await (await asyncio.create_subprocess_exec(*argv)).wait()


async def scrape(service: Running) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{service.port}/metrics") as answer:
        return await answer.text()


async def total(services: Sequence[Running], metric: str, **wanted: str) -> Counter[str]:
    """{`verb resource`, or the queue: value} of a counter, over processes."""
    found: Counter[str] = Counter()
    for service in services:
        for line in (await scrape(service)).splitlines():
            match = re.fullmatch(rf"{metric}_total\{{(.*)\}} (\S+)", line)
            if match:
                labels = dict(re.findall(r'(\w+)="([^"]*)"', match[1]))
                if all(labels.get(key) == value for key, value in wanted.items()):
                    found[f"{labels.get('verb', '')} {labels.get('resource', '')}".strip()] += int(float(match[2]))
    return found


def rss(service: Running) -> float:
    """MB."""
    return psutil.Process(service.pid).memory_info().rss / 1e6


def cpu(services: Sequence[Running]) -> Counter[str]:
    """{service: ms of CPU so far}"""
    times = {service.name: psutil.Process(service.pid).cpu_times() for service in services}
    return Counter({name: round(1000 * (each.user + each.system)) for name, each in times.items()})


def others(own: str) -> Counter[str]:
    """{process: ms of CPU so far} of everything that is not ours: the servers, and this process under a name."""
    names = ("kube-apiserver", "etcd", "kwok", "kube-scheduler", "nats-server")
    spent = Counter[str]()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times, name = child.cpu_times(), child.name()
            if name in names:
                spent[name] += round(1000 * (times.user + times.system))
    times = psutil.Process().cpu_times()
    spent[own] = round(1000 * (times.user + times.system))
    return spent


async def by_class(running: Sequence[Running]) -> tuple[int, int, int]:
    """(decision path, presentation, reading): requests to the API server so far.

    A patch of a RayJob resumes it, or stores on a waiting one when it was queued; the metrics do not tell them apart.
    Each that resumed has an effect in the log: these are the decision path, and what was asked again on its way.
    """
    requests = await total(running, "muster_kube_requests")
    applied = (await total(running, "muster_events", stage="actuator", type="effect_applied")).total()
    again = requests["get rayjobs.ray.io"]
    reading = sum(count for key, count in requests.items() if key.split()[0] in ("list", "watch"))
    return applied + again, requests.total() - applied - again - reading, reading


async def round_of(
    bench: Bench, nats_url: str, jobs: int, profile: str, layout: str, say: Progress
) -> dict[str, float]:
    number, about = next(_cells), f"cluster, {profile}, {layout}"
    say(f"{about}: {jobs} raw patches")
    raw = await bench.raw_patches(await bench.create_jobs(f"raw{number}", jobs))
    await bench.delete_all()
    bench.resumed, bench.deleting = set(), False
    await bench.set_tree(0)
    following = asyncio.ensure_future(bench.follow())
    try:
        async with bench.muster(nats_url, profile, layout) as running:
            resting = {f"RSS of {service.name} at rest, MB": rss(service) for service in running}
            say(f"{about}: {jobs} jobs wait")
            await bench.create_jobs(f"burst{number}", jobs)
            sorter = next(service for service in running if "queue_sorter" in members(service.name))

            async def queued() -> bool:
                return (await total([sorter], "muster_events", type="workload_queued")).total() >= jobs

            await until(queued, timeout_s=LIMIT_S, every_s=0.2)
            say(f"{about}: all of them are resumed")
            used = cpu(running)
            began = time.perf_counter()
            await bench.set_tree(2 * jobs)
            await bench.until_resumed(jobs, following)
            burst = jobs / (time.perf_counter() - began)
            used = cpu(running) - used
            memory = {f"RSS of {service.name}, MB": rss(service) for service in running}
            say(f"{about}: {jobs} more, {AT_ONCE} at once")
            bench.deleting = True
            await bench.set_tree(0)
            await bench.delete_all()
            await bench.create_jobs(f"flow{number}", jobs)

            async def all_queued() -> bool:
                return (await total([sorter], "muster_events", type="workload_queued")).total() >= 2 * jobs

            await until(all_queued, timeout_s=LIMIT_S, every_s=0.2)
            began = time.perf_counter()
            await bench.set_tree(AT_ONCE)
            await bench.until_resumed(2 * jobs, following)
            flow = jobs / (time.perf_counter() - began)
            decision, shown, read = await by_class(running)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await bench.delete_all()
    return {
        "raw patches/s": raw,
        "resumed, jobs/s": burst,
        "resumed, share of the raw rate": burst / raw,
        f"resumed and ended, {AT_ONCE} at once, jobs/s": flow,
        "CPU of all services per resumed job, ms": used.total() / jobs,
        **({f"CPU of {name} per resumed job, ms": ms / jobs for name, ms in used.items()} if len(used) > 2 else {}),
        "requests per job, decision path": decision / (2 * jobs),
        "requests per job, presentation": shown / (2 * jobs),
        "requests in all, reading": read,
        **resting,
        **memory,
    }


async def measure(
    jobs: int, rounds: int, profiles: Sequence[str], layouts: Sequence[str], say: Progress
) -> list[Table]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        async with (
            ControlPlane(prepare=furnish, scheduler=False, kwok=False, echo=say) as plane,
            EmbeddedServer() as nats,
        ):
            transport = await connect(FromKubeconfig(str(plane.kubeconfig)))
            async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
                for name in NAMESPACES:
                    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
                bench = Bench(plane, kube, transport, Path(folder))
                for profile, layout in itertools.product(profiles, layouts):
                    counted = [await round_of(bench, nats.url, jobs, profile, layout, say) for _ in range(rounds)]
                    about = (
                        f"{jobs:,} RayJobs on a real kube-apiserver and etcd, {FORMS[layout]}, "
                        f"profile `{profile}`. Everything runs on the one machine, the bench too. Raw patches: the "
                        "same patch by one client with nothing else going on, in the same round."
                    )
                    title = f"On a real API server, profile {profile}"
                    found.append(Table(title if layout == "separate" else f"{title}, one process", about, counted))
            await transport.close()
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", nargs="+", default=["lean", "kube-queue"])
    parser.add_argument("--layout", nargs="+", choices=FORMS, default=list(FORMS))
    options = parser.parse_args()
    for table in await measure(options.jobs, options.rounds, options.profile, options.layout, Progress()):
        print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
