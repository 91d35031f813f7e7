"""What one stage may write of a log in ten minutes: at which growth it is looked into, closed, and open again."""

from muster.bus.shares import LogUsage
from muster.runtime.logkeeping.budget import WINDOW_S, Budget


def filled(size: int, *closed: str) -> LogUsage:
    return LogUsage(last_seq=size, messages=size, bytes=size, max_bytes=1000, broker_ms=0, closed=closed)


def test_what_all_write_within_the_limit_of_one_is_not_looked_into() -> None:
    budget = Budget(20)
    assert [budget.look(now, filled(size)) for now, size in [(0.0, 10), (5.0, 110), (500.0, 210)]] == [None] * 3


def test_a_growth_within_ten_minutes_is_looked_into_from_where_it_began() -> None:
    budget = Budget(20)
    assert budget.look(0.0, filled(10)) is None
    assert budget.look(5.0, filled(211)) == (10, 201)


def test_a_slow_growth_is_not_looked_into() -> None:
    budget = Budget(20)
    assert [budget.look(now * 60.0, filled(now * 15)) for now in range(60)] == [None] * 60


def test_the_stage_that_wrote_it_is_closed_for_ten_minutes_and_no_other() -> None:
    budget = Budget(20)
    budget.look(0.0, filled(0))
    assert budget.look(5.0, filled(300)) == (0, 300)
    over = budget.beyond(5.0, filled(300), 300, {"preemptor": 0.9, "watcher": 0.1, "genesis": 1.0})
    assert over == {"preemptor": 270}
    assert budget.closed == {"preemptor": 5.0 + WINDOW_S}
    assert budget.look(10.0, filled(301, "preemptor")) is None
    assert budget.over(WINDOW_S) == []
    assert budget.over(WINDOW_S + 5.0) == ["preemptor"]
    assert not budget.closed


def test_a_growth_that_many_share_closes_none() -> None:
    budget = Budget(20)
    budget.look(0.0, filled(0))
    assert budget.look(5.0, filled(300)) == (0, 300)
    assert not budget.beyond(5.0, filled(300), 300, {"preemptor": 0.5, "watcher": 0.5})


def test_what_another_keeper_closed_is_open_after_ten_minutes_too() -> None:
    budget = Budget(20)
    budget.look(100.0, filled(0, "watcher"))
    assert budget.over(100.0 + WINDOW_S) == ["watcher"]


def test_without_a_limit_nothing_is_looked_into() -> None:
    budget = Budget(0)
    assert budget.look(0.0, filled(0)) is None
    assert budget.look(5.0, filled(1000)) is None
