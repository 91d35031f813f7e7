"""What a waiting job may expect: from the queue's own past, with its spread, and nothing where there is too little."""

from random import Random

import pytest
from msgspec import Struct

from kit.traces import trace
from muster.core.pace import ENOUGH, Pace
from muster.core.presentation.view import View
from muster.core.queueing.book import Book
from muster.core.stage import Folder
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted, WorkloadDequeued
from muster.model.keys import Ref
from muster.runtime.logfile import read_log
from muster.simulation.runner import Options, simulate

REF = Ref("RayJob", "video", "one", "uid")


class Line(Book):
    """A book with so many waiting."""

    def length(self, queue: str) -> int:
        return self.waiting


def admissions(*times: int, waiting: int = 9) -> Pace:
    pace, book = Pace(), Line(waiting=waiting)
    for at in times:
        pace.note(GangAdmitted(cause=Cause(1, 0), ref=REF, attempt=1, queue="root/a"), book, at)
    return pace


def test_a_queue_that_moves_every_minute():
    pace = admissions(*range(0, 21 * 60_000, 60_000))
    found = pace.expect("root/a", 3, now=20 * 60_000)
    assert (found.low, found.middle, found.high) == (180_000, 180_000, 180_000)
    assert (found.rows, found.intervals) == (18, 20)
    assert pace.expect("root/a", 3, now=20 * 60_000 + 45_000).middle == 135_000, "part of it has gone by"


def test_the_span_holds_eight_of_ten_that_were_seen():
    pace = admissions(0, *[sum(range(1, n + 1)) * 1000 for n in range(1, 11)])
    found = pace.expect("root/a", 1, now=55_000)
    assert (found.low, found.middle) == (1_000, 5_000)
    assert 9_000 <= found.high < 10_000, "a little wider, for ten are not many"


def test_too_little_is_said_and_not_guessed():
    found = admissions(0, 60_000, 120_000).expect("root/a", 4, now=120_000)
    assert not found.known
    assert found.why == (
        "2 times one admission from this queue followed another while somebody waited; 8 are needed for position 4"
    )
    assert not admissions(*range(ENOUGH)).expect("root/a", 1, now=9).known
    assert admissions(*range(ENOUGH + 1)).expect("root/a", 1, now=ENOUGH).known
    assert not Pace().expect("root/a", 1, now=0).known


def test_what_takes_longer_than_ever_is_said():
    pace = admissions(*range(0, 21 * 60_000, 60_000))
    found = pace.expect("root/a", 1, now=20 * 60_000 + 70_000)
    assert not found.known
    assert "longer already than nearly everything" in found.why


@pytest.mark.parametrize("how", ["admitted", "left"])
def test_an_idle_queue_says_nothing_of_its_speed(how):
    pace, busy, idle = admissions(0, 60_000), Line(waiting=9), Line(waiting=0)
    admitted = GangAdmitted(cause=Cause(1, 0), ref=REF, attempt=1, queue="root/a")
    left = WorkloadDequeued(cause=Cause(1, 0), ref=REF, attempt=1, queue="root/a", reason="gone")
    pace.note(admitted if how == "admitted" else left, idle, 120_000)
    pace.note(admitted, busy, 999_000)
    pace.note(admitted, busy, 1_000_000)
    assert list(pace.intervals["root/a"])[-1] == 1_000
    assert 879_000 not in pace.intervals["root/a"]
    assert 939_000 not in pace.intervals["root/a"]


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
    view, pace = View(), Pace()
    folder, state = Folder(view), view.initial()
    guesses: dict[str, Guess] = {}
    kept = 0
    told = 0
    for stored in read_log(tmp_path / "log.jsonl"):
        folder.fold(state, stored.seq, stored.commit)
        for event in stored.commit.events:
            pace.note(event, state.book, state.now)
            if isinstance(event, GangAdmitted) and event.ref.uid in guesses:
                guess = guesses.pop(event.ref.uid)
                told += 1
                kept += guess.low <= state.now - guess.at <= guess.high
        for position, (place, _) in enumerate(state.book.in_order("root/a"), start=1):
            if place[3] not in guesses and 2 <= position <= 10:
                found = pace.expect("root/a", position, state.now)
                if found.known:
                    guesses[place[3]] = Guess(state.now, found.low, found.high)
    assert told > 100
    assert kept >= 0.75 * told, f"{kept} of {told}"
