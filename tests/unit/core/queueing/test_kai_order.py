"""Which KAI queue sends its job first when there is room for one: each rule of the order, from the top down."""

from __future__ import annotations

import pytest

from kit import nodes
from kit.bench import Bench
from kit.facts import seen
from kit.kai import queue, work
from muster.events.base import Event
from muster.events.decisions import CandidatesProposed, QuotaReserved
from muster.events.facts import KaiQueueObserved
from muster.model.workload import Workload


def bench(*queues: KaiQueueObserved, gpus: int = 8) -> Bench:
    found = Bench()
    found.facts(nodes.node("n1", cpu=640, memory=256, gpu=gpus), *queues)
    found.synced()
    found.settle()
    return found


def proposed(found: Bench, *jobs: Workload) -> list[str]:
    """The queues in the order in which their jobs, which come at once, are proposed."""
    found.facts(*(seen(each) for each in jobs))
    events = found.settle()
    first = next(each for each in events if isinstance(each, CandidatesProposed))
    return [each.queue.rpartition("/")[2] for each in first.candidates]


def uses(found: Bench, name: str, queue: str, gpus: int, **more: int) -> None:
    """A job of a queue that is let in."""
    found.facts(seen(work(name, queue, gpu=gpus, **more)))
    decided: list[Event] = found.settle()
    assert any(isinstance(each, QuotaReserved) for each in decided), name


def test_who_stays_within_its_quota_goes_before_who_does_not() -> None:
    found = bench(queue("a", gpu=(0, -1, 1)), queue("b", gpu=(4, -1, 1)))
    assert proposed(found, work("x", "a", gpu=1, created=1000), work("y", "b", gpu=1, created=2000)) == ["b", "a"]


def test_then_the_priority_of_the_queue_counts() -> None:
    found = bench(queue("a", gpu=(0, -1, 9)), queue("b", gpu=(0, -1, 1), priority=200))
    assert proposed(found, work("x", "a", gpu=1), work("y", "b", gpu=1)) == ["b", "a"]


def test_then_the_smaller_part_of_what_it_may_keep() -> None:
    found = bench(queue("a", gpu=(0, -1, 1)), queue("b", gpu=(0, -1, 1)))
    uses(found, "before", "a", 2)
    jobs = [work(f"{name}{index}", name, gpu=1) for name in "ab" for index in range(2)]
    assert proposed(found, *jobs) == ["b", "a", "b", "a"], "0 of 2, 2 of 4, 1 of 2, 3 of 4"


def test_departments_are_compared_before_their_teams() -> None:
    half = (0, -1, 1)
    teams = (queue("d1", gpu=half), queue("d2", gpu=half), queue("t1", "d1", gpu=half), queue("t2", "d1", gpu=half))
    found = bench(*teams, queue("u", "d2", gpu=half))
    uses(found, "before", "t1", 4)
    # t2 uses nothing, and u nothing either: what t1 uses counts against the department of t2.
    uses(found, "other", "u", 1)
    assert proposed(found, work("x", "t2", gpu=1), work("y", "u", gpu=1)) == ["u", "t2"]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_the_older_queue_decides_at_last(order: str) -> None:
    ages = {"a": 2_000, "b": 1_000}
    found = bench(*(queue(name, gpu=(0, -1, 1), created=ages[name]) for name in order))
    assert proposed(found, work("x", "a", gpu=1), work("y", "b", gpu=1)) == ["b", "a"]


def test_who_is_above_its_share_of_everything_comes_last() -> None:
    """Whatever its priority; above it in GPUs alone does not count."""
    for cpu, memory, order in ((400, 200, ["b", "a"]), (0, 0, ["a", "b"])):
        none = (0, -1, 0)
        found = bench(queue("a", gpu=none, cpu=none, memory=none, priority=200), queue("b", gpu=(0, -1, 1)))
        uses(found, "before", "a", 4, cpu=cpu, memory=memory)
        assert proposed(found, work("x", "a", gpu=1), work("y", "b", gpu=1)) == order


def test_who_uses_what_it_may_keep_nothing_of_comes_after_who_may() -> None:
    found = bench(queue("a", gpu=(0, -1, 0), created=1_000), queue("b", gpu=(0, -1, 1), created=2_000))
    assert proposed(found, work("x", "a", gpu=1), work("y", "b", gpu=1)) == ["b", "a"]


def test_with_the_job_alike_the_smaller_part_without_it_counts() -> None:
    found = bench(queue("a", gpu=(4, -1, 1), created=1_000), queue("b", gpu=(4, -1, 1), created=2_000))
    uses(found, "before", "a", 1)
    assert proposed(found, work("x", "a", gpu=1), work("y", "b", gpu=2)) == ["b", "a"], "both 2 of 4; 1 and 0 before"


def test_then_who_may_keep_less_comes_first() -> None:
    found = bench(queue("a", gpu=(4, -1, 1), created=1_000), queue("b", gpu=(2, -1, 1), created=2_000), gpus=6)
    assert proposed(found, work("x", "a", gpu=2), work("y", "b", gpu=1)) == ["b", "a"], "2 of 4, and 1 of 2"
