"""Muster as docker-compose.yml runs it: nats-server and every service a process of its own, restarted when it dies.

The commands, environments and health checks are the file's (see `kit.compose`), the accounts of NATS those that are
shipped (`kit.accounts`); ports, addresses and paths are ours.
Tests kill, pause and double what runs. `judge` asks of the log what `muster` says of it: that it replays without a
divergence under two hash seeds, and keeps every invariant.
"""

import asyncio
import contextlib
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from kit import proof
from kit.accounts import Accounts, violations
from kit.beside import still_running
from kit.cli import Cli, Result
from kit.compose import FILE, KEYS, Running, services
from kit.waiting import until
from muster.bus.cell import open_log
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.public import CE_ID
from muster.bus.server import free_port
from muster.events import subjects
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.events.system import LeaderStarted
from muster.ports import LogIdentity

E = TypeVar("E", bound=Event)

NATS, CREATION = "nats", "log-init"
SERVICES = [name for name in services() if name not in (NATS, CREATION, KEYS)]
RESTART_S = 0.2
"""Between the end of a process and its restart, as Docker waits."""
CELL = "main"


class Supervised(Running):
    """A process that is started again whenever it ends, until told to stop."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.ends: list[int] = []
        """How it ended so far: exit codes, signals as negative numbers"""
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            assert self._process is not None
            self.ends.append(await self._process.wait())
            await asyncio.sleep(RESTART_S)
            await super().start()

    async def healthy(self) -> bool:
        """Also false between its end and its restart."""
        self.guard()
        assert self._process is not None
        return self._process.returncode is None and await super().healthy()

    @contextlib.asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Killed, and started again only after the block."""
        assert self._keeper is not None
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        self.signal(signal.SIGKILL)
        await self.finished()
        yield
        await self.start()

    def guard(self) -> None:
        """Raises what keeps it from being started again."""
        assert self._keeper is not None
        still_running(self._keeper)

    def signal(self, number: signal.Signals) -> None:
        """To the process that runs now, if one does."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def stop(self) -> tuple[int, float]:
        assert self._keeper is not None
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        self.signal(signal.SIGCONT)
        return await super().stop()

    def noted(self, event: str) -> list[dict[str, Any]]:
        """What it has logged under this name, in every life."""
        lines = self.log.read_text(errors="replace").splitlines()
        whole = [line for line in lines if line.startswith("{") and line.endswith("}")]
        found = [json.loads(line) for line in whole if f'"{event}"' in line]
        return [line for line in found if line.get("event") == event]

    def lives(self) -> set[str]:
        """The names under which it has been a process of the cell."""
        return {line["process"] for line in self.noted("log_opened")}


class Fleet:
    """`async with Fleet(folder, kubeconfig) as fleet`: everything runs and is healthy."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        *,
        kubeconfigs: Mapping[str, Path] | None = None,
        init: Mapping[str, str] | None = None,
        keeper: Path | None = None,
        env: Mapping[str, str] | None = None,
        store: Path | None = None,
    ) -> None:
        """``init``: variables for the founding of the log; ``keeper``: folder the keeper archives to; ``env``:
        variables of every service; ``store``: folder of NATS, on a small disk.
        """
        self.folder = folder
        self.store = (store or folder) / "jetstream"
        self._small = store is not None
        self.running: dict[str, Supervised] = {}
        """What runs, by name; a second replica of a service is `<service>-2`."""
        self._kubeconfig = kubeconfig
        self._kubeconfigs = dict(kubeconfigs or {})
        self._init = dict(init or {})
        self._archive = keeper
        self._env = dict(env or {})
        self._port = free_port()
        self._cli = Cli(folder / "cli")
        self._accounts = Accounts(folder / "keys")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        try:
            await self._start_nats()
            await self.init_log()
            await asyncio.gather(*(self.add(name) for name in SERVICES))
            await self.healthy()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        try:
            if err is not None:
                err.add_note(await self._account())
            else:
                for process in self.running.values():
                    process.guard()
                refused = violations(self.running[NATS].log.read_text(errors="replace"))
                assert not refused, refused[:3]
        finally:
            await self.stop()

    async def _account(self) -> str:
        """What the log ends with and which process has ended or complained, for a reader of a failure."""
        try:
            async with asyncio.timeout(10.0):
                lines = [proof.ending(await self.commits())]
        except Exception as missing:  # The account must not hide the failure it is about.
            lines = [f"the log cannot be read: {missing!r}"]
        ends = {name: process.ends for name, process in self.running.items() if process.ends}
        lines.append(f"ended so far: {ends}")
        for name, process in self.running.items():
            said = process.log.read_text(errors="replace").splitlines()
            lines += [f"{name}: {line}" for line in said if '"warning"' in line or '"error"' in line][-1:]
            lines += [f"{name}: {line}" for line in said[-1:]]
        return "\n".join(lines)

    async def stop(self) -> None:
        others = [process for name, process in self.running.items() if name != NATS]
        await asyncio.gather(*(process.stop() for process in others))
        if NATS in self.running:
            await self.running[NATS].stop()
        self.running.clear()

    async def _start_nats(self) -> None:
        monitor, config = free_port(), self.folder / "nats.conf"
        text = (FILE.parent / "deploy" / "nats" / "compose.conf").read_text()
        text = re.sub(r"^include .*$", "", text.replace("/data/jetstream", str(self.store)), flags=re.M)
        text += self._accounts.config
        if self._small:  # What is reserved is not what is there.
            text = text.replace("sync_interval", "max_file_store: 100GB\n  sync_interval")
        config.write_text(text)
        nats = Supervised(
            NATS, self.folder, monitor, {}, ["-a", "127.0.0.1", "-p", str(self._port), "-m", str(monitor)]
        )
        nats.argv[nats.argv.index("--config") + 1] = str(config)
        self.running[NATS] = nats
        await nats.start()
        await nats.until_healthy()

    async def init_log(self) -> None:
        """`docker compose up log-init`: the log, or its next generation when it is gone."""
        creation = Running(
            CREATION, self.folder, 0, {**self._accounts.env("admin"), "MUSTER_NATS_URL": self.url, **self._init}
        )
        await creation.start()
        assert await creation.finished() == 0, creation.tail()

    async def add(
        self, service: str, replica: int = 1, *, program: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> Supervised:
        """Start a service, or a further replica of it. ``program``: run that instead, as Python is told; ``env``: more
        variables.
        """
        name = service if replica == 1 else f"{service}-{replica}"
        port = free_port()
        known = {
            **self._env,
            **(env or {}),
            **self._accounts.env(service.replace("-", "_")),
            "MUSTER_NATS_URL": self.url,
            "MUSTER_HEALTH_HOST": "127.0.0.1",
            "MUSTER_HEALTH_PORT": str(port),
        }
        if service == "keeper":
            known["MUSTER_LOG_ARCHIVE"] = str(self._archive or "")
        if "MUSTER_KUBECONFIG" in services()[service].env:
            known["MUSTER_KUBECONFIG"] = str(self._kubeconfigs.get(name, self._kubeconfig))
        process = Supervised(service, self.folder, port, known, name=name)
        if program:
            process.argv = [sys.executable, *program]
        self.running[name] = process
        await process.start()
        return process

    async def remove(self, name: str) -> Supervised:
        """Have a process end for good."""
        process = self.running.pop(name)
        await process.stop()
        return process

    async def healthy(self) -> None:
        """Return once every process is."""

        async def all_healthy() -> bool:
            for process in self.running.values():
                process.guard()
                with contextlib.suppress(AssertionError):
                    if await process.healthy():
                        continue
                return False
            return True

        try:
            await until(all_healthy, 90.0, 0.2)
        except AssertionError as err:
            ends = {name: process.ends for name, process in self.running.items()}
            tails = "\n".join(process.tail() for process in self.running.values() if process.ends)
            raise AssertionError(f"not everything became healthy; ended so far: {ends}\n{tails}") from err
        for process in self.running.values():
            # Another may be healthy in its place, where both were to serve at one port.
            served = max((line["timestamp"] for line in process.noted("health_served")), default="")
            stuck = [line["message"] for line in process.noted("cannot_start") if line["timestamp"] > served]
            assert not stuck, f"{process.name}: {stuck[-1]}"

    def kill(self, name: str) -> None:
        self.running[name].signal(signal.SIGKILL)

    def pause(self, name: str) -> None:
        self.running[name].signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.running[name].signal(signal.SIGCONT)

    async def commits(self) -> list[Stored]:
        return await proof.commits_of(self.url, CELL)

    async def happened(self, kind: type[E], name: str = "") -> list[E]:
        """Events of one type in the log; `name`: only those about an object of that name."""
        found = [event for stored in await self.commits() for event in stored.commit.events if isinstance(event, kind)]
        return [event for event in found if not name or getattr(getattr(event, "ref", None), "name", "") == name]

    async def leader(self, stage: str, shard: str = "0") -> str:
        """Which of ours leads a stage: the name it runs under here; empty for one that runs no more."""
        newest = ""
        for stored in await self.commits():
            if (stored.commit.stage, stored.commit.shard) == (stage, shard):
                newest = next((e.process for e in stored.commit.events if isinstance(e, LeaderStarted)), newest)
        return next((name for name, process in self.running.items() if newest in process.lives()), "")

    async def identity(self) -> LogIdentity:
        """Of the generation in force."""
        connection = await connect(self.url, name="onlooker")
        try:
            return (await open_log(JetStream(connection), CELL)).identity
        finally:
            await connection.close()

    async def delete_log(self, generation: int) -> None:
        """As somebody does by mistake who may do everything: the stream with every commit."""
        connection = await connect(self.url, name="mistake")
        try:
            await JetStream(connection).delete(subjects.log_stream(CELL, generation))
        finally:
            await connection.close()

    async def published(self, event: str) -> list[str]:
        """namespace/name of everything an outsider reads this event of, each ce-id once."""
        connection = await connect(self.url, name="outsider")
        found: dict[str, str] = {}
        try:
            js, seq = JetStream(connection), 1
            while message := await js.next(subjects.PUBLIC_STREAM, f"muster.pub.v1.{CELL}.{event}.>", seq):
                seq = message.seq + 1
                found[message.headers[CE_ID]] = "/".join(message.subject.split(".")[-2:])
        finally:
            await connection.close()
        return list(found.values())

    async def muster(self, *arguments: str) -> Result:
        """What a command says to the user who looks after the log."""
        return await self._cli.run(*arguments, **self._accounts.env("admin"))

    async def start_muster(self, *arguments: str) -> asyncio.subprocess.Process:
        """A command as a process of its own, to be killed."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "muster_cli",
            *arguments,
            stdout=asyncio.subprocess.DEVNULL,
            env=self._cli.environ(**self._accounts.env("admin")),
        )

    async def judge(self, *, silences: bool = True) -> None:
        """What `muster export`, `muster replay --verify` and `muster check` say; AssertionError with their words.

        `silences`: also that nothing was due where a stage kept quiet; not where the log could not be written to.
        """
        path = self.folder / "log.jsonl.gz"
        reading = self._accounts.env("cli")
        (await self._cli.run("export", "--url", self.url, "--out", str(path), **reading)).ok()
        replaying = ["replay", "--log", str(path), *(["--verify"] if silences else [])]
        told: list[Result] = await asyncio.gather(
            *(self._cli.run(*replaying, PYTHONHASHSEED=seed) for seed in proof.HASH_SEEDS),
            self._cli.run("check", "--log", str(path)),
        )
        for result in told:
            result.ok()
        last = {result.lines[-1] for result in told[:-1]}
        assert len(last) == 1, last
        assert re.fullmatch(r"[1-9]\d* commits, 0 divergent", last.pop()), told
