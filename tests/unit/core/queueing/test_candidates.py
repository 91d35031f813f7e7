"""How many jobs are proposed: as many as fit beside each other, however many queues wait."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

import pytest

from kit import facts, kai, nodes
from kit.bench import Bench
from muster.events.base import Cause, Event
from muster.events.decisions import CandidatesProposed, GangAdmitted, QuotaDenied, QuotaReserved
from muster.events.effects import EffectApplied
from muster.model.keys import Ref
from muster.model.workload import Workload

QUEUES = 40


def cluster(api: str) -> list[Event]:
    """As many queues, each guaranteed 2 GPUs of all."""
    if api == "kai":
        queues = (kai.queue(f"q{index}", gpu=(2, -1, 1)) for index in range(QUEUES))
        return [nodes.node("n", cpu=1000, memory=1000, gpu=2 * QUEUES), *queues]
    whole = {"nvidia.com/gpu": 2 * QUEUES}
    own = {"nvidia.com/gpu": 2}
    leaves = tuple(facts.node(f"q{index}", own, whole, (f"q{index}",)) for index in range(QUEUES))
    return [facts.tree(facts.node("root", whole, whole, children=leaves))]


def job(api: str, name: str, index: int, gpu: int) -> Workload:
    if api == "kai":
        return kai.work(name, f"q{index}", gpu=gpu)
    return facts.job(name, f"q{index}", gpu=gpu)


def full(api: str) -> tuple[Bench, list[Workload]]:
    """Every queue uses its guarantee, and has two jobs more that wait."""
    bench = Bench()
    bench.facts(*cluster(api))
    bench.synced()
    bench.settle()
    running = [job(api, f"running-{index}", index, 2) for index in range(QUEUES)]
    bench.facts(*map(facts.seen, running))
    assert sum(isinstance(event, GangAdmitted) for event in bench.settle()) == QUEUES
    bench.append(
        "actuator", "input", [EffectApplied(cause=Cause(1, 0), ref=each.ref, attempt=1, rv=each.rv) for each in running]
    )
    bench.facts(*(facts.seen(each, suspended=False, phase="running", settled=False) for each in running))
    bench.settle()
    for number in range(2):
        bench.facts(*(facts.seen(job(api, f"waiting-{number}-{index}", index, 1)) for index in range(QUEUES)))
        bench.settle()
    return bench, running


@pytest.mark.parametrize("api", ["tree", "kai"])
def test_what_becomes_free_is_proposed_to_as_many_as_it_is_enough_for(api: str) -> None:
    bench, running = full(api)
    for each in running[3:30:9]:
        bench.facts(facts.gone(each.ref.name, each.ref.namespace))
        counts, proposed = Counter[type](), set[Ref]()
        for event in bench.settle():
            counts[type(event)] += 1
            proposed |= {found.ref for found in event.candidates} if isinstance(event, CandidatesProposed) else set()
        assert counts[QuotaReserved] == 2
        assert len(proposed) == 2
        assert not counts[QuotaDenied]
    bench.sound()


def distinct(waiting: int) -> Bench:
    """Every queue uses its guarantee; so many jobs wait behind, no two of which ask for the same."""
    bench = Bench(check=False)
    whole, own = {"cpu": 4 * QUEUES}, {"cpu": 4}
    leaves = tuple(facts.node(f"q{index}", own, whole, (f"q{index}",)) for index in range(QUEUES))
    bench.facts(facts.tree(facts.node("root", whole, whole, children=leaves)))
    bench.synced()
    bench.settle()
    running = [facts.job(f"running-{index}", f"q{index}", cpu=4) for index in range(QUEUES)]
    bench.facts(*map(facts.seen, running))
    bench.settle()
    bench.append(
        "actuator", "input", [EffectApplied(cause=Cause(1, 0), ref=each.ref, attempt=1, rv=each.rv) for each in running]
    )
    bench.facts(*(facts.seen(each, suspended=False, phase="running", settled=False) for each in running))
    bench.settle()
    for start in range(0, waiting, 100):
        bench.facts(
            *(
                facts.seen(facts.job(f"waiting-{index}", f"q{index % QUEUES}", cpu=2 + index / 1000))
                for index in range(start, start + 100)
            )
        )
        bench.settle()
    return bench


def steps(bench: Bench, *happened: Event) -> int:
    """How many functions all stages call until they have decided all that follows from an event: a clock that a busy
    machine does not change.
    """
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        if happened:
            bench.facts(*happened)
        bench.settle()
        bench.pass_time(60_000)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("what", ["an end", "an arrival", "a minute"])
def test_an_event_costs_the_same_however_many_requests_wait(what: str) -> None:
    arrives = facts.job("new", "q5", cpu=1.5)
    events = {"an end": [facts.gone("running-3", "q3")], "an arrival": [facts.seen(arrives)], "a minute": []}
    few, many = (steps(distinct(waiting), *events[what]) for waiting in (200, 2000))
    assert many < 1.2 * few, (few, many)
