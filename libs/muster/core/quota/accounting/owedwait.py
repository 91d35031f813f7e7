"""A refused job with more right than others keeps its room until the preemptor has spoken about the job.

A job has more right to its room than another that could be evicted for it: a job that a guarantee covers, a job within
its fair share, a job of higher priority in a queue where priority preempts. The claim for such a job comes with the
next proposal of the preemptor, and would evict what starts in the room now. So the other job gets no answer until then.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from muster.core.quota.accountantstate import AccountantState, Refused
from muster.core.quota.candidates import basis
from muster.core.quota.demand import Scratch, chain_of
from muster.core.quota.evictionrules import Between, between
from muster.core.quota.ledger.quotaledger import UNBOUNDED, shares_with
from muster.events.decisions import (
    Candidate,
    PreemptionProposed,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    ReclaimDeferred,
    WorkloadDequeued,
)
from muster.events.facts import WorkloadGone
from muster.events.reasons import after_release
from muster.model.demand import Demand
from muster.model.keys import Position, Ref

WORD_MS = 1_000
"""The time in which the preemptor speaks about a refused job, if it has anything to say."""

# --- folds ------------------------------------------------------------------------------------------------------------


def denied(state: AccountantState, at: Position, event: QuotaDenied) -> None:
    """A job above the min of its queue that is not preemptible waits for no victims."""
    proposal, short = state.proposals.get(event.ref.uid), event.short
    if proposal is None or short is None or short.hopeless or short.of_min:
        return
    if proposal.candidate.attempt == event.attempt:
        _refused(state, at, event.ref, event.attempt, event.queue, proposal.candidate.demand)


def released(state: AccountantState, at: Position, event: QuotaReleased) -> None:
    charge = state.ledger.charges.get(event.ref.uid)
    if charge is not None and after_release(event.reason) == "unplaced":
        _refused(state, at, event.ref, event.attempt, event.queue, charge.demand)


def _refused(state: AccountantState, at: Position, ref: Ref, attempt: int, queue: str, demand: Demand) -> None:
    """Once for an attempt: what is refused again for want of room was spoken about."""
    before = state.refused.get(ref.uid)
    if before is None or before.attempt != attempt:
        state.refused[ref.uid] = Refused(ref, attempt, queue, demand, at.at + WORD_MS)


def spoken(state: AccountantState, _at: Position, event: PreemptionProposed | ReclaimDeferred) -> None:
    refused = state.refused.get(event.ref.uid)
    if refused is not None and event.growth is None:
        refused.until = 0


def over(state: AccountantState, _at: Position, event: QuotaReserved | WorkloadDequeued | WorkloadGone) -> None:
    state.refused.pop(event.ref.uid, None)


# --- waiting ----------------------------------------------------------------------------------------------------------


class _Owed(Struct):
    """A job with more right than others, and what it asks for."""

    ref: Ref
    queue: str
    demand: Demand
    amounts: Scratch
    level: str
    """The node that owes the job its room; empty: none. No job below this node leaves for the job."""
    shares: Between | None
    """For a job within its fair share."""
    priority: int | None
    """In a queue where priority preempts."""
    asks: bool
    """It has a proposal of its own in this round."""

    def goes_before(self, state: AccountantState, job: Candidate, depth: int, scratch: Scratch) -> bool:
        """Whether the other job could be evicted for this one, once it runs. ``depth``: of the node that owes the
        other.
        """
        if self.ref.uid == job.ref.uid:
            return False
        if self.queue == job.queue:
            priority = state.priorities.get(job.ref.uid)
            if self.priority is not None and priority is not None and priority < self.priority:
                return True
        if self.shares is not None:
            return self.shares.would_give(job.queue, job.demand, scratch)
        if not self.level or self.level in chain_of(job.queue) or len(chain_of(self.level)) <= depth:
            return False
        return state.ledger.owed_depth(self.queue, self.demand, scratch) > depth


class OwedWait(Struct):
    """The jobs of one round that have more right to their room than others, and have none yet."""

    state: AccountantState
    kept: dict[str, _Owed] = field(default_factory=dict)
    lowest: dict[str, int] = field(default_factory=dict)
    """queue -> see ``_lowest``; a cache"""

    def note(self, job: Ref, queue: str, demand: Demand, *, asks: bool = False, before: bool = False) -> None:
        """Note a job, or the growth of a Ray cluster, if its claim may bring the room.

        ``asks``: it is answered in this round. ``before``: it was refused in a former round; where no job of lower
        priority runs, the preemptor has nothing to say about its priority.
        """
        if job.uid in self.kept:
            return
        ledger = self.state.ledger
        node, given = ledger.nodes.get(queue), basis(ledger, job.uid)
        if node is None:
            return
        shares, level = None, ""
        if ledger.rules_of(queue).reclaim != "disabled":
            if ledger.by_shares(queue):
                rules = between(given, queue, demand, shares_with(ledger, job.uid, queue, demand))
                shares = rules if rules.may_claim() else None
            else:
                level = given.owed_at(queue, demand)
        priority = self.state.priorities.get(job.uid) if node.preempts else None
        if before and priority is not None and priority <= self._lowest(queue):
            priority = None
        if level or shares is not None or priority is not None:
            amounts = Scratch()
            amounts.add(queue, demand)
            self.kept[job.uid] = _Owed(job, queue, demand, amounts, level, shares, priority, asks)

    def _lowest(self, queue: str) -> int:
        """The lowest priority of a running job of a queue."""
        if queue not in self.lowest:
            state, runs = self.state, (uid for uid, entry in self.state.entries.items() if entry.queue == queue)
            ranks = [state.priorities[uid] for uid in runs if uid in state.priorities and _preemptible(state, uid)]
            self.lowest[queue] = min(ranks, default=UNBOUNDED)
        return self.lowest[queue]

    def drop_asking(self) -> bool:
        """Jobs that fit wait for each other, and for no other job: the first of them starts. False otherwise."""
        if not self.kept or not all(owed.asks for owed in self.kept.values()):
            return False
        self.kept.clear()
        return True

    def takes(self, job: Candidate, scratch: Scratch) -> bool:
        """Whether a job fits, and takes room of a job that has more right to it."""
        ledger = self.state.ledger
        if not self.kept or ledger.claims.served_by(job.ref.uid, job.queue, job.demand) is not None:
            return False
        depth, together = ledger.owed_depth(job.queue, job.demand, scratch), Scratch()
        before = [owed for owed in self.kept.values() if owed.goes_before(self.state, job, depth, scratch)]
        if not before or ledger.shortfall(job.queue, job.demand, scratch, now=self.state.now, uid=job.ref.uid):
            return False
        for owed in before:
            if ledger.shortfall(job.queue, job.demand, scratch, owed.amounts) is not None:
                return True
            if ledger.shortfall(owed.queue, owed.demand, scratch, together) is None:
                together.add(owed.queue, owed.demand)
        return ledger.shortfall(job.queue, job.demand, scratch, together) is not None


def _preemptible(state: AccountantState, uid: str) -> bool:
    return state.ledger.charges[uid].preemptible


def unheard(state: AccountantState) -> Iterator[Refused]:
    """The refused jobs that wait for the preemptor's word."""
    for uid, refused in state.refused.items():
        workload = state.workloads.get(uid)
        if refused.until > state.now and uid not in state.entries and workload is not None and workload.waits:
            yield refused


def deadlines(state: AccountantState) -> Iterator[int]:
    return (refused.until for refused in state.refused.values()) if state.proposals else iter(())
