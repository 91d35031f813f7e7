"""Nodes that are cleared for a job: a cluster that does what is ordered only when the test says so."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from kit import facts, nodes
from kit.bench import Bench
from kit.kai import queue, work
from muster.core.actuation.orders import said as answered
from muster.events.base import Cause
from muster.events.decisions import EvictionOrdered, GangAdmitted
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import PodGone, PodObserved, WorkloadGone
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.placing import PodRules
from muster.model.workload import PodSet, PodState, Workload
from muster.told.views.story import Story


class Play:
    """Nodes of two cores; the cluster does what is ordered only when the test says so."""

    def __init__(self, count: int = 2, *, moves: int = 0, rng: Random | None = None, **quota: float) -> None:
        self.bench = Bench(rng)
        chosen = PlacementChosen(mode="pack", hold_ms=10**12, moves=moves)
        self.bench.append("gang_admitter", "input", [chosen])
        for name, least in (quota or {"a": 2 * count}).items():
            self.bench.facts(queue(name, cpu=(least * 1000, -1, 1)))
        for index in range(count):
            self.bench.facts(nodes.node(f"n{index}", cpu=2))
        self.bench.synced()
        self.jobs: dict[str, Workload] = {}
        self.at: dict[str, list[str]] = {}
        self.pods: dict[str, list[Ref]] = {}

    def job(self, name: str, of: str, cpu: int, priority: str = "train", count: int = 1, **changes: Any) -> None:
        """It is created, and all that follows from that happens."""
        self.arrives(name, of, cpu, priority, count, **changes)
        self.settle()

    def arrives(self, name: str, of: str, cpu: int, priority: str = "train", count: int = 1, **changes: Any) -> None:
        need = facts.vector(cpu=count * cpu)
        sets = (PodSet("main", count, facts.vector(cpu=cpu)),)
        said = {"need": {"ack": need, "full": need}, "pod_sets": sets, "created": self.bench.now, **changes}
        self.jobs[name] = work(name, of, priority_class=priority, **said)
        self.bench.facts(facts.seen(self.jobs[name]))

    def shares(self, name: str, of: str, share: int) -> None:
        """A job of one pod with thousandths of a GPU comes."""
        sets = (PodSet("main", 1, facts.vector(cpu=1), rules=PodRules(share=share)),)
        need = facts.vector(cpu=1, gpu=f"{share}m")
        self.job(name, of, 1, pod_sets=sets, need={"ack": need, "full": need})

    def settle(self) -> None:
        """Who is admitted runs at once where it was placed; who is to leave stays until the test lets it go."""
        before = len(self.admitted())
        self.bench.settle()
        for event in self.admitted()[before:]:
            self._runs(event)
        self.bench.settle()

    def admitted(self) -> list[GangAdmitted]:
        return self.bench.happened(GangAdmitted)

    def _runs(self, event: GangAdmitted) -> None:
        name = event.ref.name
        seq = next(each.seq for each in self.bench.log if event in each.commit.events)
        rv = facts.next_rv()
        effect = EffectApplied(cause=Cause(seq, 0), ref=event.ref, attempt=event.attempt, rv=rv, action="resume")
        self.bench.append("actuator", "input", [effect])
        running = {"rv": facts.next_rv(), "phase": "running", "suspended": False, "settled": False, "annotated": True}
        self.jobs[name] = replace(self.jobs[name], intent=f"1-{seq}-0", **running)
        self.at[name] = [each.node for each in event.placements for _ in range(each.count)]
        of, devices = self.jobs[name].pod_sets[0], [device for each in event.placements for device in each.devices]
        here = {"running": True, "request": of.request, "rules": of.rules}
        pods = [
            PodState(self.pod(name, index), facts.next_rv(), event.ref.uid, at, devices=own, **here)
            for index, at in enumerate(self.at[name])
            for own in [tuple(devices[index : index + 1])]
        ]
        self.bench.facts(facts.seen(self.jobs[name]), *(PodObserved(pod=each) for each in pods))

    def pod(self, name: str, index: int) -> Ref:
        return Ref("Pod", "default", f"{name}-{index}", f"{name}-{index} of {self.jobs[name].rv}")

    def ends(self, name: str) -> None:
        """It is deleted, and nothing of it is left."""
        pods = [self.pod(name, index) for index in range(len(self.at.pop(name, ())))]
        gone = [PodGone(ref=each, rv=facts.next_rv()) for each in self.pods.pop(name, pods)]
        self.bench.facts(WorkloadGone(ref=self.jobs[name].ref, rv=facts.next_rv()), *gone)
        self.settle()

    def ordered(self) -> list[str]:
        """Who was ordered to leave so far."""
        return [victim.ref.name for order in self.orders() for victim in order.victims]

    def orders(self) -> list[EvictionOrdered]:
        """The orders that make room on nodes alone."""
        return [each for each in self.bench.happened(EvictionOrdered) if each.for_nodes]

    def claims(self) -> list[EvictionOrdered]:
        """The others."""
        return [each for each in self.bench.happened(EvictionOrdered) if not each.for_nodes]

    def suspended(self, name: str) -> None:
        """The order to suspend it is carried out; its pods are still there."""
        orders = self.bench.happened(EvictionOrdered)
        order = next(each for each in reversed(orders) if name in [victim.ref.name for victim in each.victims])
        seq = next(each.seq for each in self.bench.log if order in each.commit.events)
        attempt = next(each.attempt for each in order.victims if each.ref.name == name)
        job, rv = self.jobs[name], facts.next_rv()
        effect = EffectApplied(cause=Cause(seq, 0), ref=job.ref, attempt=attempt, rv=rv, action="suspend")
        self.bench.append("actuator", "input", [effect])
        self.pods[name] = [self.pod(name, index) for index in range(len(self.at[name]))]
        self.jobs[name] = replace(job, rv=rv, phase="suspending", suspended=True)
        self.bench.facts(facts.seen(self.jobs[name]))
        self.settle()

    def refused(self, name: str) -> None:
        """The order to suspend it is refused: by a budget, or by the API server."""
        [order] = self.orders()
        seq = next(each.seq for each in self.bench.log if order in each.commit.events)
        victim = next(each for each in order.victims if each.ref.name == name)
        failed = EffectFailed(
            cause=Cause(seq, 0),
            ref=victim.ref,
            attempt=victim.attempt,
            action="suspend",
            reason="refused",
            problem=answered("no"),
        )
        self.bench.append("actuator", "input", [failed])
        self.settle()

    def left(self, name: str, **changes: Any) -> None:
        """Nothing of it is left; ``changes``: what somebody has changed of it meanwhile."""
        rv = facts.next_rv()
        self.bench.facts(*(PodGone(ref=each, rv=rv) for each in self.pods.pop(name)))
        self.jobs[name] = replace(self.jobs[name], rv=facts.next_rv(), phase="waiting", settled=True, **changes)
        self.bench.facts(facts.seen(self.jobs[name]))
        self.settle()

    def told(self, name: str) -> str:
        """Where a job stands, and its story, in the words of ``muster why``."""
        story = Story(f"default/{name}")
        for stored in self.bench.log:
            story.feed(stored)
        found = story.of(self.jobs[name].ref.key)
        return "\n".join([found.standing.text, *(each.entry.text for each in found.happenings)])

    def runs(self) -> dict[str, list[str]]:
        return {name: at for name, at in self.at.items() if not self.jobs[name].suspended}


def halves(*, moves: int = 0, **quota: float) -> Play:
    """``x`` and ``y`` run on a node each, with one core free beside them."""
    play = Play(moves=moves, **quota)
    for name, other in (("x", "p"), ("y", "q")):
        play.job(name, "a", 1)
        play.job(other, "a", 1)
        play.bench.pass_time(1_000)
    for other in ("p", "q"):
        play.ends(other)
    assert sorted(at for each in play.runs().values() for at in each) == ["n0", "n1"]
    return play
