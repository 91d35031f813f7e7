"""What a process lacks for its work is beside the log as long as it lacks it, and no longer."""

import asyncio

import pytest

from kit.beside import beside
from kit.nats import SMALL
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.runtime import endings
from muster.runtime.config import Config

TIMES = {"UNREADY_S": 0.2, "LOOK_S": 0.05, "LASTED_S": 0.5, "AGAIN_S": 0.3}


async def test_words_last_as_long_as_the_lack(
    nats_server: EmbeddedServer, js: JetStream, cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_stores(js, cell, create=True, limits=SMALL)
    await open_log(js, cell, create=True, limits=SMALL, at=1)
    for name, value in TIMES.items():
        monkeypatch.setattr(endings, name, value)
    config, lacks = Config(nats_url=nats_server.url, cell=cell), ["no leader"]

    async def told() -> dict[str, endings.ProcessEnd]:
        return await endings.endings(js, cell)

    async def silent() -> bool:
        return await told() == {}

    async with beside(endings.tell_lacks(config, "watcher", lambda: lacks)):
        first = (await until(told, 10.0))["watcher"]
        assert (first.why, first.waits) == ("no leader", True)

        async def again() -> bool:
            return (await told())["watcher"].at > first.at

        await until(again, 10.0, what="it to say so again")
        lacks.clear()
        await until(silent, 10.0, what="its words to be gone")
        await endings.write_ending(config, "watcher", ValueError("broken"), 1)
    assert (await told())["watcher"].why == "broken"
    lacks.append("a moment")
    async with beside(endings.tell_lacks(config, "watcher", lambda: lacks)):
        await asyncio.sleep(0)
        lacks.clear()
        await until(silent, 10.0, what="a process that lasts to remove what one before it said")
