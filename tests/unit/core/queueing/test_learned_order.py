"""Run times learned from the log alone, and the orders of queues that a tree may ask for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kit import facts
from kit.traces import run, starts, trace
from kit.words import in_words
from muster.core.learned import ENOUGH_RUNS, kinds_of
from muster.core.queueing.sorterstate import LONGEST_MS, Learned
from muster.core.quota.trees.rules import read_rules
from muster.model.quota import DEFAULT_RULES
from muster.tracesim.model import Trace

ONE = facts.vector(gpu=1)


def taught(*runs: tuple[str, int], learned: Learned | None = None) -> Learned:
    learned = learned or Learned()
    for name, ms in runs:
        job = facts.job(name, gpu=1)
        learned.observed(replace(job, phase="running", suspended=False), "root/a", ONE, 1_000)
        learned.observed(replace(job, phase="finished", suspended=False), "root/a", ONE, 1_000 + ms)
    return learned


def expected(learned: Learned, name: str, queue: str, request: dict[str, int]) -> int:
    return learned.durations.mean(kinds_of("a", name, queue, request))


def test_nothing_is_expected_before_enough_have_finished() -> None:
    few = taught(*((f"train-{n}", 500) for n in range(ENOUGH_RUNS - 1)))
    assert expected(few, "train-9", "root/a", ONE) == 0
    assert expected(taught(("train-8", 500), learned=few), "train-9", "root/a", ONE) == 500


def test_the_kind_that_is_most_like_it_counts() -> None:
    learned = taught(
        *((f"train-{n}", 9_000) for n in range(ENOUGH_RUNS)), *((f"eval-{n}", 1_000) for n in range(ENOUGH_RUNS))
    )
    assert expected(learned, "eval-77", "root/a", ONE) == 1_000
    assert expected(learned, "train-77", "root/a", ONE) == 9_000
    assert expected(learned, "other", "root/a", ONE) == 5_000
    assert expected(learned, "other", "root/b", facts.vector(gpu=2)) == 5_000


def test_what_is_evicted_teaches_nothing_and_is_not_kept() -> None:
    learned, job = Learned(), facts.job("one", gpu=1)
    learned.observed(replace(job, phase="running", suspended=False), "root/a", ONE, 1_000)
    learned.observed(replace(job, phase="suspending"), "root/a", ONE, 2_000)
    assert (learned.durations.kinds, learned.running) == ({}, {})


def test_a_job_that_kept_its_work_teaches_how_long_it_ran_in_all() -> None:
    """Else long jobs that save their work and are evicted teach that they are short."""
    learned = Learned()
    for number in range(ENOUGH_RUNS):
        job = facts.job(f"train-{number}", gpu=2)
        two = facts.vector(gpu=2)
        learned.observed(replace(job, phase="running", suspended=False), "root/a", two, 1_000)
        learned.observed(replace(job, phase="suspending", checkpointed_at=6_000), "root/a", two, 9_000)
        learned.observed(replace(job, phase="running", suspended=False), "root/a", two, 20_000)
        learned.observed(replace(job, phase="finished", suspended=False), "root/a", two, 21_000)
    assert expected(learned, "train-77", "root/a", facts.vector(gpu=2)) == 5_000 + 1_000


def test_who_was_stopped_while_it_ran_counts_as_queued_then_at_the_earliest() -> None:
    learned, job = taught(*((f"train-{n}", 500) for n in range(ENOUGH_RUNS))), facts.job("train-77", gpu=1)
    learned.observed(replace(job, phase="running", suspended=False), "root/a", ONE, 1_000)
    learned.observed(replace(job, phase="suspending"), "root/a", ONE, 2_000)
    assert learned.rank(job, "root/a", ONE, 100) == 2_000
    assert learned.rank(job, "root/a", ONE, 1_600) == 1_600 + 500, "its handicap counts from when it came"
    learned.gone(job.ref.uid)
    assert learned.rank(job, "root/a", ONE, 100) == 600


def test_a_longer_job_counts_as_queued_later_and_never_later_than_the_bound() -> None:
    learned = taught(*((f"train-{n}", 10_000) for n in range(ENOUGH_RUNS)))
    job = facts.job("train-77", gpu=1)
    assert learned.rank(job, "root/a", ONE, 100) == 100 + 10_000
    assert learned.rank(job, "root/a", facts.vector(gpu=10**9), 100) == 100 + LONGEST_MS


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("borrow-freely", "4h", "the rule no longer exists; remove the annotation"),
        ("preset", "thrifty", "the rule no longer exists; remove the annotation"),
        ("preset", "fair", "presets no longer exist; write muster.dev/order: share instead"),
        ("preset", "checkpointed", "presets no longer exist; write muster.dev/least-attained: 4h,32h instead"),
    ],
)
def test_a_rule_of_an_earlier_build_refuses_the_tree(name: str, value: str, says: str) -> None:
    rules, wrong = read_rules({name: value})
    assert rules == DEFAULT_RULES
    assert list(map(in_words, wrong)) == [f"annotation muster.dev/{name}: {says}"]


def test_an_order_that_is_none_refuses_the_tree() -> None:
    assert list(map(in_words, read_rules({"order": "fair"})[1])) == [
        "annotation muster.dev/order: 'fair' is none of share, time, learned"
    ]


@pytest.mark.parametrize(("order", "first"), [("share", "late"), ("time", "early")])
def test_beyond_the_guarantees_a_tree_may_serve_by_time(tmp_path, order: str, first: str) -> None:
    """Two queues without a min; one of them uses something already, and its next job waits longer."""
    cluster = {"nodes": [{"count": 1, "gpus": 4}], "queues": {"a": {"max": 4}, "b": {"max": 4}}}
    made = trace(tmp_path, cluster, "u,a,1,0,500\nv,b,3,0,100\nearly,a,3,10,50\nlate,b,3,20,50")
    found = run(Trace(replace(made.cluster, rules={"order": order, "age-limit": "0"}), made.jobs))
    begun = starts(found.history)
    assert min(("early", "late"), key=begun.__getitem__) == first


def test_by_learned_durations_the_shorter_job_goes_first(tmp_path) -> None:
    cluster = {"nodes": [{"count": 1, "gpus": 1}], "queues": {"a": {"max": 1}}}
    past = "\n".join(f"long-{n},a,1,{n * 1000},800\nbrief-{n},a,1,{n * 1000 + 1},10" for n in range(ENOUGH_RUNS))
    now = ENOUGH_RUNS * 1000
    made = trace(
        tmp_path, cluster, f"{past}\nlong-90,a,1,{now},800\nlong-91,a,1,{now + 1},800\nbrief-92,a,1,{now + 9},10"
    )
    for order, expected in (
        ("share", ["long-90", "long-91", "brief-92"]),
        ("learned", ["long-90", "brief-92", "long-91"]),
    ):
        begun = starts(run(Trace(replace(made.cluster, rules={"order": order}), made.jobs)).history)
        assert sorted(expected, key=begun.__getitem__) == expected
