"""Random histories in which people and machines do everything at once: submit, edit, move, hold, pause, delete; trees
and KAI queues are edited under the jobs, nodes come and go, victims are slow, fail, or never leave.

It goes on where ``chaos`` ends: facts are delivered late, twice and out of order, decisions are stored late. One
history has ElasticQuotaTrees, KAI queues or both, with placement on or off; stages are restarted in the middle.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from kit import facts, kai, nodes
from kit.chaos import NAMESPACES, SHAPES, Chaos
from kit.words import odd
from muster.core.actuation.orders import said
from muster.core.cell.seats import Seat
from muster.core.gang.jobplaces import asks_of
from muster.core.objects.meta import RUN_TIME
from muster.core.placement.place import place
from muster.core.placement.view import View
from muster.core.preemption import claimants
from muster.core.preemption.plans import nodes_for
from muster.core.quota.candidates import basis
from muster.core.quota.ledger.quotaledger import leaf_of
from muster.core.victimsearch.search import owed
from muster.events.base import Event
from muster.events.decisions import EvictionOrdered
from muster.events.effects import EffectFailed
from muster.events.facts import NodeGone, ObjectUnreadable, QueueGone, QueueObserved, TreeNodeSpec
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.workload import PodSet, Wishes, Workload
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state

QUEUES = ("team-a", "team-b", "team-c")
NAMED = "quota.scheduling.alibabacloud.com/name"
KAI = "kai.scheduler/queue"
HOUR_MS = 3_600_000


def some_tree(rng: Random) -> TreeNodeSpec:
    """Two branches with the four namespaces on their leaves, in any order."""
    names, branches, total = list(NAMESPACES), [], 0
    rng.shuffle(names)
    for branch in range(2):
        mine, leaves, least = names[branch * 2 : branch * 2 + 2], [], 0
        for name in mine:
            own = rng.choice((0, 4, 8, 12))
            least += own
            says = rng.choice(({}, {}, {"placement": "spread"}, {"placement": "pack"}))
            leaves.append(facts.node(name, {"cpu": own}, {"cpu": rng.choice((12, 16, 24))}, (name,), **says))
        least += rng.choice((0, 0, 4))
        total += least
        branches.append(
            facts.node(f"b{branch}", {"cpu": least}, {"cpu": rng.choice((16, 24, 32))}, children=tuple(leaves))
        )
    whole = {"cpu": max(total, 24)}
    return facts.node("root", whole, whole, children=tuple(branches))


def some_rules(rng: Random) -> dict[str, str]:
    rules = {
        "claim": rng.choice(("1m", "10m")),
        "age-limit": rng.choice(("0", "", "")),
        "min-run": rng.choice(("0", "0", "1m")),
        "preempt-lower-priority": rng.choice(("true", "false")),
        "order": rng.choice(("share", "time", "learned")),
        "reclaim": rng.choice(("enabled", "enabled", "disabled", "")),
        "running-timeout": rng.choice(("0", "0", "5m")),
        "protect-evicted": rng.choice(("0", "2m")),
        "paused": rng.choice(("", "", "", "admissions", "evictions")),
        "reclaim-grace": rng.choice(("", "", "2m")),
        "least-attained": rng.choice(("", "", "1h,4h")),
    }
    return {name: text for name, text in rules.items() if text}


class Turmoil(Chaos):
    """One history; everything is drawn from ``seed``."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.forest = rng.choice(("tree", "tree", "kai", "both"))
        self.placed = rng.random() < 0.35
        super().__init__(rng, rng.randint(10, 24), some_tree(rng), **some_rules(rng))
        self.stuck: set[str] = set()
        """Names of jobs that never finish stopping."""
        self.queue_objects: dict[str, str] = {}
        self.declares = Random(f"{seed} declares") if seed % 2 else None
        """What jobs declare of their run times: true or not; in every other history."""
        self.there: set[str] = set()
        """Names of nodes."""
        self.trees = 1
        self.peace = False
        if self.placed:
            mode = rng.choice(("pack", "spread"))
            cpu = rng.choice((None, None, "spread", "pack"))
            moves = Random(f"moves {seed}").choice((0, 1, 16))
            chosen = PlacementChosen(mode=mode, hold_ms=10**12, cpu=cpu, moves=moves)
            self.bench.append("gang_admitter", "input", [chosen])
        if self.forest == "kai":
            self.bench.facts(facts.tree_gone())
        for _ in range(3):
            self.node_comes()
        if self.forest != "tree":
            for name in QUEUES:
                self.kai_edited(name)

    # --- the world ----------------------------------------------------------------------------------------------

    def node_comes(self) -> None:
        name = f"n{self.rng.randrange(4)}"
        self.there.add(name)
        self.bench.facts(
            nodes.node(name, cpu=self.rng.choice((8, 12, 16)), memory=64, uid=f"uid-{name}-{len(self.bench.log)}")
        )

    def node_goes(self) -> None:
        if len(self.there) > 1:
            name = self.rng.choice(sorted(self.there))
            found = self.bench.states["gang_admitter"].ledger.nodes[name].uid
            self.there.discard(name)
            self.bench.facts(NodeGone(ref=Ref("Node", "", name, found), rv=facts.next_rv()))

    def kai_edited(self, name: str = "") -> None:
        if self.forest == "tree":
            return
        rng, name = self.rng, name or self.rng.choice(QUEUES)
        parent = "team-a" if name != "team-a" and rng.random() < 0.05 else ""
        cpu = (rng.choice((0, 4, 8, -1)) * 1000, -1, rng.choice((0, 1, 2)))
        cpu = (-1, *cpu[1:]) if cpu[0] < 0 else cpu
        self.bench.facts(kai.queue(name, parent, cpu=cpu, priority=rng.choice((100, 100, 200))))

    def tree_edited(self) -> None:
        if self.forest == "kai":
            return
        name = "elasticquotatree" if self.trees == 1 else f"tree-{self.trees}"
        if self.rng.random() < 0.1:
            self.bench.facts(facts.tree_gone(name))
            self.trees += 1
            name = f"tree-{self.trees}"
        rules = {} if self.peace else some_rules(self.rng)
        self.bench.facts(facts.tree(some_tree(self.rng), name=name, rules=rules))

    def queue_changes(self) -> None:
        """A Queue object appears, is edited, given another path, or deleted."""
        rng, name = self.rng, f"q{self.rng.randrange(3)}"
        paths = [
            path for path, node in self.bench.states["queue_sorter"].queues.ledger.nodes.items() if not node.children
        ]
        if not paths:
            return
        if name in self.queue_objects and rng.random() < 0.4:
            uid = self.queue_objects.pop(name)
            self.bench.facts(QueueGone(ref=Ref("Queue", "kube-queue", name, uid), rv=facts.next_rv()))
            return
        uid = self.queue_objects.setdefault(name, f"queue-{name}-{len(self.bench.log)}")
        paused = rng.choice(((), (), ("admissions",), ("evictions",), ("admissions", "evictions")))
        says = {"paused": paused, "policy": rng.choice(("", "Round", "Block")), "priority": rng.choice((0, 0, 5))}
        self.bench.facts(
            QueueObserved(ref=Ref("Queue", "kube-queue", name, uid), rv=facts.next_rv(), path=rng.choice(paths), **says)
        )

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _asks(self) -> dict[str, Any]:
        """What a job asks for, by its pods."""
        rng = self.rng
        if not self.placed:
            need = facts.vector(**rng.choice(SHAPES))
            return {"need": {"ack": need, "full": need}}
        count, cpu = rng.randint(1, 4), rng.choice((1, 2, 3, 6))
        sets = (PodSet("head", 1, facts.vector(cpu=1)), PodSet("small-group", count, facts.vector(cpu=cpu)))
        need = facts.vector(cpu=1 + count * cpu)
        return {"need": {"ack": need, "full": need}, "pod_sets": sets}

    def _labels(self) -> dict[str, str]:
        said = self._own_labels()
        times = ("", "1m", "30m", "48h", "48h", "400h", "no time")
        told = self.declares.choice(times) if self.declares is not None else ""
        return {**said, RUN_TIME: told} if told else said

    def _own_labels(self) -> dict[str, str]:
        rng = self.rng
        if self.forest == "kai" or (self.forest == "both" and rng.random() < 0.5):
            return {KAI: rng.choice(QUEUES), "priorityClassName": rng.choice(("train", "train", "build", "inference"))}
        return {} if rng.random() < 0.8 else {NAMED: rng.choice(NAMESPACES)}

    def truth_changes(self) -> None:
        rng = self.rng
        if self.to_make and rng.random() < 0.4:
            self.to_make -= 1
            labels = self._labels()
            namespace = "kai" if KAI in labels else rng.choice(NAMESPACES)
            priority = rng.choice((None, None, 5)) if KAI not in labels else None
            job = facts.job(
                f"job-{self.to_make}",
                namespace,
                **self._asks(),
                labels=labels,
                created=self.bench.now,
                priority=priority,
            )
            self._tell(f"job-{self.to_make}", job)
            return
        if self.jobs and rng.random() < 0.25:
            name = rng.choice(sorted(self.jobs))
            self._odd_step(name, self.jobs[name])
        elif self.jobs:
            name = rng.choice(sorted(self.jobs))
            if self.jobs[name].phase != "running" or rng.random() < 0.15:  # most run for long
                self._step(name, self.jobs[name])

    def _odd_step(self, name: str, job: Workload) -> None:
        """What people do to a job, whatever it does."""
        rng = self.rng
        match rng.randrange(7):
            case 0 | 1:
                self._tell(name, job, wishes=Wishes(hold=not job.wishes.hold, by="ann"))
            case 2 if job.phase != "finished":
                self._tell(
                    name,
                    job,
                    labels=self._labels() if job.ref.namespace != "kai" else job.labels | {KAI: rng.choice(QUEUES)},
                )
            case 3:
                rv = facts.next_rv()
                self.jobs[name] = msgspec.structs.replace(job, rv=rv)
                self.pending.append(
                    ObjectUnreadable(ref=job.ref, rv=rv, problem=odd("spec.rayClusterSpec: expected object"))
                )
            case 4 if job.suspended and job.phase == "waiting":
                self._tell(name, job, **self._asks(), generation=job.generation + 1)
            case 6 if job.phase == "running":
                self._tell(name, job, checkpointed_at=self.bench.now)
            case 5 if job.suspended and rng.random() < 0.3:
                self._tell(name, job, suspended=False, phase="starting", generation=job.generation + 1, settled=False)
            case _:
                pass

    def _suspended_step(self, name: str, job: Workload) -> None:
        if name in self.stuck:
            return
        if job.phase == "suspending":
            if not self.peace and self.rng.random() < 0.03:
                self.stuck.add(name)
            elif self.peace or self.rng.random() < 0.5:
                super()._suspended_step(name, job)
        elif not self.peace:
            super()._suspended_step(name, job)

    def actuate(self) -> None:
        """As before; and some suspensions are refused by the API server."""
        suspends = [key for key in sorted(self.outstanding) if key[2] == "suspend"]
        if suspends and not self.peace and self.rng.random() < 0.15:
            key = self.rng.choice(suspends)
            cause, ref = self.outstanding.pop(key)
            failed = EffectFailed(
                cause=cause, ref=ref, attempt=key[1], reason="refused", problem=said("no"), action="suspend"
            )
            self.bench.append("actuator", "input", [failed])
            return
        super().actuate()

    # --- the stages ---------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """A stage goes on from a snapshot, or from the beginning of the log."""
        name = self.rng.choice(sorted(self.bench.seats))
        seat = self.bench.seats[name]
        if self.rng.random() < 0.8:
            self.bench.seats[name] = Seat(seat.stage, decode_state(encode_state(seat.state), type(seat.state)))
            return
        fresh: Seat[Any] = Seat(seat.stage)
        for stored in self.bench.log:
            fresh.fold(stored)
        assert encode_state(fresh.state) == encode_state(seat.state), f"{name} differs when it is folded anew"
        self.bench.seats[name] = fresh

    def settle(self) -> None:
        """All stages decide until nothing is due."""
        before = len(self.bench.log)
        self.bench.settle()
        for seq in range(before + 1, len(self.bench.log) + 1):
            self._committed(seq)

    def run(self, steps: int = 500) -> None:
        """Turmoil, then peace: the truth is told, the stages settle, and nothing more changes."""
        often = (self.truth_changes, self.deliver, self.deliver, self.decide_late, self.decide_late, self.actuate)
        seldom = (self.pass_time, self.pass_time, self.queue_changes, self.kai_edited, self.restart)
        rare = (self.tree_edited, self.node_comes, self.node_goes, self.settle, self.settle)
        for _ in range(steps):
            draw = self.rng.random()
            self.rng.choice(often if draw < 0.84 else seldom if draw < 0.96 else rare)()
        self.peace = True
        self._make_peace()

    def _make_peace(self) -> None:
        """Hours go by, nobody does anything but what was ordered. Evictions end, whatever is tried on nodes goes on."""
        for name, job in list(self.jobs.items()):  # what could not be read can be read again
            self._tell(name, msgspec.structs.replace(job, rv=facts.next_rv()))
        quiet = 0
        for _ in range(60):
            before = len(self.bench.log)
            for name, job in list(self.jobs.items()):
                if job.phase == "suspending":
                    self._suspended_step(name, job)
            while self.pending:
                self.deliver()
            self.bench.settle()
            self.bench.pass_time(HOUR_MS // 4)
            new = range(before + 1, len(self.bench.log) + 1)
            for seq in new:
                self._committed(seq)
            while self.outstanding:
                self.actuate()
            orders = [e for seq in new for e in self.bench.log[seq - 1].commit.events]
            evicted = any(isinstance(e, EvictionOrdered) for e in orders)
            quiet = 0 if evicted or self.pending or (new and not self.placed) else quiet + 1
            if quiet >= 6:
                return
        raise AssertionError("peace does not come")

    def without_rules(self) -> None:
        """The trees get new numbers and no setting at all, the queues of theirs nothing that delays; then peace."""
        for name, uid in sorted(self.queue_objects.items()):
            self.bench.facts(QueueGone(ref=Ref("Queue", "kube-queue", name, uid), rv=facts.next_rv()))
        self.queue_objects.clear()
        self.tree_edited()
        self._make_peace()

    # --- what must hold then --------------------------------------------------------------------------------------

    def at_rest(self) -> None:
        """What fits is in, what is owed and can be taken back is back, and each charge is where its job belongs."""
        accountant, preemptor = self.bench.states["quota_accountant"], self.bench.states["preemptor"]
        ledger, queues = accountant.ledger, self.bench.states["queue_sorter"].queues
        for uid, charge in ledger.charges.items():
            workload = accountant.workloads.get(uid)
            home = leaf_of(ledger, workload) if workload is not None else None
            assert home in (None, charge.queue), f"{uid} is charged at {charge.queue} and belongs to {home}"
        for uid, claim in ledger.claims.by_uid.items():
            job = queues.jobs.get(uid)
            assert job is not None, f"{claim.ref}: its claim outlives it"
            assert (job.status, job.attempt, job.queue) != ("charged", claim.attempt, claim.queue), claim.ref
            assert not claim.victims, f"{claim.ref} waits for {claim.victims}"
        for job in queues.jobs.values():
            if job.status != "waiting" or "admissions" in queues.resting(job.queue):
                continue
            first = queues.book.position(job.queue, job.place) == 1
            behind = queues.is_blocking(job.queue) and not (first and not queues.before_on_nodes(job.queue, job.place))
            if not behind and queues.not_before.get(job.ref.uid, 0) <= self.bench.now:
                short = ledger.shortfall(job.queue, job.demand, now=self.bench.now)
                assert short is not None, f"{job.ref} waits and would fit"
        if self.placed:
            self._nobody_has_room(self.bench.states["gang_admitter"])
        else:
            self._nobody_is_owed(preemptor)

    def _nobody_has_room(self, state: Any) -> None:
        """Who gave its quota back for want of nodes would find no place, claims apart."""
        kept = bool(state.pods.claims)
        for each in state.unplaced.values() if not kept and not state.found else ():
            gang = state.gangs[each.ref.uid]
            fits = gang.waits and place(View(state.ledger), asks_of(state, gang), state.placement.mode) is None
            assert not fits, f"{each.ref} waits for nodes, and they have room for it"

    def _nobody_is_owed(self, state: Any) -> None:
        """Whatever is remembered of past attempts, nobody can be helped any more by the rules of its tree."""
        state = decode_state(encode_state(state), type(state))
        state.gates.clear()
        ledger = state.queues.ledger
        for shape, job in claimants.owed(state):
            if not state.reclaims(job.queue) or not state.may_be_next(job):
                continue
            given = basis(ledger, job.ref.uid)
            found = owed(given, shape.queue, shape.demand, state.candidates(shape.queue), nodes_for(state, job)).uids
            assert not found, f"{job.ref} is owed {job.demand.request} at {job.queue}, and {found} could give it"


def of(log: list[Any], kind: type[Event]) -> list[Any]:
    return [event for stored in log for event in stored.commit.events if isinstance(event, kind)]
