"""Random histories, and what is promised in them: the same from the same log, never before now, else a reason."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from kit.depth import examples
from kit.turmoil import Turmoil
from muster.core.promising.projection import Projection
from muster.core.promising.promises import SIZES, Class
from muster.core.stage import Folder
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state
from muster.told.codes.values import Promise
from muster.told.readmodel.jobfolds import running
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import promise_of, promises_of

MINUTE = 60_000
SETTINGS = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def taught(state: ReadState, seed: int) -> None:
    """As if runs and waits of all lengths had ended before."""
    rng = Random(seed)
    for _ in range(30):
        state.promises.durations.ended(("",), rng.randrange(MINUTE, 100 * MINUTE))
        for number in range(4 * SIZES):
            known = state.promises.classes.setdefault(number, Class())
            known.calibration.waited(rng.randrange(MINUTE), rng.randrange(100 * MINUTE))


def bounded(state: ReadState) -> None:
    """Nothing is kept of jobs that are in no queue."""
    assert state.promises.waits.keys() <= state.queues.jobs.keys()
    assert all(known.open.keys() <= state.promises.waits.keys() for known in state.promises.classes.values())


def told(state: ReadState) -> dict[str, Promise]:
    """What every job is promised, checked."""
    found = promises_of(state, state.records, state.now)
    assert found.keys() == state.records.keys()
    for uid, each in found.items():
        job = state.queues.jobs.get(uid)
        if each.why:
            assert (each.start, each.latest) == (0, 0)
        else:
            assert job is not None
            assert job.status != "charged"
            assert state.now <= each.start <= each.latest
    return found


@SETTINGS
@given(seed=st.integers(0, 10**6))
def test_the_same_log_makes_the_same_promises_also_from_a_snapshot(seed: int) -> None:
    turmoil = Turmoil(seed)
    turmoil.run(200)
    log, rng = turmoil.bench.log, Random(seed)
    cuts = {rng.randrange(len(log)) for _ in range(6)}
    one, other, folder = ReadState(), ReadState(), Folder(ReadModel())
    for state in (one, other):
        taught(state, seed)
    for index, stored in enumerate(log):
        folder.fold(one, stored)
        if index in cuts:
            other = decode_state(encode_state(other), ReadState)
        folder.fold(other, stored)
        if index in cuts:
            bounded(one)
            found = told(one)
            assert found == told(other)
            for uid in rng.sample(sorted(found), min(3, len(found))):
                assert promise_of(one, uid, one.now) == found[uid], "asked alone"
    assert encode_state(one) == encode_state(other)


@SETTINGS
@given(seed=st.integers(0, 10**6))
def test_the_order_in_which_equal_things_were_told_does_not_matter(seed: int) -> None:
    turmoil = Turmoil(seed)
    turmoil.run(120)
    state, folder, rng = ReadState(), Folder(ReadModel()), Random(seed)
    for stored in turmoil.bench.log:
        folder.fold(state, stored)
    taught(state, seed)
    before = played(state)
    queues = state.queues
    for table in (queues.book.shapes, queues.jobs, queues.workloads, queues.ledger.charges, queues.book.queues):
        items = list(table.items())
        rng.shuffle(items)
        table.clear()
        table.update(items)
    assert played(state) == before


def played(state: ReadState) -> dict[str, tuple[int, bool]]:
    projection = Projection(state.queues, running(state), state.promises.durations, state.now)
    projection.run()
    return {uid: structs.astuple(found) for uid, found in sorted(projection.found.items())}


def test_in_random_histories_there_are_promises_and_reasons_why_there_are_none() -> None:
    met: set[str] = set()
    for seed in range(12):
        turmoil = Turmoil(seed)
        turmoil.run(150)
        state, folder = ReadState(), Folder(ReadModel())
        taught(state, seed)
        for stored in turmoil.bench.log:
            folder.fold(state, stored)
        met |= {each.why for each in told(state).values()}
    assert {"", "not_waiting"} <= met
