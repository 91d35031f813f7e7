"""Kueue's own performance test at one fifth of its size, as RayJobs on a real API server admitted by Muster.

Five cohorts of six queues, 20 cpu each, which borrow from their cohort, take it back, and let higher priority preempt
lower in the queue; per queue three users who each create jobs of one class at a fixed pace. A job that is resumed
counts as running at once, and is reported complete after its run time, as Kueue's test does with its workloads. Kueue's
figures beside ours are of its own test, run on a machine of this kind.

Run: python tests/perf/bench_kueue.py [--rounds 3] [--share 1] [--layout all] [--no-preempt] [--keep LOG.jsonl.gz]
"""

import argparse
import asyncio
import csv
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from bench_cluster import FORMS, LIMIT_S, Bench, cpu, others, total
from figures import Grid, Progress, Table
from joblog import evictions, stages
from sampling import sampled

from kit import facts, proof
from kit.cluster import TREES, furnish
from kit.controlplane import ControlPlane
from kit.kubeclient import KubeClient
from kit.story import quota_tree, rayjob
from muster.bus.server import EmbeddedServer
from muster.core.reading.kubequeue import QUEUE_NAMESPACE, QUOTA_FULLNAME
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.kube.transport import KubeTransport
from muster.model.api import MERGE_PATCH, RAYJOBS
from muster.runtime.logkeeping.logfile import write_log

COHORTS, QUEUES, NOMINAL = 5, 6, 20
TITLES = {"separate": "Kueue's baseline, one fifth", "all": "Kueue's baseline, one fifth, one process"}
"""{layout: the title of its section}"""
BEST_OVER_S = 5.0
WRITERS = 64
"""Requests of users and of the operator on their way at any time."""


class Kind(NamedTuple):
    """A class of jobs, as one user of each queue creates them."""

    name: str
    count: int
    interval_s: float
    runtime_s: float
    priority: int
    cpu: int


KUEUE = {
    "admissions/s, mean": "38",
    "admissions/s, best 5 s": "103",
    "mean wait, small, s": "34.0",
    "mean wait, medium, s": "18.4",
    "mean wait, large, s": "8.4",
    "useful utilisation, %": "17",
    "API requests per job": "3.5 to 4.2",
    "evictions": "30",
}
"""Measured with Kueue's own harness (its scheduler alone, without a controller for jobs), 300 requests/s allowed."""


def kinds(share: int) -> list[Kind]:
    """The classes, with one ``share``-th of their jobs."""
    with (Path(__file__).parent / "kueue_baseline.csv").open() as file:
        return [
            Kind(
                row["class"],
                max(1, int(row["count_per_queue"]) // share),
                int(row["interval_ms"]) / 1000,
                int(row["runtime_ms"]) / 1000,
                int(row["priority"]),
                int(row["cpu"]),
            )
            for row in csv.DictReader(file)
        ]


def queues() -> list[tuple[str, str]]:
    """(cohort, queue) each; a queue is a namespace."""
    return [(f"cohort-{i}", f"queue-{i}-{j}") for i in range(COHORTS) for j in range(QUEUES)]


def tree(*, preempt: bool) -> dict[str, Any]:
    """What a queue does not use others of its cohort may borrow; it gets it back (Kueue: ``reclaimWithinCohort: Any``).

    ``preempt``: higher priority takes the place of lower in its queue (``withinClusterQueue: LowerPriority``).
    """
    cohorts: dict[str, list[Any]] = defaultdict(list)
    for cohort, name in queues():
        cohorts[cohort].append(facts.node(name, {"cpu": NOMINAL}, {"cpu": NOMINAL * QUEUES}, (name,)))
    whole = {"cpu": NOMINAL * QUEUES}
    nodes = tuple(facts.node(name, whole, whole, children=tuple(leaves)) for name, leaves in cohorts.items())
    everything = {"cpu": NOMINAL * QUEUES * COHORTS}
    made = quota_tree(facts.node("root", everything, everything, children=nodes))
    made["metadata"]["annotations"] = {"muster.dev/preempt-lower-priority": str(preempt).lower()}
    return made


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct):
    suspend: bool = False


class _Status(msgspec.Struct, rename="camel"):
    job_deployment_status: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status | None = None


class _Line(msgspec.Struct):
    type: str
    object: _Object


class Job(msgspec.Struct):
    """One job as its user and its operator see it."""

    kind: Kind
    created: float
    suspended: bool = True
    waited: float | None = None
    """Until it was resumed first."""
    ends: asyncio.TimerHandle | None = None
    evictions: int = 0
    over: bool = False


class Users:
    """The users who create the jobs, and the operator that runs them."""

    def __init__(self, transport: KubeTransport, wanted: list[Kind], *, free: bool = False) -> None:
        """``free``: the users resume their jobs themselves, at once; nobody admits them."""
        self.transport = transport
        self.free = free
        self.kinds = wanted
        self.jobs: dict[tuple[str, str], Job] = {}
        self.resumed_at: list[float] = []
        self.left = len(queues()) * sum(kind.count for kind in wanted)
        self.done = asyncio.Event()
        self.slots = asyncio.Semaphore(WRITERS)
        self.tasks: set[asyncio.Task[None]] = set()
        self.failed: list[BaseException] = []
        """What the users or the operator could not do."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.failed.append(failure)
            self.done.set()

    async def run(self) -> float:
        """All jobs from the first creation to the last end; returns seconds."""
        found = await self.transport.request("GET", RAYJOBS.path(), query={"limit": "1"})
        self.spawn(self._follow(json.loads(found.body)["metadata"]["resourceVersion"]))
        began = time.perf_counter()
        try:
            for _, queue in queues():
                for kind in self.kinds:
                    self.spawn(self._create(queue, kind))
            try:
                async with asyncio.timeout(LIMIT_S):
                    await self.done.wait()
            except TimeoutError as err:
                waiting = [f"{'/'.join(key)} {each}" for key, each in self.jobs.items() if not each.over]
                raise AssertionError(f"{len(waiting)} jobs are left: {waiting[:3]}") from err
            if self.failed:
                raise self.failed[0]
            return time.perf_counter() - began
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _create(self, queue: str, kind: Kind) -> None:
        for number in range(kind.count):
            name = f"{kind.name}-{number:03}"
            job = rayjob(name, queue, cpu=str(kind.cpu), memory="1G", replicas=0)
            job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["priority"] = kind.priority
            body = json.dumps(job).encode()
            async with self.slots:
                self.jobs[queue, name] = Job(kind, time.perf_counter())
                answer = await self.transport.request("POST", RAYJOBS.path(queue), body=body, timeout_s=60)
            assert answer.ok, answer.body
            if self.free:
                await self._resume(queue, name)
            await asyncio.sleep(kind.interval_s)

    async def _resume(self, queue: str, name: str) -> None:
        body = json.dumps({"spec": {"suspend": False}}).encode()
        path = RAYJOBS.path(queue, name)
        async with self.slots:
            answer = await self.transport.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout_s=60)
        assert answer.ok, answer.body

    async def _follow(self, version: str) -> None:
        """Hear of every change; the server may end a watch at any time."""
        decoder = msgspec.json.Decoder(_Line)
        while True:
            query = {"watch": "1", "resourceVersion": version}
            async for line in self.transport.watch(RAYJOBS.path(), query=query, idle_limit_s=LIMIT_S):
                event = decoder.decode(line)
                assert event.type != "ERROR", line
                version = event.object.metadata.resource_version
                if event.type == "MODIFIED":
                    self._heard(event.object)

    def _heard(self, found: _Object) -> None:
        key = (found.metadata.namespace, found.metadata.name)
        job = self.jobs[key]
        if job.over or found.spec.suspend == job.suspended:
            return
        if not found.spec.suspend:
            self._starts(key)
            if job.evictions:
                self.spawn(self._report(key, "Running"))
        else:
            job.suspended = True
            job.evictions += 1
            if job.ends is not None:
                job.ends.cancel()
            self.spawn(self._report(key, "Suspended"))

    def _starts(self, key: tuple[str, str]) -> None:
        job, now = self.jobs[key], time.perf_counter()
        self.resumed_at.append(now)
        job.suspended = False
        job.waited = now - job.created if job.waited is None else job.waited
        job.ends = asyncio.get_running_loop().call_later(job.kind.runtime_s, self._end, key)

    def _end(self, key: tuple[str, str]) -> None:
        self.jobs[key].over = True
        self.spawn(self._complete(key))

    async def _complete(self, key: tuple[str, str]) -> None:
        await self._report(key, "Complete")
        self.left -= 1
        if not self.left:
            self.done.set()

    async def _report(self, key: tuple[str, str], word: str) -> None:
        status = {"jobDeploymentStatus": word, "jobStatus": "SUCCEEDED" if word == "Complete" else ""}
        async with self.slots:
            answer = await self.transport.request(
                "PATCH",
                RAYJOBS.path(*key, "status"),
                body=json.dumps({"status": status}).encode(),
                content_type=MERGE_PATCH,
                timeout_s=60,
            )
        assert answer.ok, answer.body

    def best(self) -> float:
        """Most admissions/s over five seconds."""
        times, most, first = sorted(self.resumed_at), 0, 0
        for last, at in enumerate(times):
            while times[first] <= at - BEST_OVER_S:
                first += 1
            most = max(most, last - first + 1)
        return most / BEST_OVER_S

    def waits(self, kind: Kind) -> list[float]:
        return [job.waited for job in self.jobs.values() if job.kind is kind and job.waited is not None]


def queue_object(cohort: str, name: str, policy: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {
            "name": name,
            "namespace": QUEUE_NAMESPACE,
            "annotations": {QUOTA_FULLNAME: f"root/{cohort}/{name}"},
        },
        "spec": {"queuePolicy": policy},
    }


async def set_policy(bench: Bench, policy: str) -> None:
    """All queues from here on; a Queue object each."""
    for cohort, name in queues():
        found = await bench.kube.find("scheduling.x-k8s.io/v1alpha1", "Queue", name, QUEUE_NAMESPACE)
        if found is None:
            await bench.kube.create(queue_object(cohort, name, policy))
        else:
            change = {"spec": {"queuePolicy": policy}}
            await bench.kube.patch("scheduling.x-k8s.io/v1alpha1", "Queue", name, QUEUE_NAMESPACE, patch=change)


async def alone(bench: Bench, share: int) -> float:
    """Jobs per second that the same machine creates, resumes and reports complete where nobody admits them."""
    users = Users(bench.transport, kinds(share), free=True)
    count = users.left
    try:
        return count / await users.run()
    finally:
        await _deleted(bench)


async def _deleted(bench: Bench) -> None:
    for _, queue in queues():
        await bench.transport.request("DELETE", RAYJOBS.path(queue), timeout_s=60)


async def round_of(
    bench: Bench, nats_url: str, share: int, policy: str, layout: str, keep: Path | None = None, **settings: str
) -> dict[str, float]:
    await set_policy(bench, policy)
    users = Users(bench.transport, kinds(share))
    count, useful = users.left, len(queues()) * sum(kind.count * kind.runtime_s * kind.cpu for kind in users.kinds)
    try:
        async with bench.muster(nats_url, "lean", layout, **settings) as running:
            before = await total(running, "muster_kube_requests")
            used, around = cpu(running), others("users and operator")
            took = await users.run()
            used, around = cpu(running) - used, others("users and operator") - around
            log = await proof.commits_of(nats_url, bench.cell)
            requests = await total(running, "muster_kube_requests") - before
            if keep is not None:
                write_log(keep, log)
    finally:
        await _deleted(bench)
    found = {"admissions/s, mean": count / took, "admissions/s, best 5 s": users.best()}
    for kind in users.kinds:
        found[f"mean wait, {kind.name}, s"] = statistics.fmean(users.waits(kind))
    return {
        **found,
        "useful utilisation, %": 100 * useful / (NOMINAL * QUEUES * COHORTS * took),
        "API requests per job": requests.total() / count,
        **{f"of these, {what}": times / count for what, times in sorted(requests.items()) if times > count / 200},
        "evictions": float(sum(job.evictions for job in users.jobs.values())),
        **evictions(log),
        "from the first creation to the last end, s": took,
        **stages(log),
        "CPU of the machine in use, %": 100 * (used + around).total() / (1000 * took * (os.cpu_count() or 1)),
        "CPU of all services per job, ms": used.total() / count,
        **{f"CPU of {name} per job, ms": spent / count for name, spent in sorted(around.items())},
        **{f"CPU of {name} per job, ms": spent / count for name, spent in sorted(used.items())},
    }


async def measure(
    share: int,
    rounds: int,
    say: Progress,
    policy: str = "Priority",
    layouts: Sequence[str] = (*FORMS,),
    *,
    preempt: bool = True,
    keep: Path | None = None,
) -> list[Table | Grid]:
    """``share``: run one such part of the jobs. ``preempt``: as Kueue does. ``keep``: where to write the log."""
    found: dict[str, list[dict[str, float]]] = {layout: [] for layout in layouts}
    with tempfile.TemporaryDirectory() as folder:
        async with (
            ControlPlane(prepare=furnish, scheduler=False, kwok=False, echo=say) as plane,
            EmbeddedServer() as nats,
        ):
            transport = await connect(FromKubeconfig(str(plane.kubeconfig)))
            async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
                for _, name in queues():
                    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
                assert await kube.find(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system") is None
                await kube.create(tree(preempt=preempt))
                bench = Bench(plane, kube, transport, Path(folder))
                for number in range(1, rounds + 1):
                    say(f"Kueue's baseline, round {number}: without Muster")
                    bare = await alone(bench, share)
                    for layout in layouts:
                        say(f"Kueue's baseline, round {number}: layout {layout}")
                        made = await round_of(bench, nats.url, share, policy, layout, keep)
                        rates = {
                            "jobs/s without Muster, same round": bare,
                            "admissions/s, mean, share of the rate without Muster": made["admissions/s, mean"] / bare,
                        }
                        found[layout].append({**made, **rates})
                say("Kueue's baseline: where its CPU goes")
                with sampled() as samples:
                    await round_of(bench, nats.url, share, policy, layouts[0], **samples.settings)
                    spent = samples.grid("Kueue's baseline: where its CPU goes")
            await transport.close()
    jobs = len(queues()) * sum(kind.count for kind in kinds(share))
    return [
        *(Table(TITLES[each], about(jobs, each), _beside(found[each])) for each in found),
        spent,
    ]


def _beside(rounds: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """The figures with Kueue's in brackets."""
    return [
        {f"{name} (Kueue: {KUEUE[name]})" if name in KUEUE else name: value for name, value in each.items()}
        for each in rounds
    ]


def about(jobs: int, layout: str) -> str:
    """What the figures of a layout are."""
    return (
        f"{jobs:,} RayJobs in 30 queues of five cohorts on a real kube-apiserver and etcd, profile `lean`, "
        f"{FORMS[layout]}: Kueue's published performance test with a fifth of its jobs, its pace and run "
        "times. In brackets Kueue with the same jobs as its own workloads, on a machine of this kind, once, in its own "
        "harness: its scheduler alone, without the controller that suspends and resumes jobs. Without Muster: the same "
        "jobs in the same round, resumed by their users as soon as they are created. The work alone "
        "takes 13.2 s; the same machine also creates the jobs and reports their ends. Queues reclaim and let higher "
        "priority preempt lower, as in Kueue's test. What bounds it: three writes of every job (created, resumed, "
        "reported complete), of which Muster makes one, compete for one API server. Each holds its quota from its "
        "admission until its end is reported, several times as long as it runs, so that the whole quota is held nearly "
        "all the time and waits follow what the API server gets through. With Kueue its own loop is what its jobs "
        "wait for, the highest priority first."
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--share", type=int, default=1, help="one such part of the jobs")
    parser.add_argument("--policy", default="Priority", choices=["Round", "Priority", "Block"])
    parser.add_argument("--layout", nargs="+", default=[*FORMS], choices=[*FORMS])
    parser.add_argument("--no-preempt", action="store_true", help="nobody gives way to priority")
    parser.add_argument("--keep", type=Path, help="write the log of the last round to this file")
    options = parser.parse_args()
    tables = await measure(
        options.share,
        options.rounds,
        Progress(),
        options.policy,
        options.layout,
        preempt=not options.no_preempt,
        keep=options.keep,
    )
    for table in tables:
        print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
