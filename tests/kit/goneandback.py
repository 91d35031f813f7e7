"""Random histories in which objects of every kind are gone and there again, while stages decide nothing for a time.

It goes on where ``turmoil`` ends. An object is said gone and seen again between two decisions of any stage: as the same
object (a watch that was cut, a kind switched off and on, a restored API server), or as another one of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from kit import facts, kai, nodes
from kit.podgangs import Chance
from kit.turmoil import QUEUES, Turmoil
from muster.core.cell.seats import AnySeat, Seat
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    NodeGone,
    PodGone,
    PodGroupGone,
    PodGroupObserved,
    PodObserved,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    WorkloadGone,
)
from muster.model.keys import Ref
from muster.model.workload import ChildState, PodState, Workload
from muster.told.readmodel.model import ReadModel


class GoneAndBack(Turmoil):
    """One history; everything is drawn from ``seed``."""

    def __init__(self, seed: int) -> None:
        self.pods: dict[str, list[PodState]] = {}
        """job name -> the pods of its cluster"""
        self.renamed: dict[str, str] = {}
        """uid of a job as its name makes it -> its uid"""
        self.back = Random(f"gone and back {seed}")
        super().__init__(seed)

    # --- what is gone and back ------------------------------------------------------------------------------------

    def gone_and_back(self) -> None:
        """One object, or several at a time."""
        rng = self.back
        kinds = (
            self._job,
            self._job,
            self._job,
            self._cluster,
            self._pod,
            self._node,
            self._queue,
            self._tree,
            self._class,
        )
        said: list[Event] = []
        for _ in range(rng.choice((1, 1, 1, 3))):
            said += rng.choice(kinds)()
        together = rng.random() < 0.5
        if together and said:
            self.bench.facts(*said)
        for event in said if not together else ():
            self.bench.facts(event)
            if rng.random() < 0.2:
                self.decide_late()

    def _job(self) -> list[Event]:
        rng = self.back
        if not self.jobs:
            return []
        name = rng.choice(sorted(self.jobs))
        job = self.jobs[name]
        left = WorkloadGone(ref=job.ref, rv=facts.next_rv(), unwatched=rng.random() < 0.2)  # its kind is turned off
        changes: dict[str, Any] = {"rv": facts.next_rv()}
        if rng.random() < 0.3 and job.suspended and job.phase == "waiting" and name not in self.clusters:
            uid = f"{facts.job_ref(name, job.ref.namespace).uid}-{len(self.bench.log)}"
            self.renamed[facts.job_ref(name, job.ref.namespace).uid] = uid
            changes["ref"] = Ref(job.ref.kind, job.ref.namespace, job.ref.name, uid)
        elif rng.random() < 0.3 and job.suspended and job.phase == "waiting":
            changes |= self._asks()
        fact = facts.seen(msgspec.structs.replace(job, **changes))
        self.jobs[name] = fact.workload
        return [left, fact]

    def _cluster(self) -> list[Event]:
        rng = self.back
        if not self.clusters:
            return []
        name = rng.choice(sorted(self.clusters))
        job = self.jobs.get(name)
        if job is None:
            return []
        ref = facts.cluster_ref(name, job.ref.namespace, self.clusters[name])
        state = ChildState(ref=ref, rv=facts.next_rv(), owner_uid=job.ref.uid, owner_kind="RayJob")
        return [
            ChildGone(ref=ref, rv=facts.next_rv()),
            ChildObserved(child=msgspec.structs.replace(state, rv=facts.next_rv())),
        ]

    def _pod(self) -> list[Event]:
        """A pod comes, or is gone and back, or another takes its place."""
        rng = self.back
        if not self.clusters:
            return []
        name = rng.choice(sorted(self.clusters))
        job = self.jobs.get(name)
        if job is None or not self.there:
            return []
        mine = self.pods.setdefault(name, [])
        cluster = facts.cluster_ref(name, job.ref.namespace, self.clusters[name])
        said: list[Event] = []
        if mine and rng.random() < 0.7:
            old = mine.pop(rng.randrange(len(mine)))
            said.append(PodGone(ref=old.ref, rv=facts.next_rv()))
            uid = old.ref.uid if rng.random() < 0.6 else f"{old.ref.uid}-{len(self.bench.log)}"
            pod = msgspec.structs.replace(old, ref=Ref("Pod", old.ref.namespace, old.ref.name, uid), rv=facts.next_rv())
        else:
            ref = Ref("Pod", job.ref.namespace, f"{name}-{len(self.bench.log)}", f"pod-{name}-{len(self.bench.log)}")
            pod = PodState(
                ref=ref,
                rv=facts.next_rv(),
                owner_uid=cluster.uid,
                running=True,
                node=rng.choice(sorted(self.there)),
                request=facts.vector(cpu=1),
            )
        mine.append(pod)
        return [*said, PodObserved(pod=pod)]

    def _node(self) -> list[Event]:
        rng = self.back
        known = self.bench.states["gang_admitter"].ledger.nodes
        there = [name for name in sorted(self.there) if name in known and known[name].uid]
        if not there:
            return []
        name = rng.choice(there)
        uid = known[name].uid
        new = uid if rng.random() < 0.6 else f"uid-{name}-{len(self.bench.log)}"
        left = NodeGone(ref=Ref("Node", "", name, uid), rv=facts.next_rv())
        return [left, nodes.node(name, cpu=rng.choice((8, 12)), memory=64, uid=new)]

    def _queue(self) -> list[Event]:
        rng = self.back
        if self.forest != "tree" and rng.random() < 0.5:
            name = rng.choice(QUEUES)
            return [kai.queue_gone(name), kai.queue(name, cpu=(rng.choice((0, 4)) * 1000, -1, 1))]
        known = self.bench.states["queue_sorter"].queues.queue_specs
        if not known:
            return []
        was = known[rng.choice(sorted(known))]
        left = QueueGone(ref=was.ref, rv=facts.next_rv())
        ref = was.ref
        if rng.random() < 0.4 and ref.name in self.queue_objects:
            ref = Ref(ref.kind, ref.namespace, ref.name, f"queue-{ref.name}-{len(self.bench.log)}")
            self.queue_objects[ref.name] = ref.uid
        return [left, msgspec.structs.replace(was, ref=ref, rv=facts.next_rv())]

    def _tree(self) -> list[Event]:
        if self.forest == "kai" or self.back.random() < 0.6:
            return []
        elastic = self.bench.states["quota_accountant"].forest.elastic
        if not elastic.trees:
            return []
        was = elastic.trees[self.back.choice(sorted(elastic.trees))]
        return [facts.tree_gone(was.ref.name), msgspec.structs.replace(was, rv=facts.next_rv())]

    def _class(self) -> list[Event]:
        ref = Ref("PriorityClass", "", "high", "class-high")
        value = self.back.choice((5, 100))
        left = PriorityClassGone(ref=ref, rv=facts.next_rv())
        default = self.back.random() < 0.3
        return [left, PriorityClassObserved(ref=ref, rv=facts.next_rv(), value=value, is_default=default)]

    def pause(self) -> None:
        """Stages decide nothing for a time, or do so again."""
        chosen = {name for name in sorted(self.bench.seats) if self.back.random() < 0.3}
        self.bench.paused = frozenset(chosen if self.back.random() < 0.6 else ())

    # --- where the turmoil names a job by its first uid -------------------------------------------------------------

    def _end(self, name: str, job: Workload) -> None:
        self._cluster_gone(name, job)
        if self.rng.random() < 0.6 or job.suspended:
            del self.jobs[name]
            self.pending.append(WorkloadGone(ref=job.ref, rv=facts.next_rv()))

    def _cluster_gone(self, name: str, job: Workload) -> None:
        super()._cluster_gone(name, job)
        self.pending += [PodGone(ref=pod.ref, rv=facts.next_rv()) for pod in self.pods.pop(name, [])]

    def _step(self, name: str, job: Workload) -> None:
        before = len(self.pending)
        super()._step(name, job)
        for index in range(before, len(self.pending)):
            fact = self.pending[index]
            if isinstance(fact, ChildObserved) and fact.child.owner_uid != job.ref.uid:
                self.pending[index] = ChildObserved(child=msgspec.structs.replace(fact.child, owner_uid=job.ref.uid))

    # --- the stages -------------------------------------------------------------------------------------------------

    def decide_late(self) -> None:
        awake = [name for name in sorted(self.bench.seats) if name not in self.bench.paused]
        if not awake:
            return
        name = self.back.choice(awake)
        due, in_seq = self.bench.seats[name].decisions(), len(self.bench.log)
        if not due:
            return
        for _ in range(self.back.randrange(3)):
            self.back.choice((self.deliver, self.actuate, self.gone_and_back))()
        if any(each.commit.stage == name and each.commit.kind == "decision" for each in self.bench.log[in_seq:]):
            return  # It has written since, and would not have decided it.
        self._committed(self.bench.append(name, "decision", due, in_seq=in_seq))

    def pass_time(self) -> None:
        super().pass_time()
        for _ in range(3):
            self.back.choice((self.gone_and_back, self.gone_and_back, self.pause))()

    def run(self, steps: int = 300) -> None:
        super().run(steps)

    def _make_peace(self) -> None:
        self.bench.paused = frozenset()
        super()._make_peace()


# --- the copies of one fact -------------------------------------------------------------------------------------


BOOKS = (
    *("trees", "nodes", "charges", "used", "firm", "below", "kept", "asks", "attempts"),
    *("usage", "waiting", "going", "leaving"),
)
"""Of a ledger, what each stage that has one folds alike."""
QUEUED = (
    *("jobs", "workloads", "refusals", "failures", "not_before", "unplaced", "reserved", "places", "resumed", "stale"),
    *("priority_classes", "default_classes", "queue_priorities", "queue_paths", "policies", "paused", "backoffs"),
    *("unit_priorities", "unit_wishes"),
)
PLACED = ("reservations", "admitted", "unplaced", "orders", "found", "waits", "gangs", "queued", "holds")


def differences(states: dict[str, Any], log: Iterable[Stored]) -> Iterator[str]:
    """Where two stages differ about one fact though all is decided."""
    accountant, sorter = states["quota_accountant"], states["queue_sorter"]
    admitter, preemptor = states["gang_admitter"], states["preemptor"]
    seat: AnySeat = Seat(ReadModel())
    for stored in log:
        seat.fold(stored)
    read = seat.state
    for name, queues in (("sorter", sorter.queues), ("preemptor", preemptor.queues), ("read model", read.queues)):
        for each in BOOKS:
            yield from _same(f"{each}: {name}", getattr(queues.ledger, each), getattr(accountant.ledger, each))
        yield from _same(f"claims: {name}", _held(queues.ledger), _held(accountant.ledger))
        for each in QUEUED:
            yield from _same(f"{each}: {name} and sorter", getattr(queues, each), getattr(sorter.queues, each))
    for each in PLACED:
        yield from _same(f"{each}: preemptor and admitter", getattr(preemptor.places, each), getattr(admitter, each))
    yield from _same("nodes: preemptor and admitter", _nodes(preemptor), _nodes(admitter))
    for each in ("pods", "children"):
        yield from _same(f"{each}: read model", getattr(read.presence, each), getattr(accountant.presence, each))
    for each in (accountant.proposals, accountant.plans, admitter.plans, sorter.queues.proposed.extra):
        yield from _same("unanswered", each, {})

    jobs, ledger, known = sorter.queues.jobs, accountant.ledger, sorter.queues.workloads
    charged = {uid: entry.attempt for uid, entry in accountant.entries.items()}
    seen = {uid: holding.attempt for uid, holding in preemptor.charged.items()}
    yield from _same("charged: preemptor and accountant", seen, charged)
    waiting = {uid: job for uid, job in jobs.items() if job.status != "charged"}
    attempts = {uid: job.attempt for uid, job in waiting.items()}
    asking = {uid: ask.attempt for uid, ask in ledger.asks.items() if uid not in charged}
    yield from _same("jobs and asks", attempts, asking)
    yield from _same("jobs and attempts", attempts, {uid: ledger.attempts.get(uid) for uid in waiting})
    held = {uid: each.attempt for uid, each in admitter.reservations.items()} | admitter.admitted
    yield from _same("admitted and charged", held, {uid: charged.get(uid) for uid in held})
    seen = {uid: work.rv for uid, work in accountant.workloads.items() if uid in known}
    yield from _same("workloads", seen, {uid: work.rv for uid, work in known.items()})
    yield from _same("gangs", [uid for uid in known if uid not in admitter.gangs], [])
    ranks = {uid: (-job.priority, job.rank) for uid, job in waiting.items()}
    yield from _same("ranks", ranks, {uid: admitter.queued[uid].rank for uid in waiting if uid in admitter.queued})
    yield from _same("without places", set(sorter.queues.unplaced), set(admitter.unplaced))


def _nodes(state: Any) -> dict[str, Any]:
    nodes = (state.places if hasattr(state, "places") else state).ledger.nodes
    return {name: (node.uid, node.used, sorted(node.occupants)) for name, node in nodes.items()}


def _held(ledger: Any) -> dict[str, Any]:
    """The claims, without how long what they hold has been idle: only the accountant counts that."""
    return {uid: msgspec.structs.replace(claim, idle={}, idle_until=0) for uid, claim in ledger.claims.by_uid.items()}


def _same(what: str, mine: Any, theirs: Any) -> Iterator[str]:
    if mine != theirs:
        yield f"{what}: {_where(mine, theirs)}"


def _where(mine: Any, theirs: Any) -> str:
    """The path to the first difference, and the two values there."""
    if type(mine) is type(theirs) and isinstance(mine, Struct):
        mine, theirs = msgspec.structs.asdict(mine), msgspec.structs.asdict(theirs)
    if isinstance(mine, dict) and isinstance(theirs, dict):
        key = next(key for key in (*mine, *theirs) if mine.get(key) != theirs.get(key))
        return f"{key}.{_where(mine.get(key), theirs.get(key))}"
    return f" {mine} != {theirs}"


class PodsGoneAndBack(Chance):
    """The same of gangs of pods: their pods, their PodGroups, their nodes."""

    def answer(self) -> None:
        if self.rng.random() < 0.4:
            self.bench.facts(*self.rng.choice((self._pod, self._pod, self._group, self._node))())
        super().answer()

    def _pod(self) -> list[Event]:
        if not self.pods:
            return []
        uid = self.rng.choice(sorted(self.pods))
        left = PodGone(ref=self.pods[uid].ref, rv=facts.next_rv())
        self.put(self.pods[uid], tell=False)
        self.fresh.pop(uid)
        return [left, PodObserved(pod=self.pods[uid])]

    def _group(self) -> list[Event]:
        if not self.groups:
            return []
        name = self.rng.choice(sorted(self.groups))
        left = PodGroupGone(ref=self.groups[name].ref, rv=facts.next_rv())
        self.groups[name] = msgspec.structs.replace(self.groups[name], rv=facts.next_rv())
        return [left, PodGroupObserved(pod_group=self.groups[name])]

    def _node(self) -> list[Event]:
        if not self.nodes:
            return []
        name = self.rng.choice(sorted(self.nodes))
        left = NodeGone(ref=Ref("Node", "", name, self.nodes[name]), rv=facts.next_rv())
        if self.rng.random() < 0.4:
            self.count += 1
            self.nodes[name] = f"uid-{name}-{self.count}"
        return [left, nodes.node(name, cpu=self.rng.randint(2, 8), uid=self.nodes[name])]
