"""Questions about the past begin with a snapshot of the log where one will do, and not with its first commit."""

import json
from pathlib import Path
from typing import Any

import pytest

from kit.cli import Cli
from kit.nats import SMALL
from kit.scenario import Play
from kit.seated import bodies, seated
from muster.bus.cell import open_log, open_stores
from muster.bus.importing import import_log
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.bus.snapshots import JetStreamSnapshots
from muster.core.preemption.preemptor import Preemptor
from muster.core.stage import Folder
from muster.model.text import instant
from muster.runtime.logkeeping.snapshotting import make_snapshot
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster_cli.folding import present_state
from muster_cli.options import Bus
from muster_cli.reading import locate, opened

MARK = "from-a-snapshot"
"""What stands in a snapshot where the log says otherwise: who begins with the snapshot says it too."""

BEGAN = 7
"""Likewise, when the first month began (ms)."""


class Kept:
    """A cell with a log, and snapshots of the read model and of the preemptor in the middle of it."""

    def __init__(self, cli: Cli, where: tuple[str, ...], bus: Bus, seq: int, last: int) -> None:
        self.cli, self.where, self.bus, self.seq, self.last = cli, where, bus, seq, last

    async def json(self, *words: str) -> Any:
        return (await self.cli.run(*words, "-o", "json", *self.where)).ok().json()


@pytest.fixture
async def kept(tmp_path: Path, nats_server: EmbeddedServer, js: JetStream, cell: str) -> Kept:
    play = Play()
    for line in ("tree", "synced", "job two", "job one", "resumed two", "runs two", "time +60s", "job three"):
        play.line(line)
        play.settle()
    log = play.bench.log
    await open_stores(js, cell, create=True, limits=SMALL)
    await import_log(js, cell, bodies(log), limits=SMALL)
    identity = (await open_log(js, cell)).identity
    seq = next(stored.seq for stored in log if stored.commit.at >= 1_060_000) - 1
    for stage in (ReadModel(), Preemptor()):
        folder, state = Folder(stage), stage.initial()
        for stored in seated(log[:seq]):
            folder.fold(state, stored)
        state.log_id = MARK
        if isinstance(state, ReadState):
            state.usage.account.begin = BEGAN
        snapshot = make_snapshot(identity, stage.name, "0", state)
        assert await JetStreamSnapshots(js, identity, warn=pytest.fail).save(snapshot)
    where = ("--url", nats_server.url, "--cell", cell)
    return Kept(Cli(tmp_path), where, Bus(nats_server.url, cell), seq, len(log))


async def test_why_begins_with_the_newest_snapshot_before_the_position(kept: Kept) -> None:
    assert (await kept.json("why", "video/one"))["log_id"] == MARK
    assert (await kept.json("why", "video/one", "--at", str(kept.seq)))["log_id"] == MARK
    before = await kept.json("why", "video/one", "--at", str(kept.seq - 1))
    assert (before["log_id"], before["sequence"]) == ("bench", kept.seq - 1)
    assert (await kept.json("why", "video/three"))["standing"]["position"] == 2


async def test_the_story_of_a_queue_begins_with_a_snapshot_where_it_may(kept: Kept) -> None:
    late = await kept.json("story", "video", "--from", str(kept.seq + 1))
    assert (late["log_id"], late["tally"]["queued"], late["length"]) == (MARK, 1, 2)
    assert [entry["job"] for entry in late["entries"]] == ["video/three"]
    whole = await kept.json("story", "video")
    assert (whole["log_id"], whole["tally"]["queued"]) == (MARK, 3), "what the read model keeps takes no log"
    read = await kept.json("story", "video", "--from", "1")
    assert (read["log_id"], read["tally"]) == ("bench", whole["tally"])
    early = await kept.json("story", "video", "--from", str(kept.seq))
    assert early["log_id"] == "bench", "the snapshot has folded what is asked for"


async def test_a_filter_of_tail_begins_with_a_snapshot(kept: Kept) -> None:
    words = ("tail", "--no-follow", "--queue", "root/algorithm/video", "-o", "json")
    whole = (await kept.cli.run(*words, "--since", "1", *kept.where)).ok().lines
    late = (await kept.cli.run(*words, "--since", str(kept.seq + 1), *kept.where)).ok().lines
    assert late
    assert late == [line for line in whole if json.loads(line)["sequence"] > kept.seq]
    absent = await kept.cli.run("tail", "--job", "nope", "--since", str(kept.seq + 1), *kept.where)
    assert absent.code == 3
    assert f"no job nope is in this log as it is known since sequence {kept.seq} (--since 1 reads all" in absent.err
    assert (await kept.cli.run("tail", "--job", "nope", "--since", "1", *kept.where)).code == 3


async def test_a_decision_is_made_again_from_a_snapshot(kept: Kept) -> None:
    found = await kept.json("debug", "preemptor", "--at", str(kept.last))
    assert [each["sequence"] for each in found["folded"]] == list(range(kept.seq + 1, kept.last + 1))
    assert found["state"]["log_id"] == MARK, "what came before the snapshot is not read"


async def test_what_a_stage_knows_is_read_from_its_snapshot_too(kept: Kept) -> None:
    async with opened(locate(kept.bus)) as reading:
        state = await present_state(reading, Preemptor())
        assert (state.log_id, state.seq) == (MARK, kept.last)


async def test_the_usage_of_a_month_takes_no_commit_before_the_snapshot(kept: Kept) -> None:
    month = await kept.json("usage", "--month", "1970-01")
    assert month["from"] == instant(BEGAN), "whoever adds up the log says another time"
    assert {row["queue"] for row in month["rows"]} == {"root/algorithm/video"}
