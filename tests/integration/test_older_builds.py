"""Logs of the builds of the last three resolved issues go on under this build; older ones are refused in a sentence.

What each of these builds said at the end of its log (who runs, who waits in which order, what is charged) is what this
build says of the generation that it begins with their states. `make compat` runs the builds themselves.
"""

import asyncio
import json
import shlex
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from kit.cli import Cli
from kit.compose import REPOSITORY
from kit.nats import SMALL
from kit.older import BUILDS, TOO_OLD, Build, Standing
from kit.pages import blocks, lines
from kit.waiting import until
from muster.bus.cell import open_log, open_stores, own_genesis
from muster.bus.generations import JetStreamGenerations
from muster.bus.importing import import_log
from muster.bus.jetstream import JetStream
from muster.bus.log import Body
from muster.bus.marks import give_up
from muster.bus.server import EmbeddedServer
from muster.events.subjects import log_stream
from muster.events.wire import WIRE
from muster.ports import RollError
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config
from muster.runtime.logkeeping import rolling
from muster.runtime.logkeeping.logfile import read_log
from muster.runtime.logkeeping.rolling import roll
from muster.runtime.service import open_process

UPGRADE = REPOSITORY / "docs" / "howto" / "upgrade.md"


def bodies(path: Path) -> list[Body]:
    return [Body(stored.seq, stored.body, "", stored.subject, stored.stored_at) for stored in read_log(path)]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


async def standing(cli: Cli, url: str, cell: str) -> Standing:
    where = ("--url", url, "--cell", cell, "-o", "json")
    jobs, tree = await asyncio.gather(cli.run("ls", *where), cli.run("queue", "tree", *where))
    return Standing.of(jobs.ok().json(), tree.ok().json())


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.commit)
async def test_an_upgrade_keeps_order_charges_and_running_jobs(
    cli: Cli, js: JetStream, cell: str, nats_server: EmbeddedServer, build: Build
) -> None:
    assert build.log.stat().st_size < 100_000
    said = json.loads(build.said.read_text())
    before = Standing.of(said["ls"], said["tree"])
    assert before.running
    assert before.order
    await open_stores(js, cell, create=True, limits=SMALL)
    log = await import_log(js, cell, bodies(build.log), limits=SMALL)
    old = log_stream(cell, 1)
    begun = await js.info(old)
    assert begun is not None
    config, waits = Config(nats_url=nats_server.url, cell=cell, health_port=-1), list[str]()
    async with AsyncExitStack() as stack:
        sorter = asyncio.ensure_future(open_process(config, "queue-sorter", stack, tell=waits.append))
        await until(lambda: bool(waits), what="the sorter to wait for the keeper")
        assert waits[0] == (
            f"generation 1 has wire {build.wire}, and this build appends to wire {WIRE}: the keeper begins the next "
            "generation from its states"
        )
        now = await js.info(old)
        assert now is not None
        assert now.state.last_seq == begun.state.last_seq, "nothing is written to a generation of another wire"
        assert not sorter.done()
        await open_process(config, "keeper", stack, keeping=True)
        opened = (await sorter).log.identity
    assert (opened.generation, opened.first) == (2, log.identity.first + begun.state.messages)
    genesis = await own_genesis(js, cell, 2, opened.first)
    assert genesis is not None
    assert (genesis.wire, genesis.by, bool(genesis.state)) == (WIRE, "keeper", True)
    after = await standing(cli, nats_server.url, cell)
    after.end = before.end  # The genesis of generation 2 lies between.
    assert after == before


async def test_going_back_begins_a_generation_that_the_earlier_build_appends_to(
    cli: Cli, js: JetStream, cell: str, nats_server: EmbeddedServer
) -> None:
    await open_stores(js, cell, create=True, limits=SMALL)
    begun = (await open_log(js, cell, create=True, limits=SMALL)).identity
    where = ("--url", nats_server.url, "--cell", cell)
    refused = await cli.run("log", "roll", "--wire", str(WIRE + 1), *where)
    assert refused.code != 0
    assert f"this build knows the wires 0, 1, {WIRE}: --wire {WIRE + 1} is none of these" in refused.err
    [command] = [line for block in blocks(UPGRADE) for line in lines(block) if "--wire" in line]
    told = (await cli.run(*shlex.split(command)[1:], *where)).ok()
    assert "has wire 1 and begins from the cluster" in told.out
    genesis = await own_genesis(js, cell, 2, 1)
    assert genesis is not None
    assert (genesis.wire, genesis.reason, genesis.state) == (1, "back to the version before", "")
    sealed = await js.info(log_stream(cell, 1))
    assert sealed is not None
    assert sealed.config["sealed"]
    again = (await cli.run("log", "roll", "--wire", "1", *where)).ok()
    assert "Generation 2" in again.out
    assert "has wire 1 already: nothing to do" in again.out
    # The other way, and a process that goes back from generation 1 late.
    (await cli.run("log", "roll", *where)).ok()
    newest = (await open_log(js, cell)).identity
    late = await give_up(js, begun, 1, by="late")
    assert late.log_id == genesis.log_id
    assert (await open_log(js, cell)).identity == newest
    assert newest.generation == 3


async def test_where_no_state_can_be_read_the_next_generation_begins_from_the_cluster(
    cli: Cli, js: JetStream, cell: str, nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_stores(js, cell, create=True, limits=SMALL)
    await open_log(js, cell, create=True, limits=SMALL)
    generations = JetStreamGenerations(js, cell)
    await roll(generations, clock=SystemClock())
    await js.delete(log_stream(cell, 1))
    with monkeypatch.context() as other, pytest.raises(RollError, match="muster log roll --from-cluster"):
        other.setattr(rolling, "state_schema", lambda _kind: "another")
        await roll(generations, clock=SystemClock())
    (await cli.run("log", "roll", "--from-cluster", "--url", nats_server.url, "--cell", cell)).ok()
    genesis = await own_genesis(js, cell, 3, 1)
    assert genesis is not None
    assert (genesis.wire, genesis.state) == (WIRE, "")


async def test_a_log_that_is_older_is_refused_by_the_commit_that_reads_it(
    cli: Cli, js: JetStream, cell: str, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    sentence = "unknown event type clearing_proposed"
    way = "the last build that reads it is commit f3a06c66"
    file = tmp_path / "older.jsonl.gz"
    shutil.copy(TOO_OLD, file)
    for command in ("ls", "replay"):
        refused = await cli.run(command, "--log", str(file))
        assert refused.code != 0
        assert sentence in refused.err, refused.err
        assert way in refused.err, refused.err
    # The same event in a log on NATS, whose genesis names no wire.
    *rest, last = [body for body in bodies(BUILDS[0].log) if b'"events":[' in body.data]
    retired = last.data.replace(b'"events":[', b'"events":[{"type":"clearing_proposed","cause":[1,0]},', 1)
    await open_stores(js, cell, create=True, limits=SMALL)
    await import_log(js, cell, [*rest, replace(last, data=retired)], limits=SMALL)
    before = await js.info(log_stream(cell, 1))
    refused = await cli.run("log", "roll", "--url", nats_server.url, "--cell", cell)
    assert refused.code != 0
    assert sentence in refused.err, refused.err
    assert way in refused.err, refused.err
    after = await js.info(log_stream(cell, 1))
    assert before is not None
    assert after is not None
    assert (after.state, after.config.get("sealed")) == (before.state, before.config.get("sealed"))
    assert await js.info(log_stream(cell, 2), checks=1) is None
