"""Preemption inside a queue: whose work of lower priority gives way to a waiting job of the same leaf.

Only where the tree asks for it (``muster.dev/preempt-lower-priority``). Who may claim: a waiting job; one that is not
preemptible only within the min. Who gives: running work of its own leaf with strictly lower priority, the lowest first,
then the youngest, and no more than is needed. Where that brings the leaf so low that the claimant is within its min,
others that run above theirs may give the rest, by the rules of reclaim, if fewer have to leave then.

Priorities are strict, so whoever gave way cannot take it back from whom it gave way to: no two jobs evict each other
in turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from muster.core.preemption import reclaim
from muster.core.preemption.reclaim import MAX_LOOKS, Run, Search, search
from muster.core.quota.demand import Demand, counted
from muster.core.quota.ledger import Ledger


def lower(runs: Sequence[Run], priority: int) -> Sequence[Run]:
    """Of the running work of a leaf what has lower priority, in the order in which it gives way."""
    return runs[: bisect_left(runs, priority, key=lambda run: run[0])]


def victims(
    ledger: Ledger,
    queue: str,
    demand: Demand,
    priority: int,
    runs: Mapping[str, Sequence[Run]],
    may: Callable[[str], bool],
    *,
    reclaims: bool,
) -> list[str]:
    """Uids of whom a claimant of this priority takes its place from; empty when that cannot be.

    ``reclaims``: whether others, that run above their min, may have to give as well.
    """
    if not allowed(ledger, queue, demand):
        return []
    giving = lower(runs.get(queue, ()), priority)[:MAX_LOOKS]
    alone = _alone(ledger, queue, demand, giving, may)
    if reclaims and len(alone) != 1:
        shared = _shared(ledger, queue, demand, giving, runs, may)
        if shared and (not alone or len(shared) < len(alone)):
            return shared
    return alone


def allowed(ledger: Ledger, queue: str, demand: Demand) -> bool:
    """Whether the tree lets such a claimant take anything from work of lower priority in its queue."""
    node = ledger.nodes.get(queue)
    return node is not None and node.preempts and (demand.preemptible or ledger.beyond_min(queue, demand) is None)


def _alone(ledger: Ledger, queue: str, demand: Demand, giving: Sequence[Run], may: Callable[[str], bool]) -> list[str]:
    """Out of the claimant's own queue."""
    found = search(ledger, queue, demand)
    for run in giving:
        missing = found.all_missing()
        if not missing:
            break
        if may(run[3]) and missing & counted(ledger.charges[run[3]].demand).keys():
            found.take(run[3])
    if found.missing() is not None:
        return []
    found.trim()
    return found.chosen


def _shared(
    ledger: Ledger,
    queue: str,
    demand: Demand,
    giving: Sequence[Run],
    runs: Mapping[str, Sequence[Run]],
    may: Callable[[str], bool],
) -> list[str]:
    """Out of its own queue until it is within the min, and the rest out of others that are above theirs."""
    own = search(ledger, queue, demand)
    managed = ledger.managed(queue, demand.request)
    if not managed:
        return []
    for run in giving:
        above = ledger.above_min(queue, demand, managed, own.gone)
        if not above:
            break
        if may(run[3]) and counted(ledger.charges[run[3]].demand).keys() & set(above):
            own.take(run[3])
    if not own.chosen or ledger.above_min(queue, demand, managed, own.gone):
        return []
    own.trim(lambda found: not ledger.above_min(queue, demand, managed, found.gone))
    found = reclaim.completed(own, runs, may)
    found.trim(lambda found: holds(found, own.chosen))
    return found.chosen


def holds(found: Search, own: Iterable[str]) -> bool:
    """Whether what is chosen is enough and legal: beside others the claimant must be within its min."""
    if found.missing() is not None:
        return False
    ledger, queue, demand = found.ledger, found.queue, found.demand
    if set(found.chosen) <= set(own):
        return True
    managed = ledger.managed(queue, demand.request)
    return bool(managed) and not ledger.above_min(queue, demand, managed, found.gone)


def objection(
    ledger: Ledger, queue: str, demand: Demand, chosen: Sequence[str], outranked: Callable[[str], bool]
) -> str:
    """Why these may not be suspended for this claimant, judged afresh; empty when they may.

    ``outranked``: whether somebody of the claimant's queue has lower priority.
    """
    own = [uid for uid in chosen if uid in ledger.charges and ledger.charges[uid].queue == queue]
    if not own:
        return reclaim.objection(ledger, queue, demand, chosen)
    if not allowed(ledger, queue, demand):
        return "nobody of its own queue gives way to it"
    if not all(outranked(uid) for uid in own):
        return "a victim of its own queue has no lower priority"
    found = search(ledger, queue, demand)
    if not found.names:
        return "it fits without taking anything back"
    for uid in own:
        found.take(uid)
    for uid in chosen:
        charge = ledger.charges.get(uid)
        if charge is None:
            return "a victim has left meanwhile"
        if charge.queue != queue:
            if not found.spares(charge):
                return f"quota {charge.queue} would fall below its min"
            found.take(uid)
    if found.missing() is not None:
        return "it would not fit even then"
    if not holds(found, own):
        return "it is beyond the guarantee of its queue"
    before = len(found.chosen)
    found.trim(lambda found: holds(found, own))
    return "" if len(found.chosen) == before else "it needs fewer victims"
