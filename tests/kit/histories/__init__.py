"""What properties ask of any history on a bench: it replays, a snapshot goes on as the stage did, what a stage knew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kit.audits import audit
from kit.bench import Bench
from kit.depth import examples
from muster.core.cell.seats import AnySeat, Seat
from muster.events.envelope import Stored
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state
from muster.runtime.replaying.replay import replay

SETTINGS = settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**32)


def worth(histories: Iterable[Iterable[str]], **least: int) -> None:
    """What a property looks at does happen, each so often; no more histories are played than that takes."""
    seen, lacks = Counter[str](), dict[str, int]()
    for happened in histories:
        seen.update(happened)
        lacks = {name: seen[name] for name, count in least.items() if seen[name] < count}
        if not lacks:
            return
    raise AssertionError(f"all of these histories together have only {lacks}")


def kinds_of(log: Iterable[Stored]) -> Iterator[str]:
    """The names of its events."""
    return (type(event).__name__ for stored in log for event in stored.commit.events)


def replays_and_goes_on_from_a_snapshot(bench: Bench, name: str, cut: int) -> None:
    """Decided again byte for byte; and a snapshot after ``cut`` commits goes on as the stage did."""
    report = replay(bench.log, silences=False)
    assert not report.divergences, report.divergences[0]
    goes_on_from_a_snapshot(bench, name, cut)


def is_sound(bench: Bench, seed: int) -> None:
    """No invariant broken but the order of facts, decided again the same, and the same from some snapshot."""
    broken = [each for each in audit(bench.log).violations if each.invariant != "I11"]
    assert not broken, broken[0]
    chance = Random(seed)
    replays_and_goes_on_from_a_snapshot(bench, chance.choice(sorted(bench.seats)), chance.randrange(len(bench.log)))


def goes_on_from_a_snapshot(bench: Bench, name: str, cut: int) -> None:
    """Folded on from a snapshot after ``cut`` commits the stage's state is the same."""
    seat: AnySeat = Seat(bench.seats[name].stage)
    for stored in bench.log[:cut]:
        seat.fold(stored)
    seat = Seat(seat.stage, decode_state(encode_state(seat.state), type(seat.state)))
    for stored in bench.log[cut:]:
        seat.fold(stored)
    assert encode_state(seat.state) == encode_state(bench.states[name])


def decisions_with_what_was_known(bench: Bench, name: str) -> Iterator[tuple[Any, Stored]]:
    """(state at its in_seq, decision commit) of a stage, but of those that were decided before one already met."""
    seat: AnySeat = Seat(bench.seats[name].stage)
    folded = 0
    for stored in bench.log:
        if stored.commit.stage != name or stored.commit.kind != "decision" or stored.commit.in_seq < folded:
            continue
        for each in bench.log[folded : stored.commit.in_seq]:
            seat.fold(each)
        folded = stored.commit.in_seq
        yield seat.state, stored
