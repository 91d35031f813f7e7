"""The preemptor: proposes the running work to suspend for a job. The accountant judges a proposal before any
suspension.

At most one proposal is open at a time. Any number of claims are in force. First come jobs within a guarantee and
refused above it. Of these the lowest guarantee is first, then queues in order (priority, used/min, age), in each queue
the head. Next come jobs that outrank running jobs of the same queue, where the tree allows preemption. Next come jobs
whose quota has room and for which no nodes are free. Last, released quota is held for a job that later work has passed
too often. Large jobs must not starve behind small ones. A Ray cluster with refused growth asks as a job does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import ClassVar

from muster.core.gang import admitterfolds
from muster.core.preemption import claimants, growthclaims, makingroom, plans, preemptorfolds
from muster.core.preemption.growthclaims import Claimant
from muster.core.preemption.plans import underserved
from muster.core.preemption.preemptorstate import PreemptorState
from muster.core.queueing import queuefolds
from muster.core.quota.ledger import idling, quotaledger
from muster.core.stage import NEWEST, Arm, Stage, Violation, arms_of, in_turn, parts_of
from muster.events.base import Decision, Event
from muster.events.decisions import ReclaimDeferred

MAX_LOOKED_AT = 16
"""The most claimants planned for in one commit: a budget of steps."""


class Preemptor(Stage[PreemptorState]):
    """The stage ``preemptor``."""

    name: ClassVar[str] = "preemptor"
    kept: ClassVar[type[PreemptorState]] = PreemptorState
    newest_ruleset: ClassVar[int] = NEWEST

    def arms(self) -> Mapping[type[Event], Arm]:
        arms = queuefolds.arms()
        own = arms_of(preemptorfolds, growthclaims, makingroom)
        for kind, arm in [*_of_places().items(), *own.items()]:
            arms[kind] = in_turn(arms[kind], arm) if kind in arms else arm
        return arms

    @staticmethod
    def time_passed(state: PreemptorState) -> None:
        state.places.now = state.now
        idling.time_passed(state.queues.ledger, state.now)

    @staticmethod
    def settle(state: PreemptorState) -> None:
        """After the fold of a commit: look at the queues touched by the commit, and at the queues
        whose shares changed.
        """
        state.queues.book.stirred.update(dict.fromkeys(state.queues.ledger.share_out()))
        if state.queues.book.stirred:
            preemptorfolds.stirred(state)

    def decide(self, state: PreemptorState) -> list[Decision]:
        """A proposal for the first claimant, after a deferral for every earlier claimant."""
        if not state.admitting or state.open:
            return []
        decisions = [*islice(_for_quota(state), MAX_LOOKED_AT)]
        if decisions:
            return decisions
        less = underserved(state)
        if less is not None:
            return [plans.serve(state, *less)]
        room = makingroom.proposal_due(state)
        if room is not None:
            return [room]
        aged = claimants.aged(state)
        return [plans.hold(state, *aged)] if aged is not None else []

    def next_deadline(self, state: PreemptorState) -> int | None:
        times = [gate.until for uid, gate in state.gates.items() if gate.until > state.now and uid in state.queues.jobs]
        times += [gate.rest for gate in state.gates.values() if gate.rest > state.now and state.has_changed(gate)]
        times += claimants.next_claims(state)
        times += makingroom.deadlines(state)
        times += claimants.rests_end(state)
        return min(times, default=None)

    def check(self, state: PreemptorState) -> list[Violation]:
        """I5 for the copy of the ledger; I16 for the queues and leaves kept for a glance; I6: every
        listed run has a charge.
        """
        violations = []
        ledger = state.queues.ledger
        if (charged := quotaledger.recounted_used(ledger)) != ledger.used:
            violations.append(Violation("I5", f"copy says {ledger.used}, charges sum to {charged}"))
        counted: dict[str, None] = {}
        claimants.settle_near(counted, state.queues, state.queues.book.lines)
        if state.near != counted:
            violations.append(Violation("I16", f"kept as near their guarantee {state.near}, and are {counted}"))
        if (outranked := state.outranked.keys()) != (
            weighed := {q for q in state.runs if plans.is_outranked(state, q)}
        ):
            violations.append(
                Violation("I16", f"running work is outranked in {outranked}, and in {weighed} by the jobs")
            )
        listed = {run.uid for runs in state.runs.values() for run in runs}
        if odd := sorted(listed - ledger.charges.keys()):
            violations.append(Violation("I6", f"listed as running and not charged: {odd[:5]}"))
        return violations


def _of_places() -> dict[type[Event], Arm]:
    """The nodes are folded as the gang admitter does."""

    def within(arm: Arm) -> Arm:
        return lambda state, at, event: arm(state.places, at, event)

    return {kind: in_turn(*map(within, parts_of(arm))) for kind, arm in arms_of(*admitterfolds.SOURCES).items()}


def _for_quota(state: PreemptorState) -> Iterator[Decision]:
    """The decisions for jobs owed quota and for jobs that outrank running work, up to the first proposal.

    A proposal changes the state for every other plan; a deferral does not. Claimants owed quota are looked up singly:
    most often the first is enough.
    """
    outranking, entitled = claimants.outranking(state), claimants.owed(state)
    owed = [*entitled] if outranking else [*islice(entitled, 1)]
    while owed or outranking:
        decision = _first_of(state, owed, outranking)
        yield decision
        if not isinstance(decision, ReclaimDeferred):
            return
        owed = [pair for pair in (*owed, *islice(entitled, 1)) if pair[1].ref != decision.ref]
        if decision.reason != "grace":
            outranking = [pair for pair in outranking if pair[1].ref != decision.ref]


def _first_of(state: PreemptorState, owed: list[Claimant], outranking: list[Claimant]) -> Decision:
    """Reclaim comes before preemption. Where priority preempts, no job of lower priority goes before a job of the same
    queue.
    """
    first = {job.queue: job.place for _, job in reversed(outranking)}
    owed = [pair for pair in owed if pair[1].queue not in first or pair[1].place <= first[pair[1].queue]]
    return plans.reclaim(state, *owed[0]) if owed else plans.preempt(state, *outranking[0])
