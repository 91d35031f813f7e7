"""The search for victims with the rules of each reason to evict: owed quota, a higher priority in the queue, less
service.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from muster.core.quota.candidates import Basis, Candidates, GivingRules, Run, Search, search
from muster.core.quota.evictionrules import Inside, MovesOnly, OfGuarantee, OfService, rules
from muster.core.quota.ledger.shares import DividedShares
from muster.core.quota.rayclaims import Spare, counts_of, parts_of
from muster.core.victimsearch.prices import Found, worth
from muster.core.victimsearch.search import plan
from muster.core.victimsearch.sites import Site
from muster.model.demand import Demand
from muster.model.elastic import Counts

DEAR_MS = 3_600_000
"""Work in ms. Where the victims lose more than this for the whole request, the search also tries whether moving other
jobs loses less.
"""
NO_VICTIMS = Found([], looked=False)


def lower(runs: Sequence[Run], priority: int) -> Sequence[Run]:
    """The runs of a leaf below this priority, in the order of eviction."""
    return runs[: bisect_left(runs, priority, key=lambda run: run.priority)]


def owed(
    given: Basis,
    queue: str,
    demand: Demand,
    candidates: Candidates,
    site: Site | None = None,
    shares: DividedShares | None = None,
) -> Found:
    """The victims for the quota that a job is owed. ``shares``: of KAI queues, if known.

    Where no victims make room on nodes, or the victims lose much work, other jobs may move too, also jobs within their
    guarantee.
    """
    judges = [rules(given, queue, demand, shares=shares)]
    if isinstance(judges[0], OfGuarantee):
        judges.insert(0, replace(judges[0], for_good=True))
    victims = _first(judges, given, queue, demand, replace(candidates, most=0), site)
    if site is None or not candidates.most:
        return victims
    begun, much = search(given, queue, demand, places=True), DEAR_MS * worth(demand.request)
    if victims.uids and (victims.price <= much or 2 * _least(begun, judges, candidates) >= victims.price):
        return victims
    moved = _first(judges, given, queue, demand, candidates, site)
    if moved.uids and (not victims.uids or 2 * moved.price < victims.price):
        return moved
    return victims._replace(gave_up=victims.gave_up or moved.gave_up)


def _least(begun: Search, judges: Sequence[GivingRules], candidates: Candidates) -> int:
    """The least price of the short quota: as if all of it came from the jobs with the shortest work."""
    short, alike = begun.missing(), candidates.alike
    if short is None or alike is None:
        return 0
    lots = (lots for leaf, lots in alike.lots.items() if any(judge.asks(leaf) for judge in judges))
    newest = max((-lot[0].youth for leaf_lots in lots for lot in leaf_lots.values()), default=candidates.now)
    return worth({short.resource: short.missing}) * max(candidates.now - newest, 0)


def outranked(
    given: Basis,
    queue: str,
    demand: Demand,
    priority: int,
    candidates: Candidates,
    site: Site | None = None,
    *,
    reclaims: bool,
) -> Found:
    """The victims for a job of this priority in its own queue.

    ``reclaims``: other queues above their min may give, too.
    """
    giving = lower(candidates.runs.get(queue, ()), priority)
    if not giving:
        return NO_VICTIMS
    own = Inside(given, queue, demand, others=False)
    alone = _first([own], given, queue, demand, candidates.only({queue: giving}), site)
    if not reclaims or len(alone.uids) == 1 or given.ledger.by_shares(queue):
        return alone
    with_others = candidates.only({**candidates.runs, queue: giving})
    shared = _first([Inside(given, queue, demand)], given, queue, demand, with_others, site)
    fewer = shared.uids and (not alone.uids or len(shared.uids) < len(alone.uids))
    return shared if fewer and any(given.ledger.charges[uid].queue == queue for uid in shared.uids) else alone


def underserved(given: Basis, queue: str, demand: Demand, candidates: Candidates, site: Site | None = None) -> Found:
    """The victims among jobs with more service, in the order of ``candidates``."""
    return _first([OfService(queue)], given, queue, demand, candidates, site)


def elsewhere(given: Basis, queue: str, demand: Demand, candidates: Candidates, site: Site) -> Found:
    """The jobs moved to make room for the claimant's places, where the nodes together have enough free."""
    return _first([MovesOnly()], given, queue, demand, candidates, site) if site.may_fit() else NO_VICTIMS


def workers(
    given: Basis, queue: str, demand: Demand, candidates: Candidates, givers: Mapping[str, Sequence[Spare]],
    most: int | None, *, below: int | None = None,
) -> dict[str, Counts]:  # fmt: skip
    """{uid: replicas taken of each group} of Ray clusters; arguments as of ``parts_of``."""
    begun = search(given, queue, demand)
    replicas, parts = parts_of(begun, candidates, givers, most, below)
    begun.parts = {name: part.gives for name, part in parts.items()}
    inside: list[GivingRules] = [Inside(given, queue, demand, others=False)]
    judges = inside if below is not None else [rules(given, queue, demand)]
    victims = _first(judges if parts else (), given, queue, demand, replicas, None, begun)
    return counts_of(parts[uid] for uid in victims.uids)


def _first(
    judges: Iterable[GivingRules], given: Basis, queue: str, demand: Demand, candidates: Candidates, site: Site | None,
    begun: Search | None = None,
) -> Found:  # fmt: skip
    gave_up = looked = False
    begun = begun or search(given, queue, demand, places=site is not None)
    for judge in judges:
        if judge.claims() or not (candidates.most or any(map(judge.asks, candidates.runs))):
            continue
        victims = plan(begun, judge, candidates, site)
        if victims.uids:
            return victims
        gave_up, looked = gave_up or victims.gave_up, True
    return Found([], gave_up, looked)
