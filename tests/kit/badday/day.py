"""A day: an installation, users, faults one after the other, and the judge beside it all."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kit.badday import mistakes
from kit.badday.cluster import CANARY, TREE, Cluster, cluster
from kit.badday.doctor import Doctor
from kit.badday.faults import FAULTS, Fault
from kit.badday.feed import Api, Feed
from kit.badday.installed import Installed, manifests, pod_of
from kit.badday.load import Users
from kit.badday.nats import Keys, Nats
from kit.badday.plants import PLANTS, Plant
from kit.badday.player import Player
from kit.badday.stream import Stream, Unanswered
from kit.badday.verdict import HOLE, NEVER_READY, SICK, SILENT, STUCK, UNWHOLE, Judge, Watched
from kit.beside import beside
from kit.proxy import Proxy
from kit.waiting import until

Object = dict[str, Any]
SHIM = Path(__file__).parent / "shim"
GIVE_UP_S = 150.0
PACE_S = 1.2
LASTS_S = 10.0
"""From which length on doctor has to name a fault."""
COPIES_S = 90.0
"""A copy of the log may lack something for so long before somebody has said so."""


@dataclass
class Played:
    """One fault that was played."""

    fault: Fault
    notes: list[str] = field(default_factory=list)
    lasted_s: float = 0.0
    healthy_s: float | None = None
    doctor: list[str] = field(default_factory=list)
    words: str = ""
    """What doctor has to say of it: that of the fault, unless what was done has no effect."""


class Day:
    """Everything there is; `play` one fault, `end` the day."""

    def __init__(
        self, folder: Path, rng: Random, cluster: Cluster, nats: Nats, installed: Installed, judge: Judge, api: Api
    ) -> None:
        self.folder, self.rng, self.cluster, self.nats, self.installed = folder, rng, cluster, nats, installed
        self.judge, self.api = judge, api
        self.users = Users(api, judge, rng, PACE_S)
        self.player = Player(api, rng)
        self.proxies: dict[str, list[Proxy]] = {}
        self.history: list[Played] = []
        self.began = time.monotonic()
        self.doctor = Doctor(folder, cluster, nats, installed.shim)
        self.stream = Stream(nats.url, nats.keys.seed("admin"), nats.keys.context(), judge.tell, judge.heard_commit)
        self._lost_until = 0.0
        self._grounds: set[int] = set()
        self._behind: dict[str, float] = {}
        self._away = Watched()
        self._emptied: set[tuple[str, str]] = set()
        """Server and stream: a store that was emptied, for the server never got the log."""

    @property
    def played(self) -> int:
        return len(self.history)

    def note(self, text: str) -> None:
        self.history[-1].notes.append(text)

    # --- what runs beside ---------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """The judge's ears and the kubelets', until cancelled."""
        pods = Feed(self.api, "/api/v1/pods", self._heard_pod, self.judge.after_pods)
        jobs = Feed(self.api, "/apis/batch/v1/jobs", self.judge.heard_job)
        events = Feed(self.api, "/api/v1/events", self.judge.heard_event)
        async with asyncio.TaskGroup() as tasks:
            for work in (pods.run(), jobs.run(), events.run(), self._look(), self._tick()):
                tasks.create_task(work)

    def _heard_pod(self, kind: str, pod: Object, before: Object | None) -> None:
        self.judge.heard_pod(kind, pod, before)
        self.player.heard(kind, pod, before)

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(Unanswered):
                await self.stream.look()
                await self.stream.sweep()
                if time.monotonic() < self._lost_until:
                    self._grounds.update(self.stream.founded)
                self.judge.judge_stream(self.stream, self._had_ground)
            await asyncio.sleep(1.0)

    def _had_ground(self, generation: int) -> bool:
        """Commits may have been lost, or a server never got the generation before: it has another history of NATS, and
        NATS forgets the stream where it comes to lead.
        """
        have = [server.has(self.stream.name(generation - 1)) for server in self.nats.servers]
        if any(have) and not all(have):
            self._grounds.add(generation)
        return generation in self._grounds

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.judge.tick()
            for pod in [*self.installed.pods(), *(server.container for server in self.nats.servers)]:
                pod.guard()
            if self.judge.calm and int(time.monotonic()) % 5 == 0:
                await self._copies()

    async def _copies(self) -> None:
        """Each server has the same copy of the log in force, or somebody says what is wrong with one."""
        stream = await self.stream.newest()
        copies = {server.name: (await server.copies()).get(stream) for server in self.nats.servers}
        for name, said in copies.items():
            if said:
                self._away.over(name)
            elif self._away.lasts(name, time.monotonic()) > COPIES_S:
                self._away.over(name)
                await self._no_copy(name, stream)
        if not all(copies.values()):
            return
        states = {name: said["state"] for name, said in copies.items() if said}
        newest, now = max(state["last_seq"] for state in states.values()), time.monotonic()
        for name, state in states.items():
            deleted, behind = state.get("num_deleted") or 0, newest - state["last_seq"]
            held = state["last_seq"] - state["first_seq"] + 1 - state["messages"] if state["messages"] else 0
            if not deleted and not held and behind < 500:
                self._behind.pop(name, None)
                continue
            since = self._behind.setdefault(name, now)
            if now - since > COPIES_S:
                said = await self.doctor.ask()
                if not any(name in line for line in said):
                    text = f"{name} misses {deleted or held} commits of {stream} since {now - since:.0f} s"
                    self.judge.tell(HOLE, f"{text}; doctor: {said[:2]}", f"{name} {stream}")

    async def _no_copy(self, name: str, stream: str) -> None:
        """A server goes without the log: doctor names it, and its way out is taken once."""
        told = await self.doctor.ask()
        found = [line for line in told if name in line and f"no copy of {stream}" in line]
        if found and "first what is said of" in found[0]:
            return
        if not found or (name, stream) in self._emptied:
            self.judge.tell(UNWHOLE, f"{name} does not have {stream} for {COPIES_S:.0f} s; doctor: {told[:3]}", name)
            return
        self._emptied.add((name, stream))
        self.say(f"emptied: {found[0][:200]}")
        server = next(server for server in self.nats.servers if server.name == name)
        async with server.container.away(signal.SIGTERM):
            await asyncio.to_thread(shutil.rmtree, server.store, ignore_errors=True)

    # --- faults -------------------------------------------------------------------------------------------------

    async def until(self, asked: Callable[[], bool], limit_s: float) -> bool:
        with contextlib.suppress(AssertionError):
            await until(asked, limit_s, 0.05)
        return asked()

    async def whole_nats(self, limit_s: float) -> bool:
        """Whether each server answers, and JetStream is on; doctor must know a way out for one that stays away."""
        end = time.monotonic() + limit_s
        stream = await self.stream.newest()
        while time.monotonic() < end:
            if all([stream in await server.copies() for server in self.nats.servers]):
                return True
            await asyncio.sleep(0.5)
        for server in self.nats.servers:
            if stream not in await server.copies():
                await self._no_copy(server.name, stream)
        return False

    async def play(self, fault: Fault) -> Played:
        """From its beginning until a fresh Job is let go again."""
        played = Played(fault, words=fault.words)
        self.history.append(played)
        self.judge.calm = False
        if fault.loses:
            self._lost_until = time.monotonic() + 600.0
        began = time.monotonic()
        self.judge.note(f"FAULT {fault.name}")
        asking = asyncio.get_running_loop().create_task(self._consult(played, began))
        try:
            await fault.play(self)
        finally:
            played.lasted_s = time.monotonic() - began
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        played.healthy_s = await self.users.canary(GIVE_UP_S)
        if fault.loses:
            self._lost_until = time.monotonic() + 60.0
        self._verdict(played)
        self._forget()
        self.judge.calm = played.healthy_s is not None
        return played

    def given_up(self) -> bool:
        """The last two faults were not healed at all: what comes would say nothing."""
        return len(self.history) > 1 and all(each.healthy_s is None for each in self.history[-2:])

    async def _consult(self, played: Played, began: float) -> None:
        """What doctor says while the fault lasts."""
        await asyncio.sleep(LASTS_S)
        while True:
            said = await self.doctor.ask()
            played.doctor = said
            if re.search(played.words, "\n".join(said)):
                return
            await asyncio.sleep(5.0)

    def _verdict(self, played: Played) -> None:
        fault, took = played.fault, played.healthy_s
        about = f"{fault.name} ({' '.join(played.notes)})"
        if took is None or took > fault.limit_s:
            text = f"after {about} no fresh job was let go within {took or GIVE_UP_S:.0f} s"
            self.judge.tell(SICK, f"{text}; {self._ailing()}")
        if played.words and played.doctor and not re.search(played.words, "\n".join(played.doctor)):
            self.judge.tell(SILENT, f"{about} for {played.lasted_s:.0f} s: {' / '.join(played.doctor)[:300]}")
        self.say(
            f"{fault.name}: {' '.join(played.notes)}; lasted {played.lasted_s:.0f} s, healthy after "
            f"{'-' if took is None else f'{took:.1f} s'}; {self._figures()}"
        )

    def _ailing(self) -> str:
        ends = [f"{pod.name} ended {[end.code for end in pod.ends[-3:]]}" for pod in self.installed.unready()]
        return "; ".join([*ends, *(line[-250:] for pod in self.installed.unready()[:2] for line in pod.tail(1))])

    def _forget(self) -> None:
        """Ten quiet minutes pass for the back-off of what ended by the fault."""
        for pod in [*self.installed.pods(), *(server.container for server in self.nats.servers)]:
            pod.forget()

    def _figures(self) -> str:
        counts = self.judge.counts
        return (
            f"jobs {self.users.submitted}, resumed {counts['resumed']}, evicted {counts['evicted']}, ended "
            f"{counts['ended']}, waiting {len(self.judge.waiting())}, commits {self.stream.read}"
        )

    def say(self, text: str) -> None:
        say(text)

    def _left(self) -> list[str]:
        """The state of each job that has not ended."""
        return [self.judge.state_of(job) for job in self.judge.jobs.values() if not job.over]

    def _after(self, ended: int) -> Callable[[], bool]:
        """Whether more than ``ended`` jobs have ended, or all."""
        return lambda: self.judge.counts["ended"] > ended or not self._left()

    async def settle(self, limit_s: float) -> None:
        """Nobody submits any more: every job ends. Between two ends ``limit_s`` may pass."""
        self.users.on = False
        while self._left():
            if not await self.until(self._after(self.judge.counts["ended"]), limit_s):
                stuck = self._left()
                self.judge.tell(STUCK, f"none of {len(stuck)} jobs within {limit_s:.0f} s: {'; '.join(stuck[:5])}")
                break
        with contextlib.suppress(Unanswered):
            await self.stream.look()
            await self.stream.verify(2_000)
        self.judge.close()

    # --- the table ----------------------------------------------------------------------------------------------

    def table(self) -> str:
        by: dict[str, list[Played]] = defaultdict(list)
        for played in self.history:
            by[played.fault.name].append(played)
        lines = [f"{'fault':24} {'n':>3} {'median s':>9} {'max s':>7}  doctor"]
        for name, those in sorted(by.items()):
            times = [GIVE_UP_S if each.healthy_s is None else each.healthy_s for each in those]
            told = next((each.doctor[0] for each in reversed(those) if each.doctor), "")
            lines.append(f"{name:24} {len(those):3} {statistics.median(times):9.1f} {max(times):7.1f}  {told[:110]}")
        times = [GIVE_UP_S if each.healthy_s is None else each.healthy_s for each in self.history]
        if times:
            lines.append(f"{'all':24} {len(times):3} {statistics.median(times):9.1f} {max(times):7.1f}")
        lines.append(f"{self._figures()}; gangs {self.users.gangs}; generations {max(self.stream.founded, default=0)}")
        found: dict[str, int] = defaultdict(int)
        for violation in self.judge.violations:
            found[violation.kind] += 1
        for generation, used in self.stream.used_twice.items():
            lines.append(f"generation {generation}: {len(used)} sequences used twice, {used[0]} to {used[-1]}")
        lines.append(f"violations: {dict(found) or 'none'}")
        lines += [f"  {each.at - self.began:6.0f} s  {each.kind}: {each.text}" for each in self.judge.violations]
        return "\n".join(lines)


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


@contextlib.asynccontextmanager
async def day(folder: Path, seed: int, layout: str, *, plant: int = 0) -> AsyncIterator[Day]:
    """Everything is installed and works; users submit."""
    rng = Random(seed)
    objects = manifests(layout)
    keys = Keys(folder / "keys", layout, PLANTS.get(plant))
    judge = Judge(TREE, say)
    shim: Mapping[str, str] = {"PYTHONPATH": str(SHIM), "BADDAY_FOLDER": str(folder)}
    if plant:
        shim = {**shim, "BADDAY_PLANT": str(plant)}
    async with contextlib.AsyncExitStack() as stack:
        judge.record = stack.enter_context((folder / "record").open("w", buffering=1))
        where = await stack.enter_async_context(cluster())
        nats = await stack.enter_async_context(Nats(folder, keys, pod_of(objects, "StatefulSet", "nats")))
        installed = Installed(folder, layout, objects, where, nats, keys, shim)
        plane = where.plane
        api = await stack.enter_async_context(Api(plane.url, plane.admin.token, plane.ca_file))
        made = Day(folder, rng, where, nats, installed, judge, api)
        for name in rng.sample([each for each in installed.deployments if each != "gateway"], 2):
            proxies = [await stack.enter_async_context(Proxy(server.port)) for server in nats.servers]
            made.proxies[f"muster-{name}-1"] = proxies
            installed.urls[f"muster-{name}-1"] = ",".join(proxy.url for proxy in proxies)
        stack.push_async_callback(installed.stop)
        await installed.start()
        for pod in await installed.ready(60.0):
            judge.tell(NEVER_READY, f"{pod.name} within 60 s of its first start", pod.name)
        await made.stream.open()
        stack.push_async_callback(made.stream.close)
        stack.push_async_callback(made.player.stop)
        await stack.enter_async_context(beside(made.watch()))
        say(f"installed: layout {layout}, {len(installed.pods())} pods, seed {seed}, in {folder}")
        took = await made.users.canary(60.0)
        say(f"the first job was let go after {took} s")
        await made.doctor.learn()
        await stack.enter_async_context(beside(made.users.run()))
        judge.calm = True
        yield made


async def play_all(made: Day, minutes: float, only: Sequence[str] = ()) -> None:
    """Faults by chance until the time is over; each kind comes before one comes again."""
    end = time.monotonic() + minutes * 60
    left: list[Fault] = []
    while time.monotonic() < end:
        if not left:
            left = [each for each in FAULTS.values() if not only or each.name in only]
            made.rng.shuffle(left)
        await asyncio.sleep(made.rng.uniform(4.0, 12.0))
        await made.play(left.pop())
        if made.given_up():
            say("no fresh job is let go any more: the day ends here")
            return


async def find(made: Day, plant: Plant, minutes: float) -> float | None:
    """Play the faults of a plant until it is found; after how many seconds, None where it is not."""
    began = time.monotonic()
    known = len(made.judge.violations)

    def found() -> bool:
        return any(each.kind in plant.kinds for each in made.judge.violations[known:])

    while not found():
        if time.monotonic() - began > minutes * 60:
            return None
        for name in plant.faults:
            playing = asyncio.get_running_loop().create_task(made.play(FAULTS[name]))
            while not playing.done() and not found():
                await asyncio.wait({playing}, timeout=1.0)
            if not playing.done():
                playing.cancel()
                await asyncio.gather(playing, return_exceptions=True)
            playing.result() if not playing.cancelled() else None
            await made.until(found, 8.0)
    return time.monotonic() - began


__all__ = ["CANARY", "Day", "day", "mistakes", "play_all", "say"]
