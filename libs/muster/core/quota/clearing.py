"""Room on nodes for a job that finds no place: the accountant judges the victims that are proposed for it.

They are judged by the same rules as where quota is short: between queues what is above what its side may keep, in a
queue what has strictly lower priority. So what has left cannot take its place back by the same rules. The gang admitter
has confirmed by then that the job finds its places with them gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from muster.core.quota import moving
from muster.core.quota.accounting.rechecks import entry_of, recheck
from muster.core.quota.claiming import may_leave, outranked, unjustified
from muster.core.quota.demand import demand_of
from muster.core.quota.giving import giving_objection, rules
from muster.core.quota.ledger.kaishares import shares_with
from muster.core.quota.reclaim import Objection, basis, search
from muster.core.quota.state import AccountantState, Leaving, OpenClearing
from muster.events.base import Cause
from muster.events.claims import PlanStale
from muster.events.clearing import ClearingKind, ClearingOrdered, ClearingProposed, ClearingTried
from muster.events.decisions import EvictionOrdered
from muster.model.keys import Position

# --- the accountant -----------------------------------------------------------------------------------------------


def proposed(state: AccountantState, at: Position, event: ClearingProposed) -> None:
    state.clearings[event.ref.uid] = OpenClearing(event, Cause(at.seq, at.item))


def tried(state: AccountantState, _at: Position, event: ClearingTried) -> None:
    clearing = state.clearings.get(event.ref.uid)
    if clearing is not None and clearing.proposed.attempt == event.attempt:
        clearing.chosen, clearing.moves = event.victims, event.moves


def ordered(state: AccountantState, _at: Position, event: ClearingOrdered) -> None:
    state.clearings.pop(event.ref.uid, None)
    out = state.ledger.claims.set_out if event.kind == "move" else state.ledger.clear
    for victim in event.victims:
        entry = entry_of(state, victim.ref.uid, victim.attempt)
        if entry is not None:
            out(victim.ref.uid, victim.attempt)
            entry.leaving, entry.suspended_rv = _LEAVES[event.kind], 0
            recheck(state, victim.ref.uid)


_LEAVES: Mapping[ClearingKind, Leaving] = {"move": "moved", "reclaim": "evicted", "priority": "preempted"}


def answers(state: AccountantState) -> Iterator[ClearingOrdered | EvictionOrdered | PlanStale]:
    """Answers to proposed clearings, up to the first that is ordered."""
    for clearing in state.clearings.values():
        said = clearing.proposed
        reason = _stale(state, clearing)
        if reason:
            yield PlanStale(cause=clearing.cause, ref=said.ref, attempt=said.attempt, reason=reason)
        elif clearing.chosen is not None:
            yield _order(state, clearing)
            return


def _order(state: AccountantState, clearing: OpenClearing) -> ClearingOrdered | EvictionOrdered:
    """The order that follows; where quota is short as well it is one that holds the quota of the victims."""
    said, chosen = clearing.proposed, {*(clearing.chosen or ())}
    common: dict[str, Any] = {
        "cause": clearing.cause,
        "ref": said.ref,
        "attempt": said.attempt,
        "queue": said.queue,
        "request": said.request,
        "pods": said.pods,
        "preemptible": said.preemptible,
        "run_ms": said.run_ms,
        "victims": tuple(victim for victim in said.victims if victim.ref.uid in chosen),
        "priority": said.priority,
    }
    short = basis(state.ledger, said.ref.uid).refusal(said.queue, said.demand)
    if short is None:
        return ClearingOrdered(**common, kind=said.kind, moves=clearing.moves)
    return EvictionOrdered(**common, kind=_CLAIMS[said.kind], path=short.path, resource=short.resource)


_CLAIMS: Mapping[ClearingKind, Literal["guarantee", "priority"]] = {"reclaim": "guarantee", "priority": "priority"}


def _stale(state: AccountantState, clearing: OpenClearing) -> Objection:
    """Why a proposed clearing is stale; empty while it is not."""
    said = clearing.proposed
    uid, workload = said.ref.uid, state.workloads.get(said.ref.uid)
    if (
        workload is None
        or uid in state.entries
        or unjustified(state, workload, said.queue) is not None
        or demand_of(state.ledger.tree_of(said.queue), workload, state.priorities.get(uid)) != said.demand
    ):
        return "not_waiting"
    short = basis(state.ledger, uid).refusal(said.queue, said.demand)
    if short is not None and (uid not in state.ledger.asks or state.attempts.get(uid) != said.attempt):
        return "not_waiting"  # A claim is for a job in a queue.
    if not state.places or clearing.chosen == ():
        return "no_nodes"
    if clearing.chosen is None:
        return ""
    victims = [victim for victim in said.victims if victim.ref.uid in clearing.chosen]
    if not all(may_leave(state, victim, said.queue) for victim in victims):
        return "victim_protected"
    if said.kind == "move":
        return moving.moving_objection(state, clearing, victims, short)
    given, inside = basis(state.ledger, uid), said.kind == "priority"
    own = all(each.queue == said.queue and outranked(state, uid, each.ref.uid, each.priority) for each in victims)
    shares = shares_with(state.ledger, uid, said.queue, said.demand) if state.ledger.by_shares(said.queue) else None
    judge = rules(given, said.queue, said.demand, inside=inside, shares=shares)
    if inside and not judge.claims() and not own:
        return "not_lower"
    found = search(given, said.queue, said.demand, places=True)
    return giving_objection(judge, found, clearing.chosen, places=True)
