"""Three real servers of NATS with the shipped accounts and probe: what is wrong with one is named, and put right.

A byte of a copy of the log changes, a disk is full for a while, servers die. What the copies hold is read at the
monitoring port of each server and in its files, not with what is tested.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from kit.beside import beside
from kit.breaking import bad, named
from kit.compose import runnable
from kit.nats import commit
from kit.production import ProductionNats
from kit.simulated import cluster
from kit.smalldisk import alive, small_disk
from kit.threeservers import production, urls_of
from kit.waiting import until
from muster.bus.cell import open_log
from muster.bus.errors import BusError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.events import subjects
from muster.events.envelope import encode_commit
from muster.ports import LogLostError
from muster.runtime.clock import SystemClock
from muster.runtime.connecting import connect_bus
from muster.runtime.process import Process
from muster.runtime.runners import keeping
from muster.runtime.service import open_process
from muster_cli.buschecks import bus_findings
from muster_cli.findings import Finding
from muster_cli.reading import LogPlace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

STREAM = subjects.log_stream("main", 1)
ROOM = 8 << 20
PROBE_S = 0.5


class Cell:
    """Three servers, and the connection of the watcher."""

    def __init__(self, servers: list[ProductionNats], js: JetStream) -> None:
        self.servers = servers
        self.js = js
        self.stored = 1

    async def append(self, count: int, size: int = 0) -> None:
        """So many commits more; one that is not acknowledged is sent again."""
        for _ in range(count):
            self.stored += 1
            body = encode_commit(commit(self.stored))
            await until(lambda body=body: self._stored(body, size), 60.0, 0.1, what="a commit to be stored")  # type: ignore[misc]

    async def _stored(self, body: bytes, size: int) -> bool:
        try:
            ack = await self.js.publish(
                subjects.log_subject("main", 1, "watcher", "pods"), body + b" " * size, {}, timeout_s=1.0
            )
        except (UnansweredError, BusError):
            return False
        return ack is not None and ack.error is None

    async def leader(self) -> ProductionNats:
        info = await self.js.info(STREAM)
        assert info is not None
        return next(each for each in self.servers if each.name == info.cluster.leader)

    async def follower(self) -> ProductionNats:
        leader = await self.leader()
        return next(each for each in self.servers if each is not leader)

    async def lead(self, server: ProductionNats) -> None:
        """Have a server lead the log, as the keeper may."""
        connection = await connect_bus(self.servers[0].config("keeper", url=urls_of(self.servers)), "keeper", print)
        body = {"placement": {"preferred": server.name}}
        try:
            while await self.leader() is not server:
                await JetStream(connection).ask(f"STREAM.LEADER.STEPDOWN.{STREAM}", body)
                await asyncio.sleep(0.2)
        finally:
            await connection.close()

    def equal(self) -> bool:
        """Whether every server says that its copy is whole, and their files hold the same."""
        return len({held(each) for each in self.servers}) == 1 and held(self.servers[0])[0] != "none"

    async def doctor(self) -> list[Finding]:
        config = self.servers[0].config("cli", url=urls_of(self.servers))
        return await bus_findings(LogPlace(config), SystemClock())

    async def doctor_told(self, *options: str) -> str:
        """What the command prints, with the key of user cli."""
        config = self.servers[0].config("cli", url=urls_of(self.servers))
        argv = runnable(["muster", "doctor", "-o", "json", "--url", config.nats_url, *options])
        env = {
            "PATH": os.environ["PATH"],
            "MUSTER_NATS_CA_FILE": str(config.nats_ca_file),
            "MUSTER_NATS_NKEY_FILE": str(config.nats_nkey_file),
            "MUSTER_NATS_INBOX_PREFIX": config.nats_inbox_prefix,
            "MUSTER_NATS_API_PREFIX": config.nats_api_prefix,
        }
        process = await asyncio.create_subprocess_exec(*argv, env=env, stdout=asyncio.subprocess.PIPE)
        try:
            return (await process.communicate())[0].decode()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def held(server: ProductionNats) -> tuple[str, str]:
    """What a server says of its copy, and a digest of what is in its files."""
    url = f"http://127.0.0.1:{server.monitor_port}/jsz?streams=1&accounts=1"
    try:
        with urllib.request.urlopen(url, timeout=5) as page:
            said = json.load(page)
    except OSError:
        said = {}  # It is being started.
    found = [
        each
        for account in said.get("account_details", ())
        for each in account["stream_detail"]
        if each["name"] == STREAM
    ]
    state = {name: found[0]["state"].get(name, 0) for name in ("first_seq", "last_seq", "num_deleted")} if found else {}
    bodies = hashlib.sha256()
    for path in files(server):
        try:
            body = path.read_bytes()
        except FileNotFoundError:
            return ("none", "")  # The copy is being rebuilt.
        for record in records(body):
            bodies.update(record)
    return (str(state) if found else "none", bodies.hexdigest())


def records(body: bytes) -> Iterator[bytes]:
    """Those of a file: length with a bit for headers, sequence, time, subject, message; not the checksum, whose key is
    the number of the file."""
    at = 0
    while at + 4 <= len(body) and (length := int.from_bytes(body[at : at + 4], "little") & 0x7FFFFFFF):
        yield body[at : at + length - 8]
        at += length


def files(server: ProductionNats) -> list[Path]:
    """Those of its copy of the log."""
    return sorted(server.data.glob(f"store/jetstream/*/streams/{STREAM}/msgs/*.blk"))


def flip(server: ProductionNats) -> None:
    """Change a byte of the last file of a stopped server, where it has written three quarters of it."""
    path = files(server)[-1]
    body = bytearray(path.read_bytes())
    body[len(body) * 3 // 4] ^= 0x55
    path.write_bytes(body)


@asynccontextmanager
async def cell(folder: Path, disks: Sequence[Path] = ()) -> AsyncIterator[Cell]:
    async with production(folder, disks) as servers, AsyncExitStack() as stack:
        config = servers[0].config("watcher", url=urls_of(servers))
        connection = await connect_bus(config, "watcher", lambda _, __: None)
        stack.push_async_callback(connection.close)
        yield Cell(servers, JetStream(connection))


@asynccontextmanager
async def kept(made: Cell, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    """The keeper as a process has it, with its own rights; it looks more often."""
    monkeypatch.setattr(keeping, "LOOK_S", 0.3)
    config = made.servers[0].config("keeper", url=urls_of(made.servers), health_port=-1)
    async with AsyncExitStack() as stack:
        process = await open_process(config, "keeper", stack)
        process.add_keeper()
        guard = process.keepers[0].guard
        assert guard is not None
        guard.look_s = 0.3
        async with beside(process.run()):
            yield process


def counted(process: Process, event: str) -> bool:
    return f'event="{event}"'.encode() in process.metrics.render()


async def test_a_damaged_copy_of_the_log_is_named_and_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cell(tmp_path) as made:
        await made.append(200)
        await until(made.equal, what="all to have the same")

        log = await open_log(made.js, "main", create=False)
        digests: dict[int, bytes] = {}
        async for batch in log.follow(0):
            digests |= {stored.seq: stored.digest for stored in batch}
            if not batch:
                break
        # A server whose files were written through before: it does not read again what they end with.
        victim = await made.follower()
        await victim.stop()
        await victim.start()
        await until(lambda: held(victim)[0] == held(made.servers[0])[0], what="it to be back")
        await made.append(2)
        await until(made.equal)
        await victim.stop(signal.SIGKILL)
        flip(victim)
        await victim.start()
        await until(lambda: not held(victim)[0].endswith(("none", "'num_deleted': 0}")), what="the hole")
        said = await made.doctor()
        assert named(said, f"NATS server {victim.name}: its copy of {STREAM} lacks", "logs deploy/muster-keeper")
        await made.lead(victim)
        lacking = [seq for seq in digests if await made.js.get(STREAM, seq) is None]
        assert lacking, "what JetStream answers is what the leader has"
        for seq in (lacking[0], lacking[-1]):
            await log.prove(seq, digests[seq])
        with pytest.raises(LogLostError):
            await log.prove(lacking[0], digests[lacking[0] - 1])
        async with kept(made, monkeypatch) as process:
            await until(made.equal, 30.0, 0.2, what="the hole to be filled")
            assert counted(process, "log_copy_damaged")
            assert not counted(process, "log_copy_not_rebuilt")
            assert "3 of 3 up; 3 whole copies" in str(await until(lambda: fine(made), 20.0))

            # The same byte under a server that does not look: only reading the copies shows it.
            leader = await made.leader()
            await leader.stop()
            flip(leader)
            await leader.start()
            await until(lambda: not made.equal(), what="the files to differ")
            await made.append(1)
            await until(made.equal, 60.0, 0.2, what="what cannot be read to be rebuilt")

            async def as_before() -> bool:
                info = await made.js.info(STREAM)
                assert info is not None
                marked = any("muster.dev" in name for name in info.config["metadata"])
                return info.config["num_replicas"] == 3 and info.state.messages == made.stored and not marked

            await until(as_before, 30.0, 0.2, what="the stream to have three replicas, every message and no mark")


async def fine(made: Cell) -> list[Finding]:
    """What the doctor says of the servers, once it finds nothing wrong with them."""
    found = [each for each in await made.doctor() if each.title.startswith("NATS server")]
    return [] if bad(found) else found


async def supervised(made: Cell, folder: Path) -> None:
    """Starts a server again whose probe has failed three times, as a kubelet does."""
    failed = dict.fromkeys((each.name for each in made.servers), 0)
    while True:
        for each in made.servers:
            well = await asyncio.to_thread(alive, folder, each.monitor_port, each.data, ROOM)
            failed[each.name] = 0 if well else failed[each.name] + 1
            if failed[each.name] == 3:
                failed[each.name] = 0
                await each.stop()
                await each.start()
        await asyncio.sleep(PROBE_S)


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.nightly)])
async def test_full_disks_are_named_and_a_start_that_helps_is_made(tmp_path: Path, count: int) -> None:
    async with AsyncExitStack() as stack:
        disks = [stack.enter_context(small_disk(tmp_path / f"disk-{index}", 64)) for index in range(3)]
        made = await stack.enter_async_context(cell(tmp_path, [each.folder for each in disks]))
        await made.append(3)
        full = [made.servers.index(await made.follower())] if count == 1 else [0, 1, 2]
        for index in full:
            disks[index].fill()
        if count == 1:
            await made.append(60, 100_000)
        else:
            await until(lambda: spent(made), 30.0, what="JetStream to be off")
        told = await named_soon(made, [made.servers[index].name for index in full], "JetStream is off")
        assert count == 1 or named(told, "no quorum", "get pods")
        probes = [(tmp_path, made.servers[index].monitor_port, disks[index].folder, ROOM) for index in full]
        assert all(alive(*each) for each in probes), "a start would change nothing"
        for index in full:
            disks[index].make_room()
        assert not any(alive(*each) for each in probes), "a start would help"
        async with beside(supervised(made, tmp_path)):
            await made.append(1)
            await until(made.equal, 60.0, 0.2, what="all to have the same again")
            await until(lambda: fine(made), 30.0, what="the doctor to find nothing")
        if count == 1:
            for index in (0, 2):
                await made.servers[index].stop(signal.SIGKILL)
            told = await named_soon(made, ["nats-0", "nats-2"], "down")
            assert named(told, "no quorum: nothing is stored until 2 servers are up", "get pods")
            async with cluster(tmp_path) as (_, kubeconfig), asyncio.timeout(40.0):
                told_at_once = await made.doctor_told("--kubeconfig", str(kubeconfig), "--context", "muster")
            assert "NATS server nats-0" in told_at_once


async def spent(made: Cell) -> bool:
    """Whether something more cannot be stored."""
    try:
        await made.js.publish(subjects.log_subject("main", 1, "watcher", "pods"), b" " * 100_000, {}, timeout_s=1.0)
    except (UnansweredError, BusError):
        return True
    return False


async def named_soon(made: Cell, names: Sequence[str], words: str) -> list[Finding]:
    """What the doctor says, once it says of each of these servers that it is so."""

    async def asked() -> list[Finding]:
        found = await made.doctor()
        return found if all(named(found, f"NATS server {name}: {words}", "nats-") for name in names) else []

    began = asyncio.get_running_loop().time()
    told = await until(asked, 30.0, what=f"the doctor to name {names}")
    assert asyncio.get_running_loop().time() - began < 20.0
    return told
