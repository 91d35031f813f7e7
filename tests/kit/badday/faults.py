"""What goes wrong on a bad day: each fault from its beginning to its end, and the words by which a person knows it.

A fault notes in `Day.note` what exactly it did. It ends when its cause is gone; healing is measured from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kit.badday.cluster import APISERVER, ETCD, TEAMS
from kit.badday.nats import Server
from kit.badday.supervisor import Container
from kit.badday.verdict import ACCEPTED, NEVER_READY
from kit.simulated import served
from muster.fakecluster.world import SimCluster

if TYPE_CHECKING:
    from kit.badday.day import Day

HEALTHY_S = 30.0
FOUNDED_S = 60.0


@dataclass(frozen=True)
class Fault:
    """``words``: what `muster doctor` must say of one that lasts, a regular expression; empty: nothing in particular.
    ``loses``: acknowledged commits may truly be lost by it, so that the next generation has a ground.
    """

    name: str
    play: Callable[[Day], Awaitable[None]]
    words: str = ""
    limit_s: float = HEALTHY_S
    loses: bool = False


FAULTS: dict[str, Fault] = {}


def fault(words: str = "", *, limit_s: float = HEALTHY_S, loses: bool = False):  # type: ignore[no-untyped-def]
    def known(play: Callable[[Day], Awaitable[None]]) -> Callable[[Day], Awaitable[None]]:
        name = play.__name__.replace("_", " ")
        FAULTS[name] = Fault(name, play, words, limit_s, loses)
        return play

    return known


# --- NATS -------------------------------------------------------------------------------------------------------------


async def _leader(day: Day) -> Server:
    return await day.nats.leader(await day.stream.newest()) or day.rng.choice(day.nats.servers)


async def _followers(day: Day) -> list[Server]:
    leader = await _leader(day)
    return [each for each in day.nats.servers if each is not leader]


@fault()
async def nats_leader_killed(day: Day) -> None:
    server = await _leader(day)
    day.note(server.name)
    server.container.send(signal.SIGKILL)


@fault(r"nats-\d")
async def one_server_down(day: Day) -> None:
    server = day.rng.choice(day.nats.servers)
    day.note(server.name)
    async with server.container.away():
        await asyncio.sleep(day.rng.uniform(12.0, 25.0))


@fault(r"nats-\d|quorum|two of")
async def two_servers_down(day: Day) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for server in day.rng.sample(day.nats.servers, 2):
            day.note(server.name)
            await stack.enter_async_context(server.container.away())
        await asyncio.sleep(day.rng.uniform(12.0, 30.0))


@fault(r"NATS")
async def all_servers_down(day: Day) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for server in day.nats.servers:
            await stack.enter_async_context(server.container.away())
        await asyncio.sleep(day.rng.uniform(12.0, 30.0))


@fault(r"nats-\d")
async def server_stopped(day: Day) -> None:
    server = day.rng.choice(day.nats.servers)
    day.note(server.name)
    server.container.send(signal.SIGSTOP)
    await asyncio.sleep(day.rng.uniform(8.0, 16.0))
    server.container.send(signal.SIGCONT)


async def _full(day: Day, servers: list[Server]) -> None:
    day.note(" ".join(server.name for server in servers))
    for server in servers:
        await asyncio.to_thread(server.disk.fill)
    try:
        await asyncio.sleep(day.rng.uniform(30.0, 60.0))
    finally:
        for server in servers:
            server.disk.make_room()


@fault(r"nats-\d.*(disk|room|JetStream)|(disk|room|JetStream).*nats-\d", limit_s=60.0)
async def disk_full(day: Day) -> None:
    await _full(day, [day.rng.choice(day.nats.servers)])
    # It is over when the probe has had its time: JetStream is on again on each server.
    await day.whole_nats(90.0)


@fault(r"disk|room|JetStream", limit_s=60.0)
async def every_disk_full(day: Day) -> None:
    await _full(day, day.nats.servers)
    await day.whole_nats(90.0)


async def _spoiled(day: Day, change: Callable[[Path], None]) -> None:
    server = day.rng.choice(await _followers(day))
    stream = await day.stream.newest()
    async with server.container.away(signal.SIGTERM):
        blocks = [block for block in server.blocks(stream) if block.stat().st_size]
        if blocks:
            day.note(f"{server.name} {blocks[-1].name}")
            change(blocks[-1])
    await day.whole_nats(90.0)


@fault()
async def flipped_byte(day: Day) -> None:
    place = day.rng.uniform(0.2, 0.9)

    def flip(block: Path) -> None:
        body = bytearray(block.read_bytes())
        body[int(place * len(body))] ^= 0x55
        block.write_bytes(body)

    await _spoiled(day, flip)
    # The copy that was spoiled becomes the one that is read.
    await asyncio.sleep(day.rng.uniform(3.0, 8.0))
    (await _leader(day)).container.send(signal.SIGKILL)


@fault()
async def cut_tail(day: Day) -> None:
    cut = day.rng.choice((200, 8_000, 1 << 30))
    day.note(f"{cut} bytes")
    await _spoiled(day, lambda block: os.truncate(block, max(0, block.stat().st_size - cut)))


async def _copied(day: Day, server: Server, to: Path) -> None:
    """An orderly copy of a store: its server ends, is copied, and starts again."""
    async with server.container.away(signal.SIGTERM):
        await asyncio.to_thread(server.copy, to)
    await day.whole_nats(40.0)


@fault(limit_s=HEALTHY_S + FOUNDED_S, loses=True)
async def stores_set_back(day: Day) -> None:
    """All servers, or two of three, as they were a while ago."""
    servers = day.nats.servers if day.rng.random() < 0.5 else day.rng.sample(day.nats.servers, 2)
    day.note(" ".join(server.name for server in servers))
    for server in servers:
        await _copied(day, server, day.folder / f"copy-{server.name}")
    await asyncio.sleep(day.rng.uniform(10.0, 25.0))
    async with contextlib.AsyncExitStack() as stack:
        for server in day.nats.servers:
            await stack.enter_async_context(server.container.away())
        for server in servers:
            await asyncio.to_thread(server.put_back, day.folder / f"copy-{server.name}")


@fault(limit_s=HEALTHY_S + FOUNDED_S, loses=True)
async def a_quorum_that_forgot(day: Day) -> None:
    """A follower stands still, the leader dies, and the third server comes back as it was before."""
    leader = await _leader(day)
    slow, third = (each for each in day.nats.servers if each is not leader)
    await _copied(day, third, day.folder / "copy-third")
    leader = await _leader(day)
    slow, third = sorted((each for each in day.nats.servers if each is not leader), key=lambda each: each is third)
    day.note(f"leader {leader.name} slow {slow.name} back {third.name}")
    await asyncio.sleep(day.rng.uniform(8.0, 15.0))
    slow.container.send(signal.SIGSTOP)
    await asyncio.sleep(15.0)
    async with leader.container.away():
        async with third.container.away():
            if (day.folder / "copy-third").exists():
                await asyncio.to_thread(third.put_back, day.folder / "copy-third")
        slow.container.send(signal.SIGCONT)
        await asyncio.sleep(20.0)


# --- services ---------------------------------------------------------------------------------------------------------


def _pod(day: Day) -> Container:
    return day.rng.choice(day.installed.pods())


@fault()
async def service_killed(day: Day) -> None:
    deployment = day.rng.choice([*day.installed.deployments.values()])
    victims = deployment.pods if day.rng.random() < 0.5 else [day.rng.choice(deployment.pods)]
    day.note(" ".join(pod.name for pod in victims))
    for pod in victims:
        pod.send(signal.SIGKILL)


@fault()
async def service_stopped(day: Day) -> None:
    """Longer than its lease."""
    pod = _pod(day)
    day.note(pod.name)
    pod.send(signal.SIGSTOP)
    await asyncio.sleep(day.rng.uniform(12.0, 22.0))
    pod.send(signal.SIGCONT)


@fault()
async def everything_killed(day: Day) -> None:
    for pod in day.installed.pods():
        pod.send(signal.SIGKILL)


@fault()
async def rolling_restart(day: Day) -> None:
    """What keeps snapshots first, then what reads them."""
    for deployment in reversed(day.installed.deployments.values()):
        for name in await deployment.roll(60.0):
            day.judge.tell(NEVER_READY, f"{name} in a rolling restart", deployment.name)


@fault()
async def two_of_everything(day: Day) -> None:
    made = [(each, await each.add()) for each in day.installed.deployments.values()]
    await asyncio.sleep(day.rng.uniform(15.0, 25.0))
    for deployment, pod in made:
        await deployment.remove(pod)


@fault(r"clock")
async def own_clock_set(day: Day) -> None:
    pod = _pod(day)
    offset = day.rng.choice((-3600, -30, 30, 600, 86_400)) * 1000
    day.note(f"{pod.name} {offset // 1000} s")
    if offset < 0 or any(name in pod.name for name in ("gateway", "publisher", "keeper")):
        day.history[-1].words = ""  # A clock that is behind, and that of one which stamps nothing, change nothing.
    path = day.folder / f"{pod.name}.clock"
    path.write_bytes(struct.pack("<q", offset))
    await asyncio.sleep(day.rng.uniform(12.0, 20.0))
    path.write_bytes(struct.pack("<q", 0))


@fault()
async def cut_from_nats(day: Day) -> None:
    """The bytes of one pod to NATS vanish, and its connections stay open."""
    name = day.rng.choice([*day.proxies])
    day.note(name)
    for proxy in day.proxies[name]:
        proxy.blackhole = True
    await asyncio.sleep(day.rng.uniform(12.0, 22.0))
    for proxy in day.proxies[name]:
        proxy.blackhole = False
        proxy.cut()


@fault(r"cluster")
async def wrong_cluster(day: Day) -> None:
    """One pod of a service has the kubeconfig of another cluster, and the others are away."""
    deployment = day.installed.deployments[day.rng.choice(("watcher", "actuator"))]
    day.note(deployment.name)
    other = SimCluster({"elsewhere": {"cpu": "16", "memory": "64Gi"}})
    folder = day.folder / f"elsewhere-{day.played}"
    folder.mkdir()
    async with served(other, folder) as kubeconfig, contextlib.AsyncExitStack() as stack:
        wrong = await deployment.add(MUSTER_KUBECONFIG=str(kubeconfig))
        for pod in deployment.pods:
            if pod is not wrong:
                await stack.enter_async_context(pod.away(signal.SIGTERM))
        for _ in range(40):
            await asyncio.sleep(1.0)
            if wrong.ready:
                day.judge.tell(ACCEPTED, f"{wrong.name} with another cluster's kubeconfig is ready", str(day.played))
        await deployment.remove(wrong)


# --- the cluster ------------------------------------------------------------------------------------------------------


@fault(r"API server", limit_s=15.0)
async def api_server_away(day: Day) -> None:
    async with day.cluster.plane.outage(APISERVER):
        await asyncio.sleep(day.rng.choice((5.0, 20.0, 60.0)))


@fault(r"API server", limit_s=15.0)
async def watches_expired(day: Day) -> None:
    async with day.cluster.plane.outage(APISERVER):
        await day.cluster.compact()
        await asyncio.sleep(day.rng.uniform(1.0, 12.0))


@fault(r"API server")
async def etcd_stopped(day: Day) -> None:
    async with day.cluster.stopped(ETCD):
        await asyncio.sleep(day.rng.uniform(12.0, 25.0))


@fault()
async def slow_controllers(day: Day) -> None:
    """Controllers hear of everything late, while a team asks back what another has been given a moment ago."""
    borrower, other = day.rng.sample(TEAMS[:2], 2)
    lender = TEAMS[2]
    day.users.on = False
    try:
        for late in day.rng.sample((2.0, 4.0, 7.0, 10.0), 2):
            day.note(f"{late:g} s")
            await day.until(lambda: all(job.over for job in day.judge.jobs.values()), 45.0)
            # All is taken; what waits is known as suspended.
            await day.users.submit(lender, 8, 2, 6.0)
            await day.users.submit(other, 6, 2, 6.0)
            await asyncio.sleep(2.0)
            for _ in range(3):
                await day.users.submit(borrower, 8, 1, 20.0)
            await day.users.submit(other, 8, 1, 20.0)
            await asyncio.sleep(2.0)
            with day.cluster.slow(late):
                before = len(day.judge.resumes)
                await day.until(lambda before=before: len(day.judge.resumes) >= before + 4, 10.0 + 3 * late)  # type: ignore[misc]
                # They have been let go this moment: quota is asked back while they have no pods.
                for _ in range(3):
                    await day.users.submit(lender, 4, 2, 6.0)
                    await asyncio.sleep(0.5)
                await asyncio.sleep(2 * late + 4.0)
    finally:
        day.users.on = True


# --- users ------------------------------------------------------------------------------------------------------------


@fault(limit_s=60.0)
async def suspended_half_way(day: Day) -> None:
    """A user suspends a Job of which three pods of four are done; it is let go for the rest, and runs on."""
    team = day.rng.choice(TEAMS)
    name = await day.users.submit(team, 4, 2, 2.0, 2.0, 2.0, 25.0)
    find = lambda: day.users.found(team, name)  # noqa: E731
    if not await day.until(lambda: (job := find()) is not None and job.succeeded == 3, 60.0):
        return
    await day.users.patch(team, name, {"spec": {"suspend": True}})
    again = await day.until(lambda: (job := find()) is not None and job.stops == 1 and not job.suspended, 40.0)
    day.note(f"{team}/{name} {'runs for the rest' if again else 'waits'}")
    await asyncio.sleep(15.0)


@fault(limit_s=60.0)
async def another_owner_for_a_moment(day: Day) -> None:
    """While the stages stand still a Job that waits becomes a part of a RayJob, and is by itself again."""
    team = day.rng.choice(TEAMS)
    await day.users.submit(team, 8, 2, 15.0)
    await asyncio.sleep(1.0)
    name = await day.users.submit(team, 1, 16, 2.0)
    owner = await day.users.rayjob(team, name)
    await asyncio.sleep(3.0)
    known = day.users.found(team, name)
    day.note(f"{team}/{name} {'waits' if known is not None and known.suspended else 'runs'}")
    pods = [pod for each in day.installed.deployments.values() if each.decides for pod in each.pods]
    for pod in pods:
        pod.send(signal.SIGSTOP)
    try:
        await day.users.patch(team, name, {"metadata": {"ownerReferences": [owner]}})
        await asyncio.sleep(0.4)
        await day.users.patch(team, name, {"metadata": {"ownerReferences": None}})
        await asyncio.sleep(0.8)
    finally:
        for pod in pods:
            pod.send(signal.SIGCONT)
    await day.until(lambda: (job := day.users.found(team, name)) is None or job.starts > 0, 75.0)
