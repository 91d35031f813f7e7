"""Packed nodes, owners and borrowers of GPUs: who must be given a place, judged by arithmetic of its own.

The cluster does what is ordered, after a time: who is admitted runs where it was placed, who is to leave is gone
STOP_MS later and waits again. The judge shares no code with the core: it knows pods, devices and guarantees, and says
whether some of those who run above a guarantee could leave so that a job has its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import Any

from msgspec.structs import replace

from kit import facts, nodes
from kit.bench import Bench
from kit.kai import queue, work
from muster.core.actuation.orders import said
from muster.events.base import Cause
from muster.events.decisions import EvictionOrdered, GangAdmitted
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import PodGone, PodObserved, TreeNodeSpec, WorkloadGone, WorkloadObserved
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.placing import GPU, PodRules
from muster.model.workload import PodSet, PodState, Workload
from muster.told.views.story import Story

STOP_MS = 30_000
"""How long a job takes to stop."""
RESTART_MS = 60_000
"""What an eviction costs beside the work it throws away, as the docs say."""
AGAIN_MS = 300_000
"""And for each time that the job was evicted before."""
WHOLE = 1000


@dataclass(frozen=True)
class Shape:
    """What a job asks for: pods of whole GPUs, or of a part of one."""

    count: int
    gpus: int = 0
    share: int = 0

    @property
    def milli(self) -> int:
        return self.count * (self.gpus * WHOLE or self.share)


@dataclass
class Running:
    """A job that runs: since when, and on which nodes and shared devices."""

    name: str
    queue: str
    shape: Shape
    since: int
    at: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """(node, shared devices) of each pod"""


class Packed:
    """``guarantees``: queue -> GPUs. ``parents``, ``limits``: queue -> the department it is of, department -> the most
    GPUs it may use, for quota trees. ``moves``: so many jobs may move at once.
    """

    def __init__(
        self, sizes: Sequence[int], guarantees: dict[str, int], *, kai: bool, parents: dict[str, str] | None = None,
        moves: int = 0, mode: str = "pack", limits: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.bench = Bench(check=False)
        self.sizes = {f"n{index}": size for index, size in enumerate(sizes)}
        self.guarantees, self.parents, self.kai = guarantees, parents or {}, kai
        self.limits = limits or {}
        self.bench.append("gang_admitter", "input", [PlacementChosen(mode=mode, hold_ms=10**12, moves=moves)])
        total = sum(sizes)
        if kai:
            self.bench.facts(*(queue(name, gpu=(least, -1, 1)) for name, least in guarantees.items()))
        else:
            self.bench.facts(facts.tree(self._tree(total), rules={"reclaim": "enabled"}))
        self.bench.facts(*(nodes.node(name, cpu=1000, memory=1000, gpu=size) for name, size in self.sizes.items()))
        self.bench.synced()
        self.jobs: dict[str, Workload] = {}
        self.shapes: dict[str, tuple[str, Shape]] = {}
        self.running: dict[str, Running] = {}
        self.evicted: Counter[str] = Counter()
        self.stops: dict[str, int] = {}
        """How long those take to stop that take another time than STOP_MS"""
        self.refuses: set[str] = set()
        """Those that the API server lets no one suspend"""
        self._stopping: dict[str, int] = {}
        self._read = 0

    def _tree(self, total: int) -> TreeNodeSpec:
        def leaf(name: str) -> TreeNodeSpec:
            return facts.node(name, {"gpu": self.guarantees[name]}, {"gpu": total}, (name,))

        departments: dict[str, list[str]] = {}
        for name in self.guarantees:
            departments.setdefault(self.parents.get(name, ""), []).append(name)
        children = [leaf(name) for name in departments.pop("", ())]
        for above, names in departments.items():
            least = sum(self.guarantees[name] for name in names)
            most = self.limits.get(above, total)
            children.append(facts.node(above, {"gpu": least}, {"gpu": most}, (), tuple(leaf(each) for each in names)))
        return facts.node("root", {"gpu": total}, {"gpu": total}, children=tuple(children))

    # --- what happens -------------------------------------------------------------------------------------------

    def arrives(self, name: str, of: str, shape: Shape, on: str = "") -> None:
        """A job is created, and all that follows from that at once happens. ``on``: the only node it may be on."""
        self.bench.facts(self.created(name, of, shape, on))
        self.settle()

    def arrive(self, names: Iterable[str], of: str, shape: Shape) -> None:
        """Several alike are created at once."""
        self.bench.facts(*(self.created(name, of, shape) for name in names))
        self.settle()

    def created(self, name: str, of: str, shape: Shape, on: str = "") -> WorkloadObserved:
        need = {"cpu": shape.count, GPU: shape.milli}
        request = {"cpu": 1, GPU: shape.gpus * WHOLE} if shape.gpus else {"cpu": 1}
        where = {"kubernetes.io/hostname": on} if on else {}
        sets = (PodSet("main", shape.count, request, PodRules(share=shape.share, node_labels=where)),)
        said: dict[str, Any] = {"need": {"ack": need, "full": need}, "pod_sets": sets, "created": self.bench.now}
        job = work(name, of, **said) if self.kai else facts.job(name, of, **said)
        self.jobs[name], self.shapes[name] = job, (of, shape)
        return facts.seen(job)

    def settle(self) -> None:
        """Who is admitted runs at once where it was placed."""
        self.bench.settle()
        while self._read < len(self.bench.log):
            stored = self.bench.log[self._read]
            self._read += 1
            for event in stored.commit.events:
                if isinstance(event, GangAdmitted):
                    self._runs(event, stored.seq)
                elif isinstance(event, EvictionOrdered):
                    for victim in event.victims:
                        self._stops(victim.ref.name, victim.attempt, stored.seq)
            self.bench.settle()

    def _runs(self, event: GangAdmitted, seq: int) -> None:
        name = event.ref.name
        cause = Cause(seq, 0)
        effect = EffectApplied(cause=cause, ref=event.ref, attempt=event.attempt, rv=facts.next_rv(), action="resume")
        self.bench.append("actuator", "input", [effect])
        now = {"rv": facts.next_rv(), "phase": "running", "suspended": False, "settled": False, "annotated": True}
        job = self.jobs[name] = replace(self.jobs[name], intent=f"1-{seq}-0", **now)
        of, shape = self.shapes[name]
        found = self.running[name] = Running(name, of, shape, self.bench.now)
        pods = []
        for place in event.placements:
            each = len(place.devices) // place.count
            for index in range(place.count):
                devices = place.devices[index * each : (index + 1) * each]
                ref = self._pod(name, len(found.at))
                found.at.append((place.node, devices))
                pods.append(
                    PodState(
                        ref,
                        facts.next_rv(),
                        event.ref.uid,
                        place.node,
                        running=True,
                        request=job.pod_sets[0].request,
                        rules=job.pod_sets[0].rules,
                        devices=devices,
                    )
                )
        self.bench.facts(facts.seen(job), *(PodObserved(pod=each) for each in pods))
        for node in {at for at, _ in found.at}:
            assert self.used_on(node) <= self.sizes[node], f"{name} runs on {node}, which has no room for it"

    def used_on(self, node: str) -> int:
        """GPUs of a node that pods have alone or share; a device of which more than all is shared counts twice."""
        whole, shared = 0, Counter[int]()
        for each in self.running.values():
            for at, devices in each.at:
                whole += each.shape.gpus if at == node else 0
                shared.update(dict.fromkeys(devices, each.shape.share) if at == node else {})
        return whole + sum(-(-part // WHOLE) for part in shared.values())

    def _pod(self, name: str, index: int) -> Ref:
        job = self.jobs[name]
        return Ref("Pod", job.ref.namespace, f"{name}-{index}", f"{name}-{index} of {job.intent}")

    def _stops(self, name: str, attempt: int, seq: int) -> None:
        job, rv, cause = self.jobs[name], facts.next_rv(), Cause(seq, 0)
        if name in self.refuses:
            failed = EffectFailed(
                cause=cause, ref=job.ref, attempt=attempt, reason="refused", problem=said("no"), action="suspend"
            )
            self.bench.append("actuator", "input", [failed])
            return
        effect = EffectApplied(cause=cause, ref=job.ref, attempt=attempt, rv=rv, action="suspend")
        self.bench.append("actuator", "input", [effect])
        self.jobs[name] = replace(job, rv=rv, phase="suspending", suspended=True)
        self.bench.facts(facts.seen(self.jobs[name]))
        self._stopping[name] = self.bench.now + self.stops.get(name, STOP_MS)
        self.evicted[name] += 1

    def passes(self, ms: int) -> None:
        """Time passes; who has been told to stop is gone when it has stopped."""
        until = self.bench.now + ms
        while self._stopping and (at := min(self._stopping.values())) <= until:
            self._wait(max(at - self.bench.now, 0))
            for name in [name for name, then in self._stopping.items() if then <= self.bench.now]:
                del self._stopping[name]
                gone = [PodGone(ref=self._pod(name, at), rv=facts.next_rv()) for at in self._places(name)]
                job = self.jobs[name] = replace(self.jobs[name], rv=facts.next_rv(), phase="waiting", settled=True)
                self.bench.facts(*gone, facts.seen(job))
                self.settle()
        self._wait(until - self.bench.now)

    def _wait(self, ms: int) -> None:
        self.bench.pass_time(ms)
        self.settle()

    def _places(self, name: str) -> range:
        return range(len(self.running.pop(name).at))

    def ends(self, name: str) -> None:
        """It is deleted, and nothing of it is left."""
        pods = self._places(name) if name in self.running else ()
        gone = [PodGone(ref=self._pod(name, at), rv=facts.next_rv()) for at in pods]
        self.bench.facts(WorkloadGone(ref=self.jobs[name].ref, rv=facts.next_rv()), *gone)
        self._stopping.pop(name, None)
        self.settle()

    def told(self, name: str) -> str:
        """Where a job stands, in the words of ``muster why``."""
        ref = self.jobs[name].ref
        story = Story(ref.key)
        for stored in self.bench.log:
            story.feed(stored)
        return story.of(ref.key).standing.text

    def ordered(self, claimant: str) -> list[str]:
        """Who was ordered to leave for a job."""
        orders: list[Any] = [*self.bench.happened(EvictionOrdered)]
        return [victim.ref.name for order in orders if order.ref.name == claimant for victim in order.victims]


# --- the judge --------------------------------------------------------------------------------------------------


class Judge:
    """The cluster as it is at a moment, and who may leave for a job of ``of``."""

    def __init__(self, cluster: Packed, of: str, shape: Shape) -> None:
        self.sizes, self.guarantees, self.parents = cluster.sizes, cluster.guarantees, cluster.parents
        self.kai, self.of, self.shape, self.now = cluster.kai, of, shape, cluster.bench.now
        self.runs, self.evicted = dict(cluster.running), Counter(cluster.evicted)
        self.used: Counter[str] = Counter()
        for each in self.runs.values():
            self.used[each.queue] += each.shape.milli

    def within_guarantee(self) -> bool:
        return self.used[self.of] + self.shape.milli <= self.guarantees[self.of] * WHOLE

    def candidates(self) -> list[str]:
        return [name for name in self.runs if self.legal([name])]

    def legal(self, gone: Iterable[str]) -> bool:
        """Each queue is above its guarantee, or its quota, before one more leaves."""
        rest = list(gone)
        if any(self.runs[name].queue == self.of for name in rest):
            return False
        if self.kai:
            return self._by_quotas(rest)
        rest.sort(key=lambda name: self._beside(self.runs[name].queue))  # Who is nearest to ``of`` leaves first.
        while rest:
            last = next((name for name in rest if self._may(name, {*rest} - {name})), None)
            if last is None:
                return False
            rest.remove(last)
        return True

    def _by_quotas(self, gone: list[str]) -> bool:
        taken: dict[str, list[int]] = {}
        for name in gone:
            taken.setdefault(self.runs[name].queue, []).append(self.runs[name].shape.milli)
        left = {queue: self.used[queue] - sum(amounts) for queue, amounts in taken.items()}
        return all(left[queue] + max(taken[queue]) > self.guarantees[queue] * WHOLE for queue in taken)

    def _beside(self, queue: str) -> bool:
        """Whether a queue is in the department of ``of``."""
        return queue in self.parents and self.parents[queue] == self.parents.get(self.of)

    def _within(self, queue: str) -> list[str]:
        """The queues of a department."""
        return [name for name in self.guarantees if self.parents.get(name) == self.parents[queue]]

    def _may(self, name: str, gone: set[str]) -> bool:
        """Whether one more job leaves when these have gone: each node of its side is above its guarantee. The job
        began after what its queue is guaranteed was in use, or its side keeps its guarantee without it. The order of
        jobs that began in the same moment is unknown: they count as later.
        """
        each, sides = self.runs[name], [[self.runs[name].queue]]
        if each.queue in self.parents and not self._beside(each.queue):
            sides.append(self._within(each.queue))
        amounts = [(self._uses(side, gone), sum(self.guarantees[one] for one in side) * WHOLE) for side in sides]
        if self.of in self.parents and not self._beside(each.queue):
            mine = self._within(self.of)
            if self._uses(mine, gone) + self.shape.milli > sum(self.guarantees[one] for one in mine) * WHOLE:
                return False
        alike = (other for other in self.runs if other not in gone and self.runs[other].queue == each.queue)
        earlier = (other for other in alike if other == name or self.runs[other].since < each.since)
        before = sum(self.runs[other].shape.milli for other in earlier)
        keeps = all(uses - each.shape.milli >= least for uses, least in amounts)
        return all(uses > least for uses, least in amounts) and (keeps or before > amounts[0][1])

    def _uses(self, queues: list[str], gone: set[str]) -> int:
        return sum(self.used[queue] for queue in queues) - sum(
            self.runs[name].shape.milli for name in gone if self.runs[name].queue in queues
        )

    def fits(self, gone: Iterable[str]) -> bool:
        """Whether the nodes have room for all of its pods with these gone."""
        away, room = set(gone), 0
        for name, size in self.sizes.items():
            whole, shared = size, dict[int, int]()
            for each in self.runs.values():
                for node, devices in each.at if each.name not in away else ():
                    if node == name:
                        whole -= each.shape.gpus
                        for device in devices:
                            shared[device] = shared.get(device, 0) + each.shape.share
            whole -= len(shared)
            if self.shape.gpus:
                room += max(whole, 0) // self.shape.gpus
            else:
                room += max(whole, 0) * (WHOLE // self.shape.share)
                room += sum((WHOLE - used) // self.shape.share for used in shared.values())
        return room >= self.shape.count

    def price(self, gone: Iterable[str]) -> int:
        """What is thrown away, and what comes on top of that."""
        total = 0
        for name in gone:
            lost = self.now - self.runs[name].since + RESTART_MS + AGAIN_MS * self.evicted[name]
            total += self.runs[name].shape.milli * lost
        return total

    def every(self, most: int = 14) -> Iterator[tuple[str, ...]]:
        """All legal sets that make room, where so few come into question that all can be looked at."""
        names = self.candidates()
        assert len(names) <= most
        for count in range(len(names) + 1):
            yield from (each for each in combinations(names, count) if self.legal(each) and self.fits(each))

    def some(self, tries: int = 60) -> list[str] | None:
        """A legal set that makes room, found by emptying node after node in many orders; None says nothing."""
        rng, names = Random(len(self.runs)), self.candidates()
        if self.fits(()):
            return []
        for _ in range(tries):
            order = list(self.sizes)
            rng.shuffle(order)
            chosen: list[str] = []
            for node in order:
                here = [name for name in names if any(at == node for at, _ in self.runs[name].at)]
                rng.shuffle(here)
                for name in here:
                    if name not in chosen and self.legal([*chosen, name]):
                        chosen.append(name)
                        if self.fits(chosen):
                            return chosen
        return None

    def whole_nodes(self) -> list[str] | None:
        """For jobs of one pod: a legal set on one node, by looking at all of those on each."""
        names = self.candidates()
        for node in self.sizes:
            here = [name for name in names if any(at == node for at, _ in self.runs[name].at)][:12]
            for count in range(len(here) + 1):
                for each in combinations(here, count):
                    if self.legal(each) and self.fits(each):
                        return list(each)
        return None

    def possible(self) -> list[str] | None:
        """Some legal set that makes room; None where none was found, which is a proof where few come into question."""
        found = self.some()
        if found is None and self.few():
            return next((list(each) for each in self.every()), None)
        if found is None and self.shape.count == 1:
            return self.whole_nodes()
        return found

    def few(self) -> bool:
        return len(self.candidates()) <= 14


# --- chance -----------------------------------------------------------------------------------------------------


def filled(rng: Random, most: int, *, kai: bool, moves: int = 0) -> Packed:
    """A cluster whose borrowers have filled it, jobs of all ages on every node; ``b`` owns a part and uses none."""
    size = rng.choice((4, 4, 8))
    count = rng.randint(2, most)
    total = size * count
    part = max(size, total // rng.choice((2, 3)))
    left = total - part
    first = rng.randint(0, left)
    parents = {"b": "x", "a": "y", "c": "y"} if not kai and rng.random() < 0.5 else {}
    cluster = Packed([size] * count, {"a": first, "b": part, "c": left - first}, kai=kai, parents=parents, moves=moves)
    only_small = rng.random() < 0.3

    def shape() -> Shape:
        if only_small:
            return Shape(1, 1)
        return rng.choice(
            (Shape(1, 1), Shape(1, 1), Shape(1, 2), Shape(1, 2), Shape(1, min(3, size)), Shape(1, share=500))
            + ((Shape(1, size), Shape(2, 1), Shape(3, 1), Shape(2, 2), Shape(1, share=300)) if count > 1 else ())
        )

    number = 0
    for _ in range(2):
        taken = sum(each.shape.milli for each in cluster.running.values())
        while taken < total * WHOLE and number < 12 * count:
            number += 1
            cluster.arrives(f"j{number}", rng.choice("ac"), shape())
            cluster.passes(rng.choice((1_000, 60_000, 600_000, 3_600_000)))
            taken = sum(each.shape.milli for each in cluster.running.values())
        for name in rng.sample(sorted(cluster.running), k=len(cluster.running) // 3):
            cluster.ends(name)
    for _ in range(2 * total):
        if sum(each.shape.milli for each in cluster.running.values()) >= total * WHOLE:
            break
        number += 1
        cluster.arrives(f"j{number}", rng.choice("ac"), Shape(1, 1) if rng.random() < 0.7 else shape())
        cluster.passes(rng.choice((1_000, 60_000, 600_000)))
    return cluster


def claim(rng: Random, cluster: Packed) -> Shape:
    """What an owner asks for."""
    size = max(cluster.sizes.values())
    single = [Shape(1, 1), Shape(1, 2), Shape(1, size), Shape(1, size), Shape(1, max(size - 1, 1)), Shape(1, share=500)]
    gangs = [Shape(2, 1), Shape(2, size // 2), Shape(3, 2), Shape(2, size), Shape(4, share=300)]
    return rng.choice([*single, *gangs])


def borrowed_nodes(scene: Any, *, few: bool) -> Any:
    """A whole node is owed, and too large; or of each node others give three of four cores, by many small jobs."""
    least = (8, 0, 0) if few else (4, 2, 2)
    scene.tree_of(*zip("abc", least, strict=True), age_limit="0")
    scene.lines("placement pack", "node n0 cpu=4", "node n1 cpu=4", "synced")
    for index, name in enumerate("bb" if few else "bbbbbbccbbcccccc"):
        scene.lines(f"gang {name}/x{index} head={'4' if few else '500m'} workers=0x0")
        scene.runs(f"{name}/x{index}")
    scene.lines(f"gang a/wide head={least[0]} workers=0x0")
    return scene


def nodes_stay(scene: Any) -> Any:
    """a/wide asks for a whole node, within its quota; b/x could leave it, and a pod that is not ours stays there."""
    scene.tree_of(("a", 8), ("b", 0), age_limit="0")
    scene.lines("placement pack hold=10000000", "node n0 cpu=4", "synced")
    scene.lines("foreign f0 node=n0 cpu=2", "gang b/x head=1 workers=0x0")
    scene.runs("b/x")
    scene.lines("gang a/wide head=4 workers=0x0")
    return scene
