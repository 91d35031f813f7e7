"""The quota accountant: the one authority on quota. Reserves, denies, adopts and releases charges, and judges trees.

Every decision obeys the limits in force at its ``in_seq``: used + reserved + asked <= limit at the leaf and every
ancestor. Usage passes a limit only after a later fact lowered the limit, or after a job started without an admission.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import ClassVar

from msgspec import structs

from muster.core.objects.meta import quota_name
from muster.core.quota import claiming
from muster.core.quota.accountantstate import AccountantState, Proposal, adopting_leaf, adoption_reason, home_of
from muster.core.quota.accounting import accountantfolds, growth, podasks, sharing, suspending
from muster.core.quota.accounting.owedwait import OwedWait
from muster.core.quota.accounting.rechecks import charge_due, on_nodes, usage_changed
from muster.core.quota.demand import Scratch, demand_of
from muster.core.quota.endings import release_reason
from muster.core.quota.ledger import idling, quotaledger, standalone
from muster.core.quota.ledger.books import claimant_of
from muster.core.quota.ledger.quotaledger import still_waits
from muster.core.quota.trees import forest
from muster.core.stage import NEWEST, Arm, Stage, Violation, arms_of, first, in_turn
from muster.events.base import Decision, Event
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimOpened
from muster.events.decisions import (
    EvictionOrdered,
    PodsAwaited,
    QuotaDenied,
    QuotaMoved,
    QuotaReleased,
    QuotaReserved,
    SuspensionOrdered,
    SuspensionRecorded,
    WorkloadAdopted,
)
from muster.events.elastic import GrowthWithdrawn
from muster.events.envelope import MAX_EVENTS
from muster.events.facts import NodeObserved
from muster.model.resources import beyond


class QuotaAccountant(Stage[AccountantState]):
    """The stage ``quota_accountant``."""

    name: ClassVar[str] = "quota_accountant"
    kept: ClassVar[type[AccountantState]] = AccountantState
    newest_ruleset: ClassVar[int] = NEWEST

    def arms(self) -> Mapping[type[Event], Arm]:
        trees, own = forest.arms(), arms_of(accountantfolds, claiming, growth, podasks, sharing)
        return {**trees, **own, NodeObserved: in_turn(trees[NodeObserved], own[NodeObserved])}

    # --- decide -----------------------------------------------------------------------------------------------

    def decide(self, state: AccountantState) -> list[Decision]:
        """Trees first, alone in their commit; then releases, adoptions and the answers to proposals; then changes of
        shares.
        """
        trees = first(state.forest.decisions_due(state.ledger.trees, state.unsynced))
        if trees:
            return [*trees]
        charges = first(self._charges(state))
        if charges or not state.admitting:
            return charges
        return first(sharing.changes_due(state))

    @staticmethod
    def time_passed(state: AccountantState) -> None:
        """Log time has passed: current charges count for longer."""
        sharing.time_passed(state)
        idling.time_passed(state.ledger, state.now)

    @staticmethod
    def settle(state: AccountantState) -> None:
        """A commit is folded: an event about its changed shares becomes due."""
        state.untold.update(dict.fromkeys(state.ledger.share_out()))

    def _charges(self, state: AccountantState) -> Iterator[Decision]:
        scratch = Scratch()
        changes = chain(self._releases(state, scratch), self._moves(state, scratch), growth.withdrawals(state, scratch))
        awaited = yield from self._awaited(state, changes)
        over = list(claiming.ends(state))
        yield from over
        if not state.admitting:
            return
        stays = list(claiming.stays(state))
        yield from stays
        yield from self._timeouts(state)
        # A release of this commit may make an eviction needless; a victim that stays may make an eviction too small.
        if not over and not stays and not scratch.extra:
            plans = list(claiming.answers(state))
            yield from plans
            if any(isinstance(decision, EvictionOrdered | ClaimOpened) for decision in plans):
                return  # Other answers wait for the claim to be in force: none takes quota of the claim.
        # After the fold, the quota of a claim that ends in this commit is free, and its claimant has no claim;
        # the amounts that victims release in this commit are held.
        served = yield from self._noted(state, self._adoptions(state, scratch))
        if over or served or awaited or (yield from self._noted(state, podasks.answers(state, scratch))):
            return
        asked = growth.asking(state)
        yield from self._answers(state, scratch, asked)
        yield from growth.answers(state, scratch, asked)

    @staticmethod
    def _awaited(state: AccountantState, decisions: Iterable[Decision]) -> Generator[Decision, None, bool]:
        """The decisions, and whether a decision changes the charge of a leaving job, in whole or in part."""
        claims, awaited = state.ledger.claims, False
        for decision in decisions:
            yield decision
            if isinstance(decision, QuotaReleased | ChargeChanged | QuotaMoved | GrowthWithdrawn):
                leaver = claims.going.get(decision.ref.uid)
                awaited = awaited or (leaver is not None and not leaver.moves)
        return awaited

    @staticmethod
    def _noted(state: AccountantState, decisions: Iterable[Decision]) -> Generator[Decision, None, bool]:
        """The decisions, and whether a charge among the decisions ends a claim."""
        claims, ended = state.ledger.claims, False
        for decision in decisions:
            yield decision
            if isinstance(decision, QuotaReserved | WorkloadAdopted):
                ended = ended or claimant_of(decision) in claims.by_uid
        return ended

    @staticmethod
    def _releases(state: AccountantState, scratch: Scratch) -> Iterator[Decision]:
        """Charges that are over or of another size than the running work, and suspensions without an order of a
        decision.
        """
        over: dict[str, None] = {}
        for uid in list(state.due_release) + [u for u, at in state.deadlines.items() if at <= state.now]:
            entry = state.entries[uid]
            reason = release_reason(state, entry)
            if reason == "moved" and (not state.admitting or 2 * len(over) + 2 > MAX_EVENTS):
                continue  # Charge end and next reservation share one commit: this one, or the next.
            if reason is not None:
                over[uid] = None
                demand = state.ledger.charges[uid].demand
                scratch.add(entry.queue, demand, -1)
                released = QuotaReleased(
                    cause=state.causes.get(uid, entry.cause),
                    ref=entry.ref,
                    attempt=entry.attempt,
                    queue=entry.queue,
                    request=demand.request,
                    reason=reason,
                    owed=reason == "no_nodes" and state.ledger.owed(entry.queue, demand, scratch),
                )
                yield from claiming.handed_on(state, entry, released, scratch) if reason == "moved" else (released,)
        for uid in state.due_change:
            due = charge_due(state, state.entries[uid]) if uid not in over else None
            if due is not None:
                before, change = state.ledger.charges[uid], usage_changed(state, state.entries[uid], due)
                if state.unsynced and beyond(before.request, change.request):
                    continue  # Pods that run may not be listed yet.
                scratch.add(before.queue, before.demand, -1)
                scratch.add(before.queue, structs.replace(before.demand, request=change.request, pods=change.pods))
                yield change
        for uid in state.due_suspension:
            entry = state.entries[uid]
            workload = state.workloads.get(uid)
            by = workload.suspended_by if workload is not None else ""
            cause = state.causes.get(uid, entry.cause)
            yield SuspensionRecorded(cause=cause, ref=entry.ref, attempt=entry.attempt, by=by)

    @staticmethod
    def _adoptions(state: AccountantState, scratch: Scratch) -> Iterator[Decision]:
        for uid in state.due_adoption:
            if uid in state.standalone:
                adopted = standalone.adoption(state.ledger, state.standalone[uid])
                adopted = structs.replace(adopted, request=on_nodes(state, uid, adopted.queue, adopted.request))
                scratch.add(adopted.queue, adopted.demand)
                yield adopted
                continue
            workload = state.workloads[uid]
            queue = adopting_leaf(state, workload)
            demand = demand_of(state.ledger.tree_of(queue), workload, state.priorities.get(uid), queue=queue)
            demand = structs.replace(demand, request=on_nodes(state, uid, queue, demand.request))
            scratch.add(queue, demand)
            yield WorkloadAdopted(
                cause=state.causes[uid],
                ref=workload.ref,
                attempt=state.ledger.attempts.get(uid, 0),
                queue=queue,
                **demand.fields,
                reason=adoption_reason(state, workload),
                named=quota_name(workload.labels),
            )

    def _answers(self, state: AccountantState, scratch: Scratch, asked: Sequence[growth.Asked]) -> Iterator[Decision]:
        """The answer to each proposal, up to the first proposal with a claim.

        A job gets no answer while it would take room of another that could have it evicted (``OwedWait``): a job that
        is answered later in this commit, was refused in this commit, or has a plan: its claim comes with the next
        proposal of the preemptor. Growth that is owed its room and answered in this commit keeps it likewise.
        """
        asking = [proposal for uid, proposal in state.proposals.items() if uid not in state.due_adoption]
        waits = OwedWait(state)
        for proposed in (plan.proposed for plan in state.plans.values() if asking):
            if proposed.kind in ("guarantee", "priority"):
                waits.note(proposed.ref, proposed.queue, proposed.demand)
        for ref, queue, demand in growth.owed(state, asked) if asking else ():
            if state.growths[ref.uid].denied is None or not state.ledger.shortfall(queue, demand, scratch):
                waits.note(ref, queue, demand)
        for candidate in (proposal.candidate for proposal in asking):
            waits.note(candidate.ref, candidate.queue, candidate.demand, asks=True)
        while asking:
            later = list[Proposal]()
            for proposal in asking:
                if waits.takes(proposal.candidate, scratch):
                    later.append(proposal)
                elif (yield from self._noted(state, [self._answer(state, proposal, scratch, waits)])):
                    return
            if len(later) == len(asking) and not waits.drop_asking():
                return
            asking = later

    @staticmethod
    def _moves(state: AccountantState, scratch: Scratch) -> Iterator[Decision]:
        """Charges that follow their workload to another leaf."""
        for uid in state.due_move:
            entry, (queue, named) = state.entries[uid], home_of(state, uid)
            demand = state.ledger.charges[uid].demand
            scratch.add(entry.queue, demand, -1)
            scratch.add(queue, demand)
            yield QuotaMoved(
                cause=state.causes.get(uid, entry.cause),
                ref=entry.ref,
                attempt=entry.attempt,
                before=entry.queue,
                queue=queue,
                request=entry.request,
                named=named,
            )

    def _answer(self, state: AccountantState, proposal: Proposal, scratch: Scratch, waits: OwedWait) -> Decision:
        candidate, cause = proposal.candidate, proposal.cause
        uid, workload, demand = candidate.ref.uid, state.workloads.get(candidate.ref.uid), candidate.demand
        waits.kept.pop(uid, None)
        if (
            workload is None
            or not still_waits(state.ledger, workload, candidate.queue, demand)
            or uid in state.entries
            or state.ledger.attempts.get(uid) != candidate.attempt
            or "admissions" in state.resting(candidate.queue)
        ):
            return QuotaDenied(
                cause=cause, ref=candidate.ref, attempt=candidate.attempt, queue=candidate.queue, reason="stale"
            )
        served = state.ledger.claims.served_by(uid, candidate.queue, demand)
        short = state.ledger.shortfall(candidate.queue, demand, scratch, now=state.now, uid=uid)
        if short is None:
            passed = claiming.claim_passed(state.ledger, candidate.queue, demand, scratch, state.now)
            owed = state.ledger.owed(candidate.queue, demand, scratch)
            scratch.add(candidate.queue, demand)
            return claiming.reservation_of_move(
                state, cause, workload, candidate.attempt, candidate.queue, demand, passed, served, owed=owed
            )
        if not short.hopeless:
            waits.note(candidate.ref, candidate.queue, demand)
        return QuotaDenied(
            cause=cause,
            ref=candidate.ref,
            attempt=candidate.attempt,
            queue=candidate.queue,
            reason="exceeds_limit" if short.hopeless else "insufficient_quota",
            request=candidate.request,
            short=short,
            tries=candidate.tries,
        )

    @staticmethod
    def _timeouts(state: AccountantState) -> Iterator[Decision]:
        ordered = set[str]()
        for uid in [uid for uid, at in state.deadlines.items() if at <= state.now]:
            entry = state.entries[uid]
            why, look = suspending.reason_due(state, entry), suspending.look_at(state, entry)
            if why is None and look is not None and look <= state.now:
                since = entry.lacks_since + (state.now - entry.lacks_since) // 4
                yield PodsAwaited(cause=entry.cause, ref=entry.ref, attempt=entry.attempt, since=since)
            elif why is not None:
                ordered.add(uid)
                yield SuspensionOrdered(
                    cause=entry.cause if why in ("running_timeout", "no_pods") else state.causes.get(uid, entry.cause),
                    ref=entry.ref,
                    attempt=entry.attempt,
                    reason=why,
                    problem=suspending.said_of(state, entry, why),
                )
        yield from suspending.taken_back(state, ordered)

    def next_deadline(self, state: AccountantState) -> int | None:
        times = (
            *(
                *state.deadlines.values(),
                *claiming.expiries(state),
                *state.overdue.values(),
                *state.overuse.values(),
            ),
            *sharing.next_at(state),
        )
        return min((at for at in times if at > state.now), default=None)

    # --- check ------------------------------------------------------------------------------------------------

    def check(self, state: AccountantState) -> list[Violation]:
        """I5: usage is the sum of the charges, and runtime quota follows from the requests.

        The sums of waiting and of leaving amounts follow from the jobs; the ended claims follow from the state. I6:
        every entry has one charge, and every charge has an entry. I22: a charge is at the leaf of its workload, or due
        to move.
        """
        violations = []
        if (charged := quotaledger.recounted_used(state.ledger)) != state.ledger.used:
            violations.append(Violation("I5", f"ledger says {state.ledger.used}, charges sum to {charged}"))
        if (shares := state.ledger.shares).runtime != (counted := shares.as_asked(state.ledger.nodes)):
            violations.append(Violation("I5", f"runtime quota is {shares.runtime}, and {counted} by the requests"))
        ledger = state.ledger
        if told := quotaledger.recounted_shares(ledger):
            violations.append(Violation("I5", f"fair shares are others by the requests: {told[:5]}"))
        if (held := quotaledger.recounted_held(ledger)) != (sums := ledger.claims.total.extra):
            violations.append(Violation("I5", f"claims hold {sums}, and {held} by the charges"))
        if ledger.waiting != quotaledger.recounted_waiting(ledger) or ledger.leaving != quotaledger.recounted_leaving(
            ledger
        ):
            violations.append(
                Violation("I5", f"{ledger.waiting} waits and {ledger.leaving} leaves: not the sums of the jobs")
            )
        violations += claiming.forgotten(state)
        if state.entries.keys() != state.ledger.charges.keys():
            odd = sorted(state.entries.keys() ^ state.ledger.charges.keys())
            violations.append(Violation("I6", f"charged and not entered, or entered and not charged: {odd[:5]}"))
        for uid, entry in state.entries.items():
            home, charge = home_of(state, uid)[0], state.ledger.charges.get(uid)
            due = uid in state.due_move or uid in state.due_release or not (entry.admitted or entry.resumed_rv)
            if charge is not None and (charge.queue != entry.queue or (home not in ("", entry.queue) and not due)):
                violations.append(Violation("I22", f"{entry.ref} is charged at {charge.queue} and belongs to {home}"))
        return violations
