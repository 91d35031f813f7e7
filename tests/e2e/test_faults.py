"""Whatever dies, stops or forgets: no job is lost, run twice or over quota, and the log still proves every decision.

Every service is an OS process (see `kit.fleet`) on a real nats-server and a real API server, under jobs that keep
coming. A witness beside them counts what really runs; `muster replay --verify` and `muster check` judge the log.
"""

import asyncio
import contextlib
import os
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from kit import underload
from kit.cluster import RAY, Cluster
from kit.controlplane import ControlPlane
from kit.fleet import NATS, SERVICES, Fleet
from kit.proxy import Proxy
from kit.story import quota_tree, rayjob
from kit.traffic import TEAMS, tree
from kit.waiting import until
from kit.witness import Witness
from muster.events.decisions import GangAdmitted, QuotaDenied, WorkloadAdopted, WorkloadQueued
from muster.events.effects import EffectApplied

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

AT_ONCE = 4
SEED = int(os.environ.get("MUSTER_TEST_SEED") or random.SystemRandom().randrange(1000))
"""Of the random moments: another one each time, printed; MUSTER_TEST_SEED repeats one."""
LEASE_S = 10.0
"""How long a leader may be silent until another takes over."""
OUTAGE_S = 8.0


class Scene(underload.Scene):
    """`end` proves that nothing went wrong."""

    async def end(self) -> None:
        await self.over()
        assert await self.fleet.happened(QuotaDenied), "there was a queue"
        await self.proven()


@contextlib.asynccontextmanager
async def scene(cluster: Cluster, folder: Path) -> AsyncIterator[Scene]:
    await cluster.kube.create(quota_tree(tree(AT_ONCE)))
    async with Fleet(folder, cluster.plane.kubeconfig) as fleet:
        found = Scene(cluster, fleet, AT_ONCE)
        await found.flowing()
        yield found


async def test_kill_9_of_everything_at_random_moments(cluster: Cluster, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    async with scene(cluster, tmp_path) as stage:
        fleet = stage.fleet
        victims = [*SERVICES, NATS, *rng.sample(SERVICES, 3)]
        rng.shuffle(victims)
        for victim in victims:
            await asyncio.sleep(rng.uniform(0.1, 2.0))
            fleet.kill(victim)
        await stage.end()
        for name in (*SERVICES, NATS):
            assert -9 in fleet.running[name].ends, (name, fleet.running[name].ends)


async def test_paused_leaders_are_replaced_and_change_nothing_when_they_come_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    led = {
        "actuator": ("actuator", "0"),
        "quota-accountant": ("quota_accountant", "0"),
        "queue-sorter": ("queue_sorter", "0"),
        "gang-admitter": ("gang_admitter", "0"),
        "watcher": ("watcher", "rayjobs"),
    }
    async with scene(cluster, tmp_path) as stage:
        fleet = stage.fleet
        for service in led:
            await fleet.add(service, 2)
        await fleet.healthy()
        paused = {}
        for service, (name, shard) in led.items():
            # The first of the two, unless the machine was too busy for it to keep its lease.
            paused[service] = await fleet.leader(name, shard)
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            fleet.pause(paused[service])
        for service, (name, shard) in led.items():

            async def replaced(service: str = service, name: str = name, shard: str = shard) -> bool:
                return await fleet.leader(name, shard) not in ("", paused[service])

            await until(replaced, 6 * LEASE_S, 0.2, what=f"a successor of {service} to lead")
        await stage.flowing()
        for process in paused.values():
            fleet.resume(process)
            await asyncio.sleep(rng.uniform(0.0, 0.3))
        await stage.flowing()
        for process in paused.values():
            await until(
                lambda process=process: fleet.running[process].noted("stands_by"),  # type: ignore[misc]
                60.0,
                what=f"{process}, which was replaced, to say so and stand by",
            )
        await stage.end()
        assert not any(process.ends for process in fleet.running.values())


async def test_the_api_server_is_down_and_has_forgotten(cluster: Cluster, tmp_path: Path) -> None:
    plane = cluster.plane
    async with scene(cluster, tmp_path) as stage:
        await plane.stop_apiserver()
        await compact(plane)
        await asyncio.sleep(OUTAGE_S)
        await plane.start_apiserver()
        await stage.flowing()
        assert await expired(stage.fleet) > 0, "a watch was told 410"
        await stage.end()
        assert not any(process.ends for process in stage.fleet.running.values()), "nobody gives up for it"


async def compact(plane: ControlPlane) -> None:
    """Have etcd forget everything but the present."""
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        async with session.post(f"{plane.etcd_url}/v3/kv/range", json={"key": "AA=="}) as answer:
            revision = (await answer.json())["header"]["revision"]
        async with session.post(
            f"{plane.etcd_url}/v3/kv/compaction", json={"revision": revision, "physical": True}
        ) as answer:
            await answer.read()


async def expired(fleet: Fleet) -> int:
    """How many of the watcher's watches were told that their position is forgotten."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{fleet.running['watcher'].port}/metrics") as answer,
    ):
        text = await answer.text()
    found = re.findall(r'^muster_watch_restarts\w*\{[^}]*reason="expired"[^}]*\} (\d+)', text, re.MULTILINE)
    return sum(map(int, found))


async def test_a_write_that_arrives_after_a_successor_has_acted(cluster: Cluster, tmp_path: Path) -> None:
    """The old actuator has sent its patch and is stopped; it arrives when the job waits again, for another decision."""
    kube, plane = cluster.kube, cluster.plane
    await kube.create(quota_tree(tree(1)))
    await kube.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 10}
    )
    witness = Witness(cluster.transport, tree(1))
    await cluster.follow(witness.follow)
    port = int(plane.url.rpartition(":")[2])
    async with Proxy(port) as proxy:
        slow = tmp_path / "slow.kubeconfig"
        slow.write_text(plane.kubeconfig.read_text().replace(f":{port}", f":{proxy.port}"))
        async with Fleet(tmp_path, plane.kubeconfig, kubeconfigs={"actuator": slow}) as fleet:
            await until(lambda: leads(fleet, "actuator"), what="the actuator to lead")
            await fleet.add("actuator", 2)
            await fleet.healthy()
            held = proxy.hold()
            first = rayjob("first", "video", cpu="1", memory="1G", replicas=1, runtime="1h")
            await cluster.submit(first)
            await until(lambda: fleet.happened(GangAdmitted, "first"), what="the decision")
            await until(lambda: held.count, what="the patch to be on its way")
            fleet.pause("actuator")
            await until(lambda: leads(fleet, "actuator-2"), 6 * LEASE_S, 0.2, what="the successor to lead")
            await cluster.until(lambda: cluster.running("first"), 60.0)
            await until(lambda: fleet.happened(EffectApplied, "first"), what="the successor to say what it did")
            # Its user suspends it; meanwhile somebody is more urgent, so that it has to wait.
            urgent = rayjob("second", "video", cpu="1", memory="1G", replicas=1, runtime="1h", priority_class="urgent")
            await cluster.submit(urgent)
            await until(lambda: fleet.happened(WorkloadQueued, "second"), what="the other to be queued")
            await cluster.patch_job("first", {"spec": {"suspend": True}})
            await cluster.until(lambda: cluster.running("second"), 60.0)
            held.release()
            await until(held.answered, what="the old patch to be answered")
            fleet.resume("actuator")
            await until(lambda: fleet.running["actuator"].noted("stands_by"), 60.0, what="the old actuator to stand by")
            await fleet.healthy()
            found = await cluster.job("first")
            assert found["spec"]["suspend"] is True, "it waits, whatever the old patch said"
            await cluster.delete_job("second")
            await cluster.until(lambda: cluster.running("first"), 60.0)
            await witness.follow.caught_up()
            assert witness.started == {"video/first": 2, "video/second": 1}
            assert not witness.over
            assert not fleet.running["actuator"].ends
            await fleet.judge()


async def leads(fleet: Fleet, name: str) -> bool:
    return await fleet.leader("actuator") == name


async def test_the_log_is_deleted_under_20_running_and_20_waiting(cluster: Cluster, tmp_path: Path) -> None:
    running = [f"{TEAMS[index % 3]}/running-{index}" for index in range(20)]
    # Names that sort the other way round: only what is stored on the objects tells who came first.
    waiting = [f"video/waiting-{99 - index}" for index in range(20)]
    await cluster.kube.create(quota_tree(tree(len(running))))
    witness = Witness(cluster.transport, tree(len(running)))
    await cluster.follow(witness.follow)

    async def submit(job: str, runtime: str) -> None:
        namespace, _, name = job.partition("/")
        await cluster.submit(rayjob(name, namespace, cpu="1", memory="1G", replicas=1, runtime=runtime, ttl_s=0))

    async with Fleet(tmp_path, cluster.plane.kubeconfig) as fleet:
        for job in running:
            await submit(job, "1h")
        await cluster.until(lambda: len(witness.live) == len(running), 60.0, "20 to run")
        for job in waiting:
            await submit(job, "1s")

        async def stamped() -> bool:
            jobs = await cluster.kube.list_objects(RAY, "RayJob", "video")
            marked = [job for job in jobs if "muster.dev/queued-at" in job["metadata"].get("annotations", {})]
            return len(marked) == len(jobs) >= len(waiting)

        await cluster.until(stamped, 60.0, "the waiting to bear when they were queued")

        async def line() -> list[str]:
            shown = await cluster.line("root/video")
            names = [
                entry["name"].removesuffix("-ray-qu") for kind in ("active", "backoff") for entry in shown.get(kind, ())
            ]
            return names if len(names) == len(waiting) else []

        order = await cluster.until(line, 60.0, "the whole queue to be shown")
        assert order != sorted(order)
        await witness.follow.caught_up()
        before = set(witness.live)
        await fleet.delete_log(1)
        await until(lambda: all(fleet.running[name].ends for name in SERVICES), 60.0, what="all to see it")
        await fleet.init_log()
        await fleet.healthy()

        async def known() -> bool:
            adopted, queued = await fleet.happened(WorkloadAdopted), await fleet.happened(WorkloadQueued)
            return (len(adopted), len(queued)) == (len(running), len(waiting))

        await cluster.until(known, 60.0, "everything to be known again")
        assert await fleet.happened(GangAdmitted) == []
        await witness.follow.caught_up()
        assert set(witness.live) == before, "nothing restarts"
        for job in running:
            await cluster.delete_job(*job.split("/")[::-1])
        await cluster.complete(*order, timeout_s=120.0)
        assert [event.ref.name for event in await fleet.happened(GangAdmitted)] == order, "the same order"
        await witness.clean(*running, *waiting)
        await fleet.healthy()
        await fleet.judge()
