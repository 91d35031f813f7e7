"""What a waiting job may expect: from the queue's own past, with its spread, and nothing where there is too little."""

import pytest

from muster.core.learned import ENOUGH_ADMISSIONS, Pace
from muster.told.wording.queuewords import estimate, no_estimate


def admissions(*times: int, waiting: int = 9) -> Pace:
    pace = Pace()
    for at in times:
        pace.admitted("root/a", at, waiting=waiting > 0)
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
    assert no_estimate(found) == ("2 admissions in a row were seen in this queue while jobs waited; 5 are needed")
    assert not admissions(*range(ENOUGH_ADMISSIONS)).expect("root/a", 1, now=9).known
    assert admissions(*range(ENOUGH_ADMISSIONS + 1)).expect("root/a", 1, now=ENOUGH_ADMISSIONS).known
    assert not Pace().expect("root/a", 1, now=0).known


def test_what_takes_longer_than_ever_is_said():
    pace = admissions(*range(0, 21 * 60_000, 60_000))
    found = pace.expect("root/a", 1, now=20 * 60_000 + 70_000)
    assert not found.known
    assert "longer already than nearly all waits" in no_estimate(found)


def test_a_place_far_back_is_drawn_out_from_the_mean():
    """At position 772 it asked for 776 admissions in a row, and never said anything."""
    found = admissions(*range(0, 21 * 60_000, 60_000)).expect("root/a", 772, now=20 * 60_000)
    assert found.known
    assert (found.middle, found.rows, found.intervals) == (772 * 60_000, 0, 20)
    assert "772 times the mean of 20 waits between admissions" in estimate(found, 772, "root/a")


@pytest.mark.parametrize("how", ["admitted", "left"])
def test_an_idle_queue_says_nothing_of_its_speed(how):
    pace = admissions(0, 60_000)
    if how == "admitted":
        pace.admitted("root/a", 120_000, waiting=False)
    else:
        pace.left("root/a", waiting=False)
    pace.admitted("root/a", 999_000, waiting=True)
    pace.admitted("root/a", 1_000_000, waiting=True)
    assert list(pace.intervals["root/a"])[-1] == 1_000
    assert 879_000 not in pace.intervals["root/a"]
    assert 939_000 not in pace.intervals["root/a"]
