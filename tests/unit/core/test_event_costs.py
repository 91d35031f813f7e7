"""The cost of an event for the deciders does not grow with the work that waits: counted in function calls, a clock that
a busy machine does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from kit import facts, kai, nodes
from kit.bench import Bench
from kit.steps import calls
from muster.core.preemption import claimants, makingroom
from muster.core.preemption.passing import Passing
from muster.core.preemption.preemptorstate import PreemptorState, UnplacedClaimant
from muster.core.queueing import choice
from muster.core.queueing.book import Shape
from muster.core.queueing.queues import Job, Queues
from muster.core.queueing.sorterstate import SorterState
from muster.core.quota.division import dividing
from muster.core.quota.ledger.quotaledger import UNBOUNDED
from muster.events.base import Cause, Event
from muster.events.decisions import EvictionOrdered, GangAdmitted, GangDeferred
from muster.events.effects import EffectApplied
from muster.events.system import PlacementChosen
from muster.model.workload import PodSet, Workload

AT_ONCE = 100
GB = 10**9


def full(queues: int, waiting: int, gangs: int, of_kai: int = 0) -> Bench:
    """A copy: several tests begin with the same."""
    return filled(queues, waiting, gangs, of_kai).copied()


@cache
def filled(queues: int, waiting: int, gangs: int, of_kai: int) -> Bench:
    """Every queue uses its guarantee; so many jobs wait behind, no two of which ask for the same, and so many gangs
    that have room in their quota and none on the nodes. Beside them so many KAI queues, each of which uses its share
    and has a job that waits.
    """
    bench = Bench(check=False)
    if of_kai:
        bench.facts(*(nodes.node(f"gpu{at}", cpu=1, gpu=8) for at in range(of_kai // 8)))
        bench.facts(*(kai.queue(f"k{at}", gpu=(0, -1, 1)) for at in range(of_kai)))
    if gangs:
        bench.append("gang_admitter", "input", [PlacementChosen(mode="pack", hold_ms=10**12)])
        bench.facts(*(nodes.node(f"n{index}", cpu=3, pods=10_000) for index in range(4)))
    own, whole = {"memory": "4G"}, {"memory": f"{4 * queues}G", "cpu": 10**6}
    leaves = tuple(facts.node(f"q{index}", own, whole, (f"q{index}",)) for index in range(queues))
    bench.facts(facts.tree(facts.node("root", whole, whole, children=leaves)))
    bench.synced()
    bench.settle()
    start(bench, [of_gpu(f"gpu-{at}", f"k{at}") for at in range(of_kai)])
    start(bench, [of_memory(f"running-{index}", f"q{index}", 4 * GB) for index in range(queues)])
    come(bench, [of_gpu(f"gpu-waiting-{at}", f"k{at}") for at in range(of_kai)])
    come(bench, [of_memory(f"waiting-{at}", f"q{at % queues}", 2 * GB + at) for at in range(waiting)])
    found = come(bench, [gang(f"gang-{at}", f"q{at % queues}", 5 + at % 7) for at in range(gangs)])
    assert sum(isinstance(event, GangDeferred) for event in found) == gangs
    return bench


def start(bench: Bench, jobs: Sequence[Workload]) -> None:
    """They come, are admitted, and run."""
    assert sum(isinstance(event, GangAdmitted) for event in come(bench, jobs)) == len(jobs)
    for first in range(0, len(jobs), AT_ONCE):
        some = jobs[first : first + AT_ONCE]
        applied = [EffectApplied(cause=Cause(1, 0), ref=each.ref, attempt=1, rv=each.rv) for each in some]
        bench.append("actuator", "input", applied)
        bench.facts(*(facts.seen(each, suspended=False, phase="running", settled=False) for each in some))
        bench.settle()


def of_gpu(name: str, queue: str) -> Workload:
    need = {"nvidia.com/gpu": 1000}
    return kai.work(name, queue, need={"ack": need, "full": need}, pod_sets=(PodSet("main", 1, need),))


def come(bench: Bench, jobs: Sequence[Workload]) -> list[Event]:
    decided: list[Event] = []
    for start in range(0, len(jobs), AT_ONCE):
        bench.facts(*map(facts.seen, jobs[start : start + AT_ONCE]))
        decided += bench.settle()
    return decided


def of_memory(name: str, queue: str, amount: int) -> Workload:
    need = {"memory": amount}
    return facts.job(name, queue, need={"ack": need, "full": need}, pod_sets=(PodSet("main", 1, {}),))


def gang(name: str, queue: str, pods: int) -> Workload:
    """Pods of two cpu, one more at least than the nodes take together."""
    need, sets = {"cpu": 2000 * pods}, (PodSet("main", pods, {"cpu": 2000}),)
    return facts.job(name, queue, need={"ack": need, "full": need}, pod_sets=sets)


def steps(bench: Bench, happened: Sequence[Event]) -> int:
    """How many functions all stages call until they have decided all that follows from it."""

    def decide() -> None:
        if happened:
            bench.facts(*happened)
        bench.settle()
        bench.pass_time(60_000)

    return calls(decide)


def happens(what: str, time: int) -> list[Event]:
    """The first ``time`` and the second are alike."""
    if what == "an end":
        return [facts.gone(f"running-{3 + time}", f"q{3 + time}")]
    if what == "a node":
        return [nodes.node(f"n{time}", cpu=3, pods=10_000, schedulable=False)]
    if what == "an arrival":
        return [facts.seen(of_memory(f"new-{time}", f"q{5 + time}", 3 * GB // 2 + time))]
    return []


SMALL, LARGE = (50, 200, 50), (500, 2000, 500)
"""Queues, waiting jobs, gangs."""


@pytest.mark.parametrize("what", ["an end", "an arrival", "a minute", "a node"])
def test_an_event_costs_the_same_however_many_queues_wait(what: str) -> None:
    few, many = (per_commit(full(*size), what) for size in (SMALL, LARGE))
    assert many < 1.2 * few, (few, many)


@pytest.mark.parametrize("what", ["an arrival", "a minute", "a node"])
def test_an_event_costs_the_same_however_many_wait_in_a_queue(what: str) -> None:
    few, many = (per_commit(full(20, waiting, gangs), what) for waiting, gangs in ((100, 20), (1000, 200)))
    assert many < 1.2 * few, (few, many)


@pytest.mark.parametrize("what", ["an end", "an arrival", "a minute", "a node"])
def test_an_event_costs_the_same_however_many_kai_queues_wait_beside(what: str) -> None:
    few, many = (per_commit(full(50, 200, 50, of_kai), what) for of_kai in (16, 160))
    assert many < 1.2 * few, (few, many)


def orders(jobs: int) -> float:
    """What each of so many jobs costs that come at once, and for which others are evicted that do not leave yet."""
    bench = Bench(check=False)
    bench.facts(nodes.node("n", cpu=1, gpu=256), *(kai.queue(name, gpu=(0, -1, 1)) for name in "ab"))
    bench.synced()
    bench.settle()
    start(bench, [of_gpu(f"runs-{at}", "b") for at in range(256)])
    count = calls(lambda: come(bench, [of_gpu(f"owed-{at}", "a") for at in range(jobs)]))
    assert len(bench.happened(EvictionOrdered)) == jobs
    return count / jobs


def test_an_order_costs_the_same_however_many_claims_are_in_force() -> None:
    few, many = orders(32), orders(128)
    assert many < 1.05 * few, (few, many)


def lent(queues: int, *, placed: bool) -> Bench:
    """Every queue but the first uses its guarantee; the last uses that of the first as well."""
    bench = Bench(check=False)
    if placed:
        bench.append("gang_admitter", "input", [PlacementChosen(mode="pack", hold_ms=10**12)])
        bench.facts(nodes.node("n", cpu=4 * queues, pods=10_000))
    own, whole = {"memory": "4G"}, {"memory": f"{4 * queues}G", "cpu": 10**6}
    leaves = tuple(facts.node(f"q{index}", own, whole, (f"q{index}",)) for index in range(queues))
    bench.facts(facts.tree(facts.node("root", whole, whole, children=leaves)))
    bench.synced()
    bench.settle()
    start(bench, [pod_of(f"running-{index}", f"q{index}", 4 * GB) for index in range(1, queues)])
    start(bench, [pod_of("borrows", f"q{queues - 1}", 4 * GB)])
    return bench


def pod_of(name: str, queue: str, memory: int) -> Workload:
    need = {"cpu": 1000, "memory": memory}
    return facts.job(name, queue, need={"ack": need, "full": need}, pod_sets=(PodSet("main", 1, {"cpu": 1000}),))


@pytest.mark.parametrize("placed", [False, True])
def test_victims_are_sought_where_more_than_the_guarantee_is_used_however_many_queues_use_theirs(placed: bool) -> None:
    def reclaimed(queues: int) -> int:
        bench = lent(queues, placed=placed)
        come(bench, [pod_of("larger-than-owed", "q0", 5 * GB)])
        count = calls(lambda: come(bench, [pod_of("owed", "q0", 3 * GB)]))
        [order] = bench.happened(EvictionOrdered)
        assert [victim.ref.name for victim in order.victims] == ["borrows"]
        return count

    few, many = reclaimed(50), reclaimed(500)
    assert many < few + 10 * (500 - 50), (few, many)


def test_of_a_queue_with_a_claim_those_are_passed_at_a_glance_that_its_guarantee_does_not_cover_beside() -> None:
    bench = lent(10, placed=False)
    come(bench, [pod_of("owed", "q0", 3 * GB)])
    assert len(bench.happened(EvictionOrdered)) == 1
    come(bench, [pod_of(f"waiting-{at}", "q0", 2 * GB + at) for at in range(50)])
    looked = [*claimants._may_be_owed(bench.states["preemptor"], "root/q0")]
    assert len(looked) == 1, looked  # The shape of the claimant itself, whose claim may yet fall short.


def test_what_is_asked_beyond_a_share_or_for_just_it_divides_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, divided, divide = full(5, 5, 0, of_kai=16), list[str](), dividing.fair_shares

    def counted(*args: object) -> object:
        divided.append("gpu")
        return divide(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(dividing, "fair_shares", counted)
    come(bench, [of_gpu("one-more", "k3")])
    assert not divided
    bench.facts(facts.gone("gpu-4", "default"))
    bench.settle()
    assert not divided  # Its queue asks for just its share from here on.


def test_one_free_device_has_one_kai_queue_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others cannot come before it: that is seen in how they are kept in order."""
    bench, looked, begin = full(5, 5, 0, of_kai=160), list[str](), choice._Turn.__init__

    def counted(self: choice._Turn, state: SorterState, queue: str, *args: Any) -> None:
        looked.append(queue)
        begin(self, state, queue, *args)

    monkeypatch.setattr(choice._Turn, "__init__", counted)
    for at in (4, 90):
        looked.clear()
        bench.facts(facts.gone(f"gpu-{at}", "default"))
        assert any(isinstance(each, GangAdmitted) for each in bench.settle())
        assert 0 < len(looked) <= 3, looked


def test_gangs_that_are_owed_nothing_of_what_their_queue_lacks_are_passed_at_a_glance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their queue uses less memory than it is guaranteed from here on; they ask for cpu, of which it has no min."""
    bench, looked, due = full(10, 0, 200), list[str](), makingroom._is_due

    def counted(state: PreemptorState, found: UnplacedClaimant) -> bool:
        looked.append(found.job.ref.name)
        return due(state, found)

    monkeypatch.setattr(makingroom, "_is_due", counted)
    bench.facts(facts.gone("running-4", "q4"))
    bench.settle()
    assert not looked


def test_starts_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node looks at the jobs that wait once an eighth of its limit has started there: 200 jobs of a two-hundredth."""
    queues, looked, look = full(100, 200, 0).states["preemptor"].queues, list[str](), Passing._look

    def counted(self: Passing, path: str, queues: Queues) -> None:
        looked.append(path)
        look(self, path, queues)

    monkeypatch.setattr(Passing, "_look", counted)
    passing = Passing()
    jobs = [job for job in queues.jobs.values() if job.status == "waiting"]
    for job in jobs:
        passing.comes(job.ref.uid, job.queue, 0)
    for job in reversed(jobs):
        passing.started(job, queues, 0)
    assert len(jobs) == 200
    assert looked == ["root"] * 8


def test_of_the_jobs_of_a_queue_that_may_claim_the_first_is_looked_at() -> None:
    state, looked = full(5, 100, 0).states["preemptor"], list[str]()

    def entitled(_: Shape, job: Job) -> bool:
        looked.append(job.ref.uid)
        return True

    def parked(state: PreemptorState, queue: str) -> Iterator[Shape]:
        return state.parked(queue, lambda _: UNBOUNDED)

    found = claimants._entitled(state, ["root/q3"], lambda _: True, entitled, parked)
    first = next(found)
    assert looked == [first[1].ref.uid]
    places = [job.place for _, job in (first, *found)]
    assert len(places) == 20
    assert places == sorted(places)


def per_commit(bench: Bench, what: str) -> float:
    """Calls for each commit: which jobs fit beside each other differs, and how many commits that takes."""
    steps(bench, happens(what, 0))  # The first time fills what remembers names.
    happened, before = happens(what, 1), bench.seq
    return steps(bench, happened) / max(bench.seq - before, 1)
