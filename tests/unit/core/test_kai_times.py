"""The times that protect work of KAI queues: least run times against preemption and reclaim, and preemption delays."""

from __future__ import annotations

import pytest

from kit import nodes
from kit.bench import Bench
from kit.facts import seen
from kit.kai import queue, work
from muster.core.quota.ledger.kaitimes import protected_ms
from muster.events.base import Event
from muster.events.decisions import EvictionOrdered, ReclaimDeferred
from muster.events.facts import KaiQueueObserved

GPU = "nvidia.com/gpu"
MINUTE = 60_000


def bench(*queues: KaiQueueObserved, gpus: int = 2) -> Bench:
    found = Bench()
    found.facts(nodes.node("n1", cpu=64, memory=256, gpu=gpus), *queues)
    found.synced()
    found.settle()
    return found


def runs(found: Bench, name: str, queue: str, **changes: object) -> None:
    """A job of one GPU is let in, and runs."""
    found.facts(seen(work(name, queue, gpu=1, **changes)))
    found.settle()
    found.facts(seen(work(name, queue, gpu=1, suspended=False, phase="running", settled=False, **changes)))
    found.settle()


def ordered(events: list[Event]) -> list[str]:
    return [victim.ref.name for each in events if isinstance(each, EvictionOrdered) for victim in each.victims]


def submit(found: Bench, name: str, queue: str, **changes: object) -> list[Event]:
    found.facts(seen(work(name, queue, gpu=1, created=found.now, **changes)))
    return found.settle()


def test_work_is_reclaimed_only_after_the_least_time_of_its_side() -> None:
    found = bench(
        queue("d1", reclaim_min_runtime="10m", gpu=(0, -1, 1)),
        queue("a", "d1", reclaim_min_runtime="1h", gpu=(0, -1, 1)),
        queue("d2", gpu=(0, -1, 1)),
        queue("b", "d2", gpu=(0, -1, 1)),
    )
    runs(found, "one", "a")
    runs(found, "two", "a")
    told = submit(found, "owed", "b")
    assert ordered(told) == []
    assert [each.reason for each in told if isinstance(each, ReclaimDeferred)] == ["too_young"]
    assert ordered(found.pass_time(9 * MINUTE)) == []
    assert len(ordered(found.pass_time(2 * MINUTE))) == 1, "the queue under the one they share says ten minutes"


def test_between_queues_of_one_department_the_queue_itself_counts() -> None:
    found = bench(
        queue("d", reclaim_min_runtime="10m"),
        queue("a", "d", reclaim_min_runtime="5m", gpu=(0, -1, 1)),
        queue("b", "d", gpu=(0, -1, 1)),
        queue("other"),
    )
    ledger = found.states["quota_accountant"].ledger
    assert protected_ms(ledger, "kai/d/a", "kai/d/b") == 5 * MINUTE
    assert protected_ms(ledger, "kai/d/b", "kai/d/a") == 10 * MINUTE, "who says nothing has what is said above"
    assert protected_ms(ledger, "kai/d/a", "kai/other") == 10 * MINUTE
    assert protected_ms(ledger, "kai/other", "kai/d/a") == 0
    assert protected_ms(ledger, "kai/d/a", "kai/d/a") == 0, "nothing is said about its own queue"


def test_a_higher_priority_waits_for_the_least_time_of_the_queue() -> None:
    found = bench(queue("d", preempt_min_runtime="10m"), queue("a", "d"))
    runs(found, "one", "a")
    runs(found, "two", "a")
    assert ordered(submit(found, "high", "a", priority_class="build")) == []
    assert ordered(found.pass_time(9 * MINUTE)) == []
    assert len(ordered(found.pass_time(2 * MINUTE))) == 1


def test_equal_priority_never_gives_way() -> None:
    found = bench(queue("a"))
    runs(found, "one", "a")
    runs(found, "two", "a")
    assert ordered(submit(found, "equal", "a")) == []
    assert len(ordered(submit(found, "higher", "a", priority_class="build-preemptible"))) == 1


@pytest.mark.parametrize("queue_of", ["a", "b"])
def test_who_asks_for_a_delay_waits_before_others_go_for_it(queue_of: str) -> None:
    found = bench(queue("a", gpu=(0, -1, 1)), queue("b", gpu=(0, -1, 1)))
    runs(found, "one", "a")
    runs(found, "two", "a")
    labels = {"kai.scheduler/preemption-delay": "5m"}
    assert ordered(submit(found, "patient", queue_of, priority_class="build-preemptible", labels=labels)) == []
    assert ordered(found.pass_time(4 * MINUTE)) == []
    assert len(ordered(found.pass_time(2 * MINUTE))) == 1
