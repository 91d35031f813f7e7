"""What a waiting job of a month of likes is told to expect holds for most of them."""

from random import Random

import pytest
from msgspec import Struct

from kit.traces import trace
from muster.core.stage import Folder
from muster.events.decisions import GangAdmitted
from muster.runtime.logkeeping.logfile import read_log
from muster.told.readmodel.model import ReadModel
from muster.tracesim.runner import Options, simulate


class Guess(Struct):
    at: int
    low: int
    high: int


@pytest.mark.parametrize("seed", range(3))
def test_in_a_queue_of_likes_most_waits_end_within_the_span(tmp_path, seed):
    """A month of jobs of one size and random lengths: what was expected holds for most of them."""
    rng, at, rows = Random(seed), 0, []
    for number in range(500):
        at += rng.randrange(400)
        rows.append(f"j{number},a,4,{at},{rng.randrange(100, 2_000)}")
    cluster = {"nodes": [{"count": 4, "gpus": 4}], "queues": {"a": {"min": 16, "max": 16}}}
    simulate(trace(tmp_path, cluster, "\n".join(rows)), "muster", Options(), log=tmp_path / "log.jsonl", alone={})
    view = ReadModel()
    folder, state = Folder(view), view.initial()
    guesses: dict[str, Guess] = {}
    kept = 0
    told = 0
    for stored in read_log(tmp_path / "log.jsonl"):
        folder.fold(state, stored)
        for event in stored.commit.events:
            if isinstance(event, GangAdmitted) and event.ref.uid in guesses:
                guess = guesses.pop(event.ref.uid)
                told += 1
                kept += guess.low <= state.now - guess.at <= guess.high
        for position, (place, _) in enumerate(state.queues.book.in_order("root/a"), start=1):
            if place.uid not in guesses and 2 <= position <= 10:
                found = state.pace.expect("root/a", position, state.now)
                if found.known:
                    guesses[place.uid] = Guess(state.now, found.low, found.high)
    assert told > 100
    assert kept >= 0.75 * told, f"{kept} of {told}"
