"""A log names its build and the number of its wire: another build refuses it in one sentence, and writes nothing."""

import json
from pathlib import Path

import pytest

import muster
from kit.cli import Cli
from kit.nats import SMALL, commit
from muster.audit.judge import heard
from muster.bus import cell as cell_module
from muster.bus.cell import POINTER, LogPointer, open_log, open_stores, own_genesis, pointer_of
from muster.bus.errors import BusError
from muster.bus.generations import JetStreamGenerations
from muster.bus.importing import import_log
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.bus.log import JetStreamLog
from muster.bus.marks import hear_marks
from muster.bus.server import EmbeddedServer
from muster.bus.streams import ensure, log_config
from muster.core.docket import Docket, Judge
from muster.events import wire
from muster.events.envelope import Stored, encode_commit, genesis_commit
from muster.events.registry import encode
from muster.events.subjects import log_stream, log_subject, state_bucket
from muster.events.system import Genesis
from muster.runtime.clock import SystemClock
from muster.runtime.layouts import USERS
from muster.runtime.logkeeping.rolling import roll

NEXT = wire.WIRE + 1
REFUSED = rf"wire {NEXT}, and this build reads wire 1, {wire.WIRE}: run build 0\.2\.0 with wire {NEXT}"


class NextBuild:
    """`with NextBuild(monkeypatch):` this process is a build whose wire has the next number."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __enter__(self) -> None:
        self._patch.setattr(muster, "__version__", "0.2.0")
        self._patch.setattr(cell_module.found_generation, "__kwdefaults__", {"first": 1, "prefix": "", "wire": NEXT})
        self._patch.setattr(wire, "FOLDS", frozenset({wire.WIRE, NEXT}))

    def __exit__(self, *_exc: object) -> None:
        self._patch.undo()


async def test_a_generation_of_a_later_wire_is_refused_before_anything_is_written(
    js: JetStream, cell: str, nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    await open_stores(js, cell, create=True, limits=SMALL)
    first = await own_genesis(js, cell, 1, 1)
    assert first is not None
    assert (first.build, first.wire) == (muster.__version__, wire.WIRE)
    await log.append(commit(1), expected=0)
    with NextBuild(monkeypatch):
        # An upgrade is a roll-over: the next build goes on from the states of this one.
        rolled = await roll(JetStreamGenerations(js, cell), clock=SystemClock())
        after = await open_log(js, cell)
        assert await after.append(commit(2), expected=0) == rolled.after.first + 1
        bodies = [body async for body in after.bodies(0)]
    stream = log_stream(cell, 2)
    before = await js.info(stream)
    with pytest.raises(BusError, match=REFUSED):
        await open_log(js, cell)
    with pytest.raises(BusError, match=REFUSED):
        await open_log(js, cell, create=True, limits=SMALL)
    cli = Cli(tmp_path)
    for command in (("replay",), ("log", "verify"), ("log", "roll"), ("log", "init")):
        told = await cli.run(*command, "--url", nats_server.url, "--cell", cell)
        assert told.code != 0, command
        assert "run build 0.2.0" in told.err, (command, told.err)
    other = f"{cell}-b"
    with pytest.raises(BusError, match=REFUSED):
        await import_log(js, other, bodies, limits=SMALL)
    newest = await pointer_of(js, other)
    assert newest is None, "the import writes its pointer last"
    now = await js.info(stream)
    assert before is not None
    assert now is not None
    assert now.state == before.state
    with NextBuild(monkeypatch):
        assert (await open_log(js, cell)).identity == after.identity


async def test_a_genesis_that_says_more_is_refused_alike_and_no_lost_log(js: JetStream, cell: str) -> None:
    """The keeper of an earlier build gave the log of a later build up, as one without a genesis."""
    await open_stores(js, cell, create=True, limits=SMALL)
    log = await open_log(js, cell, create=True, limits=SMALL)
    later = Genesis(log_id="later", generation=2, parent=log.identity.log_id, build="0.2.0", wire=NEXT)
    said = json.loads(encode_commit(genesis_commit(later, 1)))
    said |= {"sealed_by": "x", "kind": "founding", "events": [*said["events"], {"type": "shape_named", "shape": 7}]}
    await ensure(js, log_config(cell, 2, SMALL), create=True)
    await js.publish(log_subject(cell, 2, "genesis", "0"), json.dumps(said).encode(), {})
    state = KvBucket(js, state_bucket(cell))
    entry = await state.get(POINTER)
    assert entry is not None
    pointer = LogPointer.of(cell, later)
    await state.set(POINTER, encode(pointer), revision=entry.revision)
    with pytest.raises(BusError, match=REFUSED):
        await open_log(js, cell)
    assert not (await hear_marks(js, JetStreamLog(js, pointer.identity(cell)), USERS)).agrees
    body = json.dumps(said | {"kind": "input"}).encode()
    with pytest.raises(wire.UnknownWireError, match=REFUSED):
        Judge(Docket()).hear(heard(1, "2.genesis.0", body))
    other = Judge(Docket()).hear(heard(1, "2.queue-sorter.0", body))
    assert other.void is not None, "the word of no stage"


def test_a_reader_of_a_file_is_told_too() -> None:
    def begun(number: int) -> Stored:
        genesis = Genesis(log_id="l", generation=1, build="0.2.0", wire=number)
        return heard(1, "1.genesis.0", encode_commit(genesis_commit(genesis, 1)))

    for number in wire.FOLDS:
        assert Judge(Docket()).hear(begun(number)).void is None
    with pytest.raises(wire.UnknownWireError, match=REFUSED):
        Judge(Docket()).hear(begun(NEXT))
