"""What of unused guarantees is lent to jobs that may run long: by what a tree says, or by what the log has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kit.scenes import Scene
from kit.traces import run, starts, trace
from kit.words import in_words
from muster.core.learned import ENOUGH_RUNS
from muster.core.queueing import lending
from muster.core.queueing.lending import HOUR_MS, WEEK_MS, WINDOW_HOURS, _add_past, _most
from muster.core.quota.trees.rules import read_rules
from muster.tracesim.metrics import SimulationMetrics
from muster.tracesim.model import Trace


def two(gpus: int = 8) -> dict[str, Any]:
    queues = {"own": {"min": 4, "max": gpus}, "lent": {"min": 4, "max": gpus}}
    return {"nodes": [{"count": 1, "gpus": gpus}], "queues": queues}


BY_DEFAULT = "not said"
FREELY = {"borrow-freely": "1h", "age-limit": "0"}
HOUR = HOUR_MS // 1000
LONG = 2 * HOUR
PAST = ENOUGH_RUNS * 1000 + LONG
"""When all that the tests learn from is over, s."""


def past() -> str:
    """Jobs of ``lent`` that ran long and briefly within its min, while ``own`` wanted all of its own."""
    lines = [f"own-{n},own,4,{n * 1000},900" for n in range(ENOUGH_RUNS)]
    lines += [f"long-{n},lent,1,{n},{LONG}" for n in range(ENOUGH_RUNS - 2)]
    lines += [f"long-{n},lent,1,{LONG + 1000},{LONG}" for n in range(ENOUGH_RUNS - 2, ENOUGH_RUNS)]
    lines += [f"brief-{n},lent,1,{n * 1000},60" for n in range(ENOUGH_RUNS)]
    return "\n".join(lines)


def begun(folder: Path, jobs: str, gpus: int = 8, **rules: str) -> tuple[dict[str, float], SimulationMetrics]:
    made = trace(folder, two(gpus), f"{past()}\n{jobs}")
    said = {name: text for name, text in (FREELY | rules).items() if text != BY_DEFAULT}
    found = run(Trace(replace(made.cluster, rules=said), made.jobs))
    return starts(found.history), found.metrics


def full(at: int, seconds: int = LONG) -> str:
    """All of the min of ``lent`` is in use."""
    return f"full-0,lent,4,{at},{seconds}"


AT = PAST + 2 * LONG


def test_a_job_that_may_run_long_leaves_what_an_owner_wanted_lately(tmp_path) -> None:
    found, _ = begun(tmp_path, f"{full(AT)}\nlong-90,lent,1,{AT + 10},{LONG}")
    assert found["long-90"] == AT + LONG, "it waits for room within its own min"
    (tmp_path / "off").mkdir()
    off, _ = begun(tmp_path / "off", f"{full(AT)}\nlong-90,lent,1,{AT + 10},{LONG}", **{"borrow-freely": "0"})
    assert off["long-90"] == AT + 10


def test_one_that_is_expected_to_end_soon_borrows_whatever_is_free(tmp_path) -> None:
    found, _ = begun(tmp_path, f"{full(AT)}\nbrief-90,lent,1,{AT + 10},60\nlong-91,lent,1,{AT + 9},{LONG}")
    assert found["brief-90"] == AT + 10, "though a longer one of the same size stands before it"
    assert found["long-91"] == AT + LONG


@pytest.mark.parametrize("count", [9, 300])
def test_one_that_is_expected_to_end_soon_does_not_wait_behind_longer_ones_of_its_size(tmp_path, count: int) -> None:
    long = "\n".join(f"long-{9000 + n},lent,1,{AT + 10},{LONG}" for n in range(count))
    found, _ = begun(tmp_path, f"{full(AT)}\n{long}\nbrief-90,lent,1,{AT + 20},60")
    assert found["brief-90"] == AT + 20


def test_the_owner_finds_its_own_free_and_nobody_is_evicted(tmp_path) -> None:
    jobs = f"{full(AT, 5 * LONG)}\nlong-90,lent,4,{AT + 10},{5 * LONG}\nown-90,own,4,{AT + LONG},900"
    found, metrics = begun(tmp_path, jobs)
    assert (found["own-90"], metrics.evictions) == (AT + LONG, 0)
    (tmp_path / "off").mkdir()
    _, metrics = begun(tmp_path / "off", jobs, **{"borrow-freely": "0"})
    assert metrics.evictions == 1


def test_loans_that_end_soon_count_as_free_for_one_that_does_not(tmp_path) -> None:
    """It takes the place of nobody: four are lent for a short time, and the owner could have those back cheaply."""
    jobs = f"{full(AT)}\n" + "\n".join(f"brief-9{n},lent,1,{AT + 5},60" for n in range(4))
    found, _ = begun(tmp_path, f"{jobs}\nlong-90,lent,1,{AT + 10},{LONG}", gpus=9)
    assert found["long-90"] == AT + 10


def test_what_no_owner_has_wanted_for_a_day_is_lent_to_anybody(tmp_path) -> None:
    late = PAST + WINDOW_HOURS * HOUR
    found, _ = begun(tmp_path, f"{full(late)}\nlong-90,lent,1,{late + 10},{LONG}")
    assert found["long-90"] == late + 10


@pytest.mark.parametrize("most", [lending.MAX_LOOKED, 0])
def test_one_that_waits_borrows_as_soon_as_a_day_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Though nothing else happens by then; to the hour, also where more wait than are looked at one by one."""
    monkeypatch.setattr(lending, "MAX_LOOKED", most)
    found, _ = begun(tmp_path, f"{full(AT, 100 * HOUR)}\nlong-90,lent,1,{AT + 10},{LONG}")
    last = (ENOUGH_RUNS - 1) * 1000 + 900
    assert last + (WINDOW_HOURS - 1) * HOUR <= found["long-90"] <= last + (WINDOW_HOURS + 1) * HOUR


@pytest.mark.parametrize("rules", [{}, {"borrow-freely": BY_DEFAULT}])
def test_no_job_waits_for_it_longer_than_a_week(tmp_path, rules: dict[str, str]) -> None:
    """The owner wants all of its own every day."""
    longest = WEEK_MS // 1000
    quick = "\n".join(f"quick-{n},own,1,{n * 100},10" for n in range(40))
    daily = "\n".join(f"own-9{day},own,4,{AT + 100 + day * 24 * HOUR},900" for day in range(9))
    found, _ = begun(tmp_path, f"{full(AT, 2 * longest)}\nlong-90,lent,1,{AT + 10},{LONG}\n{daily}\n{quick}", **rules)
    assert longest <= found["long-90"] - AT - 10 <= longest + HOUR


@pytest.mark.parametrize(("rules", "since"), [(FREELY, 9000), ({"age-limit": "0"}, 200)])
def test_one_of_which_nothing_is_known_counts_as_long_where_the_tree_says_what_is(
    tmp_path, rules: dict[str, str], since: int
) -> None:
    made = trace(tmp_path, two(), "own-1,own,4,0,100\nfull-1,lent,4,0,9000\nnew-1,lent,1,200,10")
    found = starts(run(Trace(replace(made.cluster, rules=rules), made.jobs)).history)
    assert found["new-1"] == since


@pytest.mark.parametrize(
    ("rules", "borrows"),
    [({}, False), ({"preset": "fair"}, True), ({"order": "time"}, True), ({"borrow-freely": "0"}, True)],
)
def test_by_default_what_is_expected_to_run_four_times_as_long_as_all_did_may_run_long(
    tmp_path, rules: dict[str, str], borrows: bool
) -> None:
    crowd = "\n".join(f"brief-5{n:02},lent,1,{n},60" for n in range(30))
    long = "\n".join(f"long-8{n},lent,1,{AT},{LONG}" for n in range(4))
    made = trace(tmp_path, two(), f"{past()}\n{crowd}\n{long}\nlong-90,lent,1,{AT + 10},{LONG}")
    found = starts(run(Trace(replace(made.cluster, rules={"age-limit": "0"} | rules), made.jobs)).history)
    assert found["long-90"] == (AT + 10 if borrows else AT + LONG)


def test_where_the_long_ones_of_a_kind_still_run_it_is_not_taken_for_one_that_ends_soon(tmp_path) -> None:
    """Five have ended briefly; four that are like them run and run."""
    ended = "\n".join(f"new-{n},lent,1,{AT - 9000 + n},60" for n in range(ENOUGH_RUNS))
    crowd = "\n".join(f"brief-5{n:02},lent,1,{n},60" for n in range(30))
    more = "\n".join(f"new-3{n},lent,1,{AT - 8500 + n},{2 * LONG}" for n in range(4))
    late = f"new-90,lent,1,{AT + 10},60"
    made = trace(tmp_path, two(), f"{past()}\n{crowd}\n{ended}\n{more}\n{late}")
    found = starts(run(Trace(replace(made.cluster, rules={"age-limit": "0"}), made.jobs)).history)
    assert found["new-90"] > AT + 10


def test_what_a_leaf_wanted_is_known_to_the_hour_whatever_happened_since() -> None:
    """Kept is no more than what is not outdone by something newer."""
    past: list[tuple[int, int]] = []
    for hour, amount in ((1, 3), (1, 7), (2, 5), (2, 4), (3, 5), (9, 1)):
        _add_past(past, hour, amount)
    assert past == [(1, 7), (3, 5), (9, 1)]
    assert [_most(past, hour)[1] for hour in (9, WINDOW_HOURS, WINDOW_HOURS + 1, WINDOW_HOURS + 3)] == [7, 7, 5, 1]
    _add_past(past, WINDOW_HOURS + 3, 1)
    assert past == [(WINDOW_HOURS + 3, 1)]


@pytest.mark.parametrize("text", ["soon", "-1h"])
def test_a_time_that_is_none_refuses_the_tree(text: str) -> None:
    assert in_words(read_rules({"borrow-freely": text})[1][0]).startswith("annotation muster.dev/borrow-freely: ")


def test_since_when_a_job_runs_is_known_when_the_rule_is_switched_off_and_on() -> None:
    """Else a loan that should have ended long ago would count as one that ends soon."""
    scene = Scene()
    scene.tree_of(("own", 4), ("lent", 4))
    scene.lines("synced", "job lent/one cpu=5")
    scene.runs("lent/one")
    uid, since = scene.jobs["lent/one"].ref.uid, scene.bench.now
    for rules in ({"borrow_freely": "1h"}, {}, {"borrow_freely": "1h"}):
        scene.lines("time +600s")
        scene.tree_of(("own", 4), ("lent", 4), **rules)
    scene.lines("time +600s")
    assert scene.bench.states["queue_sorter"].queues.lending.running == {uid: since}
    scene.bench.sound()


def test_one_that_runs_before_it_is_charged_counts_from_then() -> None:
    scene = Scene()
    scene.tree_of(("own", 4), ("lent", 4), borrow_freely="1h")
    scene.lines("job lent/one cpu=5", "starts lent/one", "runs lent/one", "synced")
    assert [*scene.bench.states["queue_sorter"].queues.lending.running] == [scene.jobs["lent/one"].ref.uid]
