"""How many jobs are proposed: as many as fit beside each other, however many queues wait."""

from __future__ import annotations

from collections import Counter

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
