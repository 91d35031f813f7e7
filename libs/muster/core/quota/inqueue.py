"""Preemption inside a queue: whose work of lower priority gives way to a waiting job of the same leaf.

Only where the tree asks for it (``muster.dev/preempt-lower-priority``). Who may claim: a waiting job; one that is not
preemptible only within the min. Who gives: running work of its own leaf with strictly lower priority, the lowest first,
then the youngest, and no more than is needed. Where that brings the leaf so low that the claimant is within its min,
others that run above theirs may give the rest, by the rules of reclaim, if fewer have to leave then.

Priorities are strict, so a victim can never take it back from its claimant: no two jobs evict each other
in turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from muster.core.quota import kaireclaim, reclaim
from muster.core.quota.demand import Scratch
from muster.core.quota.ledger.ledger import Ledger
from muster.core.quota.reclaim import Basis, Objection, Run, Search, search
from muster.model.demand import Demand


def lower(runs: Sequence[Run], priority: int) -> Sequence[Run]:
    """Of the running work of a leaf what has lower priority, in the order in which it gives way."""
    return runs[: bisect_left(runs, priority, key=lambda run: run.priority)]


def allowed(ledger: Ledger, queue: str, demand: Demand, held: Scratch) -> bool:
    """Whether the tree lets such a claimant take anything from work of lower priority in its queue.

    ``held``: what is held for others.
    """
    node = ledger.nodes.get(queue)
    return (
        node is not None and node.preempts and (demand.preemptible or not any(ledger.beyond_mins(queue, demand, held)))
    )


def holds(found: Search, own: Iterable[str]) -> bool:
    """Whether what is chosen is enough and legal: beside others the claimant must be within its min."""
    if found.missing() is not None:
        return False
    if set(found.chosen) <= set(own):
        return True
    managed = found.ledger.managed(found.queue, found.demand.request)
    return bool(managed) and not found.above_min(managed)


def objection(
    given: Basis,
    queue: str,
    demand: Demand,
    chosen: Sequence[str],
    outranked: Callable[[str], bool],
    *,
    places: bool = False,
) -> Objection:
    """Why these may not be suspended for this claimant, judged afresh; empty when they may.

    ``outranked``: whether somebody of the claimant's queue has lower priority. ``places``: as in ``reclaim.objection``.
    """
    charges = given.ledger.charges
    own = [uid for uid in chosen if uid in charges and charges[uid].queue == queue]
    if not own:
        rules = kaireclaim.objection if given.ledger.by_shares(queue) else reclaim.objection
        return rules(given, queue, demand, chosen, places=places)
    if not allowed(given.ledger, queue, demand, given.held):
        return "not_preempting"
    if not all(outranked(uid) for uid in own):
        return "not_lower"
    found = search(given, queue, demand)
    found.level = queue
    if not found.names:
        return "fits"
    for uid in own:
        found.take(uid)
    for uid in chosen:
        charge = charges.get(uid)
        if charge is None:
            return "victim_left"
        if charge.queue != queue:
            if not found.spares(charge):
                return "below_min"
            found.take(uid)
    if found.missing() is not None:
        return "not_enough"
    if not holds(found, own):
        return "beyond_guarantee"
    before = len(found.chosen)
    found.trim(lambda found: holds(found, own))
    return "" if places or len(found.chosen) == before else "too_many_victims"
