"""Jobs that wait for their answer: a job gets none while it would take room of a job with more right to the room.

A job has more right to its room than another that could be evicted for it: a job that a guarantee covers at a lower
node, a job within its fair share, a job of higher priority in a queue where priority preempts.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct, field

from muster.core.quota.accountantstate import AccountantState
from muster.core.quota.candidates import basis
from muster.core.quota.demand import Scratch, chain_of
from muster.core.quota.evictionrules import Between, between
from muster.core.quota.ledger.quotaledger import shares_with
from muster.events.decisions import Candidate
from muster.model.demand import Demand
from muster.model.keys import Ref


class _Right(Struct):
    """A job with more right to its room than others, and what it asks for."""

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
    """The job is answered in this round."""

    def goes_before(self, job: Candidate, priority: int | None, depth: int, scratch: Scratch) -> bool:
        """Whether another job could be evicted for this one, once it runs. ``depth``: of the node that owes the other
        its room.
        """
        if self.queue == job.queue:
            return self.priority is not None and priority is not None and priority < self.priority
        if self.shares is not None:
            alone = Scratch()
            alone.add(job.queue, job.demand)
            rules = self.shares.beside(scratch, alone)
            return rules.may_claim() and rules.asks(job.queue)
        return bool(self.level) and self.level not in chain_of(job.queue) and len(chain_of(self.level)) > depth


class OwedWait(Struct):
    """The jobs of one round that have more right to their room than others, and have none yet."""

    state: AccountantState
    kept: dict[str, _Right] = field(default_factory=dict)
    """uid -> the right of the job"""

    def note(self, job: Ref, queue: str, demand: Demand, *, asks: bool = False) -> None:
        """Note a job, or the growth of a Ray cluster, if its claim may bring the room."""
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
        if level or shares is not None or priority is not None:
            amounts = Scratch()
            amounts.add(queue, demand)
            self.kept[job.uid] = _Right(queue, demand, amounts, level, shares, priority, asks)

    def drop_asking(self) -> bool:
        """Jobs that fit wait for each other, and for no other job: the first of them starts. False otherwise."""
        if not self.kept or not all(right.asks for right in self.kept.values()):
            return False
        self.kept.clear()
        return True

    def takes(self, job: Candidate, scratch: Scratch) -> bool:
        """Whether a job fits, and takes room of a job that has more right to it."""
        ledger, uid = self.state.ledger, job.ref.uid
        if not self.kept or ledger.claims.served_by(uid, job.queue, job.demand) is not None:
            return False
        short = partial(ledger.shortfall, job.queue, job.demand, scratch, now=self.state.now, uid=uid)
        if short() is not None:
            return False
        depth, priority = ledger.owed_depth(job.queue, job.demand, scratch), self.state.priorities.get(uid)
        before = [
            right
            for other, right in self.kept.items()
            if other != uid and right.goes_before(job, priority, depth, scratch)
        ]
        together = Scratch()
        for right in before:
            if short(right.amounts) is not None:
                return True
            if ledger.shortfall(right.queue, right.demand, scratch, together) is None:
                together.add(right.queue, right.demand)
        return short(together) is not None
