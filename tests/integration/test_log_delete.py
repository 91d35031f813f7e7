"""Sealed generations are deleted once an archive has them; what is left is read, replayed and exported on its own."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kit.beside import beside
from kit.cli import Cli, Result
from kit.nats import SMALL
from kit.scenario import Play
from kit.seated import bodies, seated
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.importing import import_log
from muster.bus.jetstream import JetStream
from muster.bus.lease import JetStreamLease
from muster.bus.log import JetStreamLog
from muster.bus.public import PublicPublisher
from muster.bus.server import EmbeddedServer
from muster.core.cell.deciders import DECIDERS
from muster.events.envelope import decode_commit, genesis_of
from muster.events.subjects import log_stream
from muster.events.system import Genesis
from muster.runtime.runners.publishing import Publisher

MIB = str(16 << 20)


class Told:
    """A cell whose log is that of a play, rolled over by the command now and then."""

    def __init__(self, cli: Cli, server: EmbeddedServer, js: JetStream, cell: str, folder: Path) -> None:
        self.archive = folder / "archive"
        self.where = ("--url", server.url, "--cell", cell)
        self._cli, self._js, self._cell = cli, js, cell
        self._play = Play()
        self._stored = 0

    async def run(self, *words: str) -> Result:
        return await self._cli.run(*words, *self.where)

    async def log(self) -> JetStreamLog:
        return await open_log(self._js, self._cell)

    async def goes_on(self, *lines: str) -> None:
        """The play goes on, and its commits are appended."""
        for line in lines:
            self._play.line(line)
            self._play.settle()
        fresh = self._play.bench.log[self._stored :]
        if not self._stored:
            await open_stores(self._js, self._cell, create=True, limits=SMALL)
            await import_log(self._js, self._cell, bodies(fresh), limits=SMALL)
        else:
            log = await self.log()
            for each in seated(fresh):
                last = await log.last(each.commit.stage, each.commit.shard)
                assert await log.append(each.commit, expected=last) == each.seq
        self._stored = len(self._play.bench.log)

    async def roll(self, *options: str) -> Genesis:
        """By the command; the play learns of it."""
        (await self.run("log", "roll", *options)).ok()
        identity = (await self.log()).identity
        found = await self._js.get(log_stream(self._cell, identity.generation), identity.first)
        assert found is not None
        genesis, bench = genesis_of(found.data), self._play.bench
        assert genesis is not None
        bench.now = max(bench.now, decode_commit(found.data).at)
        bench.append("genesis", "input", [genesis])
        self._stored = len(bench.log)
        for leader in DECIDERS:  # Each begins anew in the new generation.
            bench.lead(leader, "again")
        return genesis

    async def publish(self) -> None:
        """Outsiders are told all there is."""
        log = await self.log()
        lease = JetStreamLease(self._js, log.identity, "publisher", "0", "test")
        publisher = Publisher(log=log, outlet=PublicPublisher(self._js, self._cell), lease=lease)
        async with beside(publisher.run()):
            await until(lambda: publisher.caught_up)
        await lease.release()

    async def export(self) -> None:
        (await self.run("export", "--segments", str(self.archive), "--segment-commits", "10")).ok()

    async def delete(self, generation: int, *more: str) -> Result:
        return await self.run("log", "delete", str(generation), "--archive", str(self.archive), *more)


@pytest.fixture
async def told(tmp_path: Path, nats_server: EmbeddedServer, js: JetStream, cell: str) -> Told:
    made = Told(Cli(tmp_path), nats_server, js, cell, tmp_path)
    await made.goes_on("tree", "synced", "job two", "job one", "resumed two", "runs two", "time +60s")
    return made


async def test_why_it_was_rolled_over_stands_in_the_log(told: Told) -> None:
    genesis = await told.roll("--reason", "before the\nupgrade")
    assert genesis.reason == "before the upgrade"
    assert genesis.by
    shown = (await told.run("tail", "--no-follow")).ok().out
    assert f"was rolled over by {genesis.by}: before the upgrade" in shown


async def test_only_what_is_sealed_archived_and_published_is_deleted(told: Told) -> None:
    refused = await told.delete(1, "--yes")
    assert "generation 1 of cell" in refused.err
    assert "is in force" in refused.err
    await told.roll()
    await told.goes_on("job three", "time +60s")
    for generation, why in ((2, "is in force"), (7, "has no sealed generation 7 (sealed ones: 1)")):
        assert why in (await told.delete(generation, "--yes")).err
    assert "is no archive" in (await told.delete(1, "--yes")).err
    unsaid = await told.run("log", "delete", "1")
    assert (unsaid.code, "--archive DIR" in unsaid.err) == (2, True)
    await told.export()
    assert "the publisher has not published sequence" in (await told.delete(1, "--yes")).err
    await told.publish()
    looked = (await told.delete(1)).ok()
    assert "May be deleted: generation 1, sequence 1 to" in looked.out
    assert (await told.log()).identity.origin == 1, "without --yes nothing is deleted"
    other = told.archive.with_name("other")
    other.mkdir()
    for path in told.archive.iterdir():
        (other / path.name).write_bytes(path.read_bytes()[: -1 if path.suffix == ".gz" else None])
    damaged = await told.run("log", "delete", "1", "--archive", str(other), "--yes")
    assert (damaged.code, "is damaged" in damaged.err) == (1, True)
    assert "Deleted generation 1" in (await told.delete(1, "--yes")).ok().out
    assert (await told.log()).identity.origin > 1


async def test_what_is_left_replays_on_its_own_and_so_does_its_export(told: Told, tmp_path: Path) -> None:
    await told.roll()
    await told.goes_on("job three", "finishes two", "cluster-gone two", "time +60s")
    await told.roll()
    await told.goes_on("job four", "time +60s")
    await told.publish()
    whole = tmp_path / "whole.jsonl"
    (await told.run("export", "--out", str(whole))).ok()
    await told.export()
    pruned = (await told.run("log", "prune", "--keep", "1", "--archive", str(told.archive), "--yes")).ok()
    assert "Deleted generation 1" in pruned.out
    assert (
        "nothing to delete" in (await told.run("log", "prune", "--keep", "1", "--archive", str(told.archive))).ok().out
    )
    origin = (await told.log()).identity.origin
    path = tmp_path / "rest.jsonl.gz"
    exported = (await told.run("export", "--out", str(path))).ok()
    assert f"sequence {origin} (with the states of" in exported.err
    for seed in ("1", "2"):
        replayed = (await told._cli.run("replay", "--log", str(path), "--verify", PYTHONHASHSEED=seed)).ok()
        assert replayed.lines[-1].endswith(" commits, 0 divergent")
        assert not replayed.lines[-1].startswith("0 ")
    assert (await told.run("replay", "--verify")).ok().lines[-1] == replayed.lines[-1]
    last = (await told.log()).identity.first + 2
    for command in (("replay", "--until", str(last)), ("debug", "queue_sorter", "--at", str(last))):
        one, other = [(await told._cli.run(*command, "--log", str(each))).ok().out for each in (path, whole)]
        # The counts of what was decided again differ; what was known there does not.
        assert one.splitlines()[:8] == other.splitlines()[:8]
    asked = await told._cli.run("why", "video/one", "--log", str(path))
    assert (asked.code, "video/one" in asked.out) == (0, True), "the states it begins with know the job"
    assert (await told._cli.run("why", "video/one", "--log", str(told.archive))).ok()
    fresh = await told.run("export", "--segments", str(tmp_path / "fresh"))
    assert f"begins at sequence {origin}: the generations before were deleted" in fresh.err
    await told.export()
    assert replace((await told.log()).identity, earlier=()).origin > origin
