"""docs/howto/rotate-keys.md on a real server with the accounts we ship: a key changes while services append and read.

The command makes the keys; its output is put where kubectl would put it.
"""

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import yaml

from kit.cli import Cli
from kit.nats import SMALL, Notices, commit
from kit.production import FILES, Keys, ProductionNats
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import Connection
from muster.bus.errors import ConnectError
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.runtime.config import Config
from muster.runtime.connecting import connect_bus
from muster.runtime.natsaccounts import KEYS, secret_of

KEPT_ON = ("quota_accountant", "gang_admitter", "keeper", "cli")
"""Others, whose connections must not even be lost."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ProductionNats]:
    async with ProductionNats(Keys(tmp_path, (FILES / "accounts.conf").read_text())) as server:
        connection = await connect_bus(server.config("admin"), "admin", lambda _event, _fields: None)
        await open_stores(JetStream(connection), "main", create=True, limits=SMALL)
        await open_log(JetStream(connection), "main", create=True, limits=SMALL, at=1)
        await connection.close()
        yield server


class Appending:
    """A service that appends as long as it may."""

    def __init__(self, stage: str, log: JetStreamLog, last: int = 0) -> None:
        self.stage = stage
        self.log = log
        self.last = last
        self.stored: list[int] = []
        self._ends = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        number = self.last
        while not self._ends:
            number += 1
            self.last = await self.log.append(commit(number, stage=self.stage), expected=self.last)
            self.stored.append(self.last)

    async def goes_on(self) -> None:
        """Three more commits are stored."""
        wanted = len(self.stored) + 3
        await until(lambda: self._task.done() or len(self.stored) >= wanted, what=f"commits of {self.stage}")
        if self._task.done():
            self._task.result()

    async def end(self) -> None:
        self._ends = True
        await self._task


class Site:
    """The files of an installation, and the commands of the page."""

    def __init__(self, server: ProductionNats, folder: Path) -> None:
        self.server = server
        self.cli = Cli(folder / "cli")
        self.conf = server.keys.folder / "keys.conf"

    async def keys(self, *options: str) -> dict[str, bytes]:
        """`muster nats keys --keys keys.conf ...`: the servers have the new file; returns {Secret: seed}."""
        done = (await self.cli.run("nats", "keys", "--keys", str(self.conf), *options)).ok()
        seeds = {}
        for each in yaml.safe_load_all(done.out):
            if each["kind"] == "Secret":
                seeds[each["metadata"]["name"]] = base64.b64decode(each["data"]["seed"])
            else:
                assert each["metadata"]["name"] == KEYS
                assert each["metadata"]["labels"]["muster.dev/keys"] == "public"
                self.conf.write_text(each["data"]["keys.conf"])
        before = self.server.log().count("Reloaded server configuration")
        self.server.reload()
        await until(lambda: self.server.log().count("Reloaded server configuration") > before, what="the reload")
        return seeds


async def test_a_key_changes_while_services_append(server: ProductionNats, tmp_path: Path) -> None:
    site, notices = Site(server, tmp_path), Notices()
    opened: dict[str, Connection] = {}

    async def signs_in(user: str, config: Config | None = None) -> JetStreamLog:
        opened[user] = await connect_bus(config or server.config(user.partition("/")[0]), user, notices)
        return await open_log(JetStream(opened[user]), "main")

    watcher = Appending("watcher", await signs_in("watcher"))
    others = [Appending(stage, await signs_in(stage)) for stage in ("quota_accountant", "gang_admitter")]
    reading = [await signs_in(user) for user in ("keeper", "cli")]

    # The servers accept both keys: the service of before goes on, and its successor signs in.
    seeds = await site.keys("--rotate", "watcher")
    assert [*seeds] == [secret_of("watcher")]
    for each in (watcher, *others):
        await each.goes_on()
    before = tmp_path / "before.nk"
    shutil.copy(server.keys.seed_file("watcher"), before)
    server.keys.seed_file("watcher").write_bytes(seeds[secret_of("watcher")])
    log = await signs_in("watcher/next")
    await watcher.end()
    successor = Appending("watcher", log, watcher.last)
    await successor.goes_on()
    assert opened["watcher"].connected
    assert opened["watcher"].epoch == 1

    # The old key ends; its connection is closed, and does not come back.
    assert await site.keys("--retire", "watcher") == {}
    await until(lambda: opened["watcher"].failure is not None, what="the end of the old connection")
    with pytest.raises(ConnectError, match=r"(?i)authorization"):
        await connect_bus(msgspec.structs.replace(server.config("watcher"), nats_nkey_file=str(before)), "old", notices)
    for each in (successor, *others):
        await each.goes_on()

    for each in (successor, *others):
        await each.end()
    for user in (*KEPT_ON, "watcher/next"):
        assert opened[user].epoch == 1, f"{user} was disconnected: {notices.told}"
    stored = sorted(seq for each in (watcher, successor, *others) for seq in each.stored)
    assert stored == list(range(2, 2 + len(stored)))
    for log in reading:
        assert await log.end() == stored[-1]
    for connection in opened.values():
        await connection.close()


async def test_a_key_is_shut_out_at_once(server: ProductionNats, tmp_path: Path) -> None:
    site = Site(server, tmp_path)
    stolen = await connect_bus(server.config("keeper"), "stolen", Notices())
    seeds = await site.keys("--rotate", "keeper", "--retire", "keeper")
    await until(lambda: stolen.failure is not None, what="the end of the stolen key")
    server.keys.seed_file("keeper").write_bytes(seeds[secret_of("keeper")])
    connection = await connect_bus(server.config("keeper"), "keeper", Notices())
    assert await (await open_log(JetStream(connection), "main")).end() == 1
    await connection.close()
    await stolen.close()
