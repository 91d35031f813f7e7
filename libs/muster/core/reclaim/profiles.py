"""The one search, asked for each reason by which work gives way: what is owed, and a higher priority in its queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from muster.core.quota.demand import counted
from muster.core.quota.giving import GivingRules, Inside, OfGuarantee, OfShare
from muster.core.quota.inqueue import allowed, holds, lower
from muster.core.quota.kaireclaim import between
from muster.core.quota.ledger.kaishares import Shares
from muster.core.quota.reclaim import Basis, Market, Run, search
from muster.core.reclaim.search import Found, plan
from muster.core.reclaim.sites import Site
from muster.model.demand import Demand


def owed(
    given: Basis, queue: str, demand: Demand, market: Market, site: Site | None = None, shares: Shares | None = None
) -> Found:
    """Who gives way for what a job is owed; nobody where it is owed nothing. ``shares``: of KAI queues, if known."""
    gave_up = False
    for judge in _judges(given, queue, demand, shares):
        begun = search(given, queue, demand)
        if isinstance(judge, OfGuarantee):
            begun.level = judge.level
        found = plan(begun, judge, market, site)
        if found.uids:
            return found
        gave_up = gave_up or found.gave_up
    return Found([], gave_up)


def _judges(given: Basis, queue: str, demand: Demand, shares: Shares | None) -> Iterator[GivingRules]:
    """What a whole branch of the tree is guaranteed is taken from outside of it first: within it somebody would have to
    take it back from there in turn.
    """
    if given.ledger.by_shares(queue):
        rules = between(given, queue, demand, shares)
        if rules.may_claim():
            yield OfShare(rules)
        return
    for level in reversed(given.owed_at(queue, demand)):
        yield OfGuarantee(queue, level)


def outranked(
    given: Basis, queue: str, demand: Demand, priority: int, market: Market, site: Site | None = None, *, reclaims: bool
) -> Found:
    """Who gives way to a job of this priority in its own queue.

    ``reclaims``: whether others, that run above their min, may have to give as well.
    """
    if not allowed(given.ledger, queue, demand, given.held):
        return Found([])
    giving = lower(market.runs.get(queue, ()), priority)
    begun = search(given, queue, demand)
    begun.level = queue
    alone = plan(begun, Inside(queue), replace(market, runs={queue: giving} if giving else {}), site)
    if reclaims and len(alone.uids) != 1 and not given.ledger.by_shares(queue):
        shared = _shared(given, queue, demand, giving, market, site)
        if shared and (not alone.uids or len(shared) < len(alone.uids)):
            return Found(shared)
    return alone


def _shared(
    given: Basis, queue: str, demand: Demand, giving: Sequence[Run], market: Market, site: Site | None
) -> list[str]:
    """Out of its own queue until it is within the min, and the rest out of others that are above theirs."""
    own = search(given, queue, demand)
    own.level = queue
    managed = given.ledger.managed(queue, demand.request)
    if not managed:
        return []
    for run in giving:
        above = own.above_min(managed)
        if not above:
            break
        if market.may(run.uid) and counted(own.ledger.charges[run.uid].demand).keys() & set(above):
            own.take(run.uid)
    if not own.chosen or own.above_min(managed):
        return []
    own.trim(lambda found: not found.above_min(managed))
    found = plan(own, OfGuarantee(queue, queue), market, site)
    after = search(given, queue, demand)
    after.level = queue
    for uid in found.uids:
        after.take(uid)
    after.trim(lambda each: holds(each, own.chosen) and (site is None or site.fits(each.chosen)))
    return after.chosen
