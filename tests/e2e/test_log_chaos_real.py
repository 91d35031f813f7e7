"""The chaos of tests/sim/test_log_chaos.py with real processes: a real nats-server, the services as they are shipped.

Jobs keep coming while each round plays one fault of FAULTS, drawn by the seed, and an intruder writes with every key.
Each job ends, started once; what counts of the log replays without divergence. `make chaos MINUTES=60` goes on for an
hour and prints what it counted; here a few rounds are played.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from kit.beside import beside
from kit.fleet import CELL, NATS, SERVICES, Fleet
from kit.hostilelog import hostile, judged
from kit.simulated import cluster, create
from kit.smalldisk import SmallDisk, alive, small_disk
from kit.story import quota_tree, rayjob
from muster.bus.cell import open_log
from muster.bus.connection import connect
from muster.bus.errors import BusError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.events import subjects
from muster.events.envelope import Stored
from muster.fakecluster.apiserver.store import StoredChange
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.model.keys import Ref
from muster.ports import LogGapError, LogGoneError

MINUTES = float(os.environ.get("MUSTER_CHAOS_MINUTES", "0"))
SEED = int(os.environ.get("MUSTER_TEST_SEED", "1"))
ROUNDS = ("truncated", "flipped")
"""What is played where no time is given: other tests have the others alone."""
LIMIT_S = 150.0
"""For the jobs of a round to end: a busy machine, a lease that runs out, NATS that waits for its probe."""
JOBS = 3
DISK_MB = 512
ROOM = 16 << 20

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420 + MINUTES * 60)]


class Scene:
    """A fleet on a simulated cluster, and what was done to it."""

    def __init__(self, fleet: Fleet, simulated: SimCluster, disk: SmallDisk) -> None:
        self.fleet = fleet
        self.simulated = simulated
        self.disk = disk
        self.rng = Random(SEED)
        self.started: Counter[str] = Counter()
        self.made: list[str] = []
        self.refs: list[Ref] = []
        self.counts: Counter[str] = Counter()
        simulated.server.subscribe(self._heard, api.RAYCLUSTERS)

    def _heard(self, change: StoredChange) -> None:
        if change.type == "ADDED":
            self.started[change.object["metadata"]["ownerReferences"][0]["name"]] += 1

    # --- faults -----------------------------------------------------------------------------------------------

    async def killed(self) -> None:
        """One of all, or all at once."""
        for name in self.rng.choice([[each] for each in (*SERVICES, NATS)] + [[*SERVICES, NATS]]):
            self.fleet.kill(name)

    async def stopped(self) -> None:
        """Longer than a lease lasts, or not."""
        name = self.rng.choice([*SERVICES, NATS])
        self.fleet.pause(name)
        await asyncio.sleep(self.rng.choice((2.0, 14.0, 25.0)))
        self.fleet.resume(name)

    async def full(self) -> None:
        self.disk.fill()
        await asyncio.sleep(self.rng.choice((3.0, 25.0)))
        self.disk.make_room()

    async def truncated(self) -> None:
        """The newest part of the log is not on the disk after a crash: a commit, some, or a whole block."""
        cut = self.rng.choice((200, 8_000, 1 << 30))
        await self._spoil(lambda block: os.truncate(block, max(0, block.stat().st_size - cut)))

    async def flipped(self) -> None:
        """A byte in the last block of the log is another."""
        place = self.rng.random()

        def flip(block: Path) -> None:
            body = bytearray(block.read_bytes())
            if body:
                body[int(place * len(body))] ^= 0x55
                block.write_bytes(body)

        await self._spoil(flip)

    async def _spoil(self, change: Callable[[Path], None]) -> None:
        await self.judge()
        generation = (await self.fleet.identity()).generation
        async with self.fleet.running[NATS].down():
            blocks = self.fleet.store.glob(f"**/{subjects.log_stream(CELL, generation)}/msgs/*.blk")
            change(max(blocks, key=lambda block: int(block.stem)))

    # --- a round ----------------------------------------------------------------------------------------------

    async def play(self, fault: str) -> None:
        number = self.counts["rounds"]
        before = (await self._identity())[1]
        names = [f"job-{number}-{index}" for index in range(JOBS)]
        for name in names:
            made = await create(
                self.simulated,
                api.RAYJOBS,
                rayjob(name, runtime="1s", ttl_s=1, replicas=1, cpu="6"),
            )
            self.refs.append(Ref("RayJob", "video", name, made["metadata"]["uid"]))
        self.made += names
        await asyncio.sleep(self.rng.uniform(0.0, 4.0))
        async with beside(self._intrude()):
            act: Callable[[], Awaitable[None]] = getattr(self, fault)
            await act()
            began = time.monotonic()
            persons = await self._over(names)
        took = time.monotonic() - began
        self.counts.update({"rounds": 1, fault: 1, "jobs": len(names), "persons": persons})
        generation = (await self._identity())[1]
        self.counts["generations founded"] += generation > before
        self.counts["back within 30 s"] += took <= 30.0
        self._say(round=number, fault=fault, back_s=round(took, 1), generation=generation, persons=persons)
        for name in names:
            path = f"{api.RAYJOBS.path('video')}/{name}"
            await self.simulated.transport().request("DELETE", path)
        del self.refs[:-JOBS]
        if number % 10 == 9:
            await self.judge()

    async def _over(self, names: list[str]) -> int:
        """The jobs have ended and all is well; returns whether a person had to say that the log is given up."""
        persons, loop = 0, asyncio.get_running_loop()
        end = loop.time() + LIMIT_S
        while not await self._ended(names):
            if loop.time() > end:
                raise AssertionError(f"not all of {names} have ended: {await self._phases()}")
            if loop.time() > end - LIMIT_S / 2 and not persons:
                asked = await self.fleet.muster("log", "recover", "--url", self.fleet.url)
                if asked.code and "--yes" in asked.out + asked.err:
                    persons = 1
                    self._say(person=asked.out[-600:])
                    await self.fleet.muster("log", "recover", "--yes", "--url", self.fleet.url)
            await asyncio.sleep(0.25)
        await self.fleet.healthy()
        return persons

    async def _phases(self) -> dict[str, str]:
        answer = await self.simulated.transport().request("GET", api.RAYJOBS.path("video"))
        return {
            each["metadata"]["name"]: each.get("status", {}).get("jobDeploymentStatus", "")
            for each in json.loads(answer.body)["items"]
        }

    async def _ended(self, names: list[str]) -> bool:
        phases = await self._phases()
        return all(phases[name] == "Complete" for name in names)

    async def _intrude(self) -> None:
        """Write with every key, whatever becomes of it."""
        rng = Random(self.rng.random())
        while True:
            await asyncio.sleep(rng.uniform(0.1, 1.5))
            with contextlib.suppress(BusError, UnansweredError, LogGapError, LogGoneError, OSError, TimeoutError):
                async with asyncio.timeout(5.0), self._log() as (js, log):
                    body_at, epochs = int(time.time() * 1000), await log.end() + 1
                    seat, body = hostile(rng, body_at, self.refs, epochs=epochs)
                    stage, _, shard = seat.partition(".")
                    subject = subjects.log_subject(CELL, log.identity.generation, stage, shard)
                    ack = await js.publish(subject, body, {})
                    self.counts["hostile commits"] += ack is not None and ack.error is None

    @contextlib.asynccontextmanager
    async def _log(self) -> AsyncIterator[tuple[JetStream, JetStreamLog]]:
        connection = await connect(self.fleet.url, name="intruder")
        try:
            js = JetStream(connection)
            yield js, await open_log(js, CELL)
        finally:
            await connection.close()

    async def _identity(self) -> tuple[str, int]:
        identity = await self.fleet.identity()
        return identity.log_id, identity.generation

    async def judge(self) -> None:
        """No job was started twice, and what counts of the log replays."""
        await self.fleet.healthy()
        assert not self.started - Counter(self.made)
        commits: list[Stored] = []
        async with self._log() as (_, log):
            async for batch in log.follow(0):
                if not batch:
                    break
                commits += batch
        self.counts["void"] += await asyncio.to_thread(judged, commits)
        self.counts["commits judged"] += len(commits)

    def _say(self, **what: object) -> None:
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {json.dumps(what)}\n")

    async def probe(self) -> None:
        """What the kubelet does: NATS is started again when its liveness probe fails three times."""
        failed = 0
        nats = self.fleet.running[NATS]
        while True:
            await asyncio.sleep(2.0)
            well = await asyncio.to_thread(alive, self.fleet.folder, nats.port, self.disk.folder, ROOM)
            failed = 0 if well else failed + 1
            if failed == 3:
                failed = 0
                self.counts["starts by the liveness probe"] += 1
                nats.signal(signal.SIGCONT)
                nats.signal(signal.SIGTERM)


FAULTS = ("killed", "stopped", "full", "truncated", "flipped")


async def test_every_job_ends_whatever_dies_and_whoever_writes(tmp_path: Path) -> None:
    init = {"MUSTER_LOG_MAX_BYTES": str(48 << 20)}
    with small_disk(tmp_path / "disk", DISK_MB) as disk:
        async with (
            cluster(tmp_path) as (simulated, kubeconfig),
            Fleet(tmp_path, kubeconfig, init=init, keeper=tmp_path / "archive", store=disk.folder) as fleet,
        ):
            await create(simulated, api.QUOTA_TREES, quota_tree())
            scene = Scene(fleet, simulated, disk)
            end = time.monotonic() + MINUTES * 60
            async with beside(scene.probe()):
                try:
                    for fault in ROUNDS if not MINUTES else ():
                        await scene.play(fault)
                    while time.monotonic() < end:
                        await scene.play(scene.rng.choice(FAULTS))
                    await scene.judge()
                    assert scene.started == Counter(scene.made)
                finally:
                    scene._say(**scene.counts, lives={n: len(p.ends) for n, p in fleet.running.items()})
