"""One search for victims: the cheapest set of running jobs whose eviction makes a waiting job fit in quota and on
nodes.

Input: the candidates in order, and the rules, which say whether a job may leave beside the jobs chosen so far. Two
goals: no limit refuses the claimant, and the claimant finds its places. With nodes, the search begins there. For each
pod the search takes the cheapest node to clear, then fills the missing quota from any node. In the end the search
spares victims that are not needed, the dearest first. If this fails and the candidates are few, the search tries all
sets of candidates.

The callers of the search come first: one for each reason to evict. Reasons are owed quota, a higher priority in the
queue, and less service.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from heapq import heappop, heappush
from itertools import islice, takewhile, tee

from msgspec.structs import replace

from muster.core.placement.view import Ask
from muster.core.quota.candidates import MAX_LOOKS, Basis, Candidates, GivingRules, Run, Search, Turn
from muster.core.quota.candidates import search as begin
from muster.core.quota.demand import chain_of, counted
from muster.core.quota.evictionrules import Inside, MovesOnly, OfGuarantee, OfService, rules
from muster.core.quota.ledger.shares import DividedShares
from muster.core.quota.rayclaims import Spare, counts_of, parts_of
from muster.core.victimsearch.prices import (
    FEW,
    MAX_EXACT,
    MAX_MOVED,
    Cost,
    Found,
    Option,
    Prices,
    cheapest,
    worth,
)
from muster.core.victimsearch.sites import Domain, Site
from muster.model.demand import Demand, Shortfall
from muster.model.elastic import Counts

MAX_STARTS = 64
"""The nodes tried as the first node to clear, at most."""
MAX_TRADED = 24
"""A plan with more victims is not improved: each victim's node was the cheapest already."""
MAX_OTHERS = 32
"""The jobs tried as replacements of chosen victims, at most."""
MAX_CLOSED = 8
"""After this many nodes that cannot be cleared, the search checks whether any node can."""
DEAR_MS = 3_600_000
"""Work in ms. Where the victims lose more than this for the whole request, the search also tries whether moving other
jobs loses less.
"""
NO_VICTIMS = Found([], looked=False)


# --- the reasons ------------------------------------------------------------------------------------------------------


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
    begun, much = begin(given, queue, demand, places=True), DEAR_MS * worth(demand.request)
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
    begun = begin(given, queue, demand)
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
    begun = begun or begin(given, queue, demand, places=site is not None)
    for judge in judges:
        if judge.claims() or not (candidates.most or any(map(judge.asks, candidates.runs))):
            continue
        victims = plan(begun, judge, candidates, site)
        if victims.uids:
            return victims
        gave_up, looked = gave_up or victims.gave_up, True
    return Found([], gave_up, looked)


# --- the search -------------------------------------------------------------------------------------------------------


def plan(begun: Search, judge: GivingRules, candidates: Candidates, site: Site | None = None) -> Found:
    """The victims after whose eviction the claimant fits. The jobs chosen in ``begun`` stay chosen."""
    return _Planner(begun, judge, candidates, site).plan()


class _Planner:
    """One search for victims. ``looks``: the jobs looked at so far, over all attempts of this search."""

    def __init__(self, begun: Search, judge: GivingRules, candidates: Candidates, site: Site | None) -> None:
        self.begun, self.judge, self.candidates, self.site = begun, judge, candidates, site
        self.may = cache(candidates.may)
        self.moves = cache(candidates.moves) if candidates.most else None
        self.prices = Prices(begun, judge, candidates)
        self.looks = 0
        self.tried: dict[str, None] = {}
        """uids of the jobs looked at, in order."""
        self.all: Search | None = None

    def plan(self) -> Found:
        for start in self._starts():
            search = self._filled(start) or (self._filled(tuple(start)[::-1]) if self.moves else None)
            if search is not None:
                search.trim(self._enough, self.prices.dear)
                if not search.chosen:
                    return Found([], looked=False)  # The claimant fits already, and is evaluated next.
                if self.site is not None and not self.begun.chosen and len(search.chosen) <= MAX_TRADED:
                    search = self._improved(search)
                return self._found(search)
            if self.looks > MAX_LOOKS:
                return Found([], gave_up=True)
        return self._exact()

    def _found(self, search: Search) -> Found:
        return Found(search.chosen, moving=search.moving, price=self.prices.price(search.chosen))

    def _enough(self, search: Search) -> bool:
        fits = search.missing() is None and (self.site is None or self.site.fits(search.chosen, search.moving))
        return fits and self.judge.fair(search)

    def _all_gone(self) -> Search:
        """The search with every possible victim gone."""
        if self.all is None:
            runs, none_gone = self.candidates.runs, self.begun.copied()
            leaves = runs if self.moves or self.judge.unlocks else self.prices.giving
            uids = [run.uid for leaf in leaves if self.moves or self.judge.asks(leaf) for run in runs[leaf]]
            self.all = self.begun.copied()
            for uid in uids:
                unlocked = self.judge.unlocks and self.may(uid) and self.judge.asks(self.begun.giver(uid).queue)
                if unlocked or self._may_give(none_gone, uid):
                    self.all.take(uid, moves=not unlocked and not self._gives(none_gone, uid))
        return self.all

    def _fit_at_most(self) -> bool:
        search, site = self._all_gone(), self.site
        if search.missing() is not None or (site is not None and not site.fits(search.chosen)):
            return False
        return (
            site is None or not search.moving or site.may_fit(uid for uid in search.chosen if uid not in search.moving)
        )

    # --- by quota -------------------------------------------------------------------------------------------------

    def _starts(self) -> Iterator[Sequence[str]]:
        """The jobs to take first. By quota: the jobs that end by themselves, then no job, then each job looked at. With
        nodes: the jobs that clear a set of nodes.
        """
        if self.site is not None:
            yield from self._by_nodes(self.site)
            return
        yield from dict.fromkeys((self._ending(), ()))
        if self._fit_at_most():
            for uid in list(self.tried):
                yield (uid,)

    def _ending(self) -> tuple[str, ...]:
        """The needed jobs that end by themselves, where the rules allow them."""
        search, short = self.begun.copied(), self.begun.missing()

        def helps(uid: str) -> bool:
            queue, asked = search.giver(uid).queue, counted(search.giver(uid).demand)
            return short is not None and short.path in chain_of(queue) and asked.get(short.resource, 0) > 0

        for uid in self.candidates.ending(helps):
            if uid not in search.chosen and self._taken(search, uid):
                self.prices.free(uid)
                short = search.missing()
        return tuple(search.chosen[len(self.begun.chosen) :])

    def _filled(self, start: Iterable[str]) -> Search | None:
        """The search with as many more victims as the quota needs, in order; None where the claimant still does not
        fit.
        """
        search = self.begun.copied()
        for uid in start:
            if uid not in search.chosen and not self._taken(search, uid):
                return None
        dead = set(search.chosen)
        """Runs that are chosen, or not allowed: a further victim does not allow a run again."""
        begins: dict[str, int] = {}
        while (short := search.missing()) is not None:
            uid = self._next(search, short, dead, begins)
            if not uid or self.looks > MAX_LOOKS:
                return None
            search.take(uid)
            dead.add(uid)
            if self.judge.unlocks:
                dead, begins = set(search.chosen), {}
        return search if self._enough(search) else None

    def _taken(self, search: Search, uid: str) -> bool:
        gives = self.may(uid) and self._gives(search, uid)
        if taken := gives or self._moves(search, uid):
            search.take(uid, moves=not gives)
        return taken

    def _gives(self, search: Search, uid: str) -> bool:
        giver = search.giver(uid)
        return self.judge.asks(giver.queue) and self.judge.gives(giver, uid, search)

    def _moves(self, search: Search, uid: str) -> bool:
        return self.moves is not None and len(search.moving) < self.candidates.most and self.moves(uid)

    def _next(self, search: Search, short: Shortfall, dead: set[str], begins: dict[str, int]) -> str:
        """The next victim for a short resource, of all queues below the node with the shortfall."""
        best: tuple[Turn, Run] | None = None
        for leaf, runs in self._leaves(short):
            turn = self.judge.turn(leaf, search)
            if best is not None and turn > best[0]:
                continue
            while begins.get(leaf, 0) < len(runs) and runs[begins.get(leaf, 0)].uid in dead:
                begins[leaf] = begins.get(leaf, 0) + 1
            for run in islice(runs, begins.get(leaf, 0), None):
                if best is not None and (turn, run) > best:
                    break  # Every later run has worked longer.
                if run.uid in dead:
                    continue
                self.looks += 1
                giver = search.giver(run.uid)
                if not counted(giver.demand).get(short.resource, 0) or not self.may(run.uid):
                    continue
                self.tried[run.uid], self.prices.runs[run.uid] = None, run
                if not self.judge.gives(giver, run.uid, search):
                    dead.add(run.uid)
                    continue
                best = (turn, run)
                break  # Every later run of the queue has worked longer.
        return best[1].uid if best is not None else ""

    def _leaves(self, short: Shortfall) -> Iterator[tuple[str, Sequence[Run]]]:
        """The runs of each possible queue below the node with the shortfall."""
        for leaf in self.prices.giving:
            if short.path in chain_of(leaf):
                yield leaf, self.candidates.runs[leaf]

    # --- by nodes -------------------------------------------------------------------------------------------------

    def _by_nodes(self, site: Site) -> Iterator[Sequence[str]]:
        """Sets of victims that give the gang its places, the cheapest known set first."""
        if site.fits(self.begun.chosen):
            yield ()
        if len(site.pods) == 1 and site.domains() == [None]:
            for option in islice(self._one_by_one(site, site.pods[0]), MAX_STARTS):
                uids = self._cleared(site, option, None, ())
                if uids is not None:
                    yield uids
            return
        if not site.pods or not site.fits(self._all_gone().chosen):
            return
        options = {domain: self._options(site, self.begun.copied(), site.pods[0], domain) for domain in site.domains()}
        firsts = sorted((option, domain or ("", "")) for domain, choices in options.items() for option in choices)
        for option, domain in firsts[:MAX_STARTS]:
            where = domain if domain != ("", "") else None
            uids = self._cleared(site, option, where, options[where])
            if uids is not None:
                yield uids

    def _one_by_one(self, site: Site, pod: Ask) -> Iterator[Option]:
        """The cost of room for a single pod on each node, the least first. A node is looked at on the turn of its
        cheapest job: room there costs at least as much as this job.
        """
        search, known, options, closed = self.begun.copied(), dict.fromkeys(site.free(pod)), list[Option](), 0
        yield from (Option(Cost(), node, ()) for node in known)
        for least, uid in self.prices.cheapest_first():
            while options and options[0].cost < least:
                yield heappop(options)
            nodes = [node for node in site.nodes_of(uid) if node not in known] if self._may_give(search, uid) else ()
            for node in nodes:
                known[node] = None
                option = self._option(site, search, pod, node) if site.suits(pod, node) else None
                if option is not None:
                    heappush(options, option)
                    continue
                closed += 1
                if closed == MAX_CLOSED and not site.fits(self._all_gone().chosen):
                    return
        while options:
            yield heappop(options)

    def _cleared(self, site: Site, first: Option, domain: Domain | None, options: Sequence[Option]) -> list[str] | None:
        """The victims that make room for every pod, pod by pod on the cheapest node, ``first`` included; None where no
        node has room.
        """
        mark, search, known = site.view.mark(), self.begun.copied(), {option.node: option for option in options}
        try:
            for at, pod in enumerate(site.pods):
                if at and pod != site.pods[at - 1]:
                    known = {option.node: option for option in self._options(site, search, pod, domain)}
                option: Option | None = first
                while at and option is not None:
                    option = min(known.values(), default=None)
                    if option is None or self._legal(search, option.uids):
                        break
                    self._look_again(known, site, search, pod, [option.node])
                if option is None or not all(self._taken(search, uid) for uid in option.uids):
                    return None
                for uid in option.uids:
                    site.leave(uid)
                site.put(pod, option.node)
                touched = dict.fromkeys([option.node, *(node for uid in option.uids for node in site.nodes_of(uid))])
                if site.pods[at + 1 : at + 2] == [pod]:
                    self._look_again(known, site, search, pod, touched)
            return search.chosen[len(self.begun.chosen) :]
        finally:
            site.view.undo(mark)

    def _look_again(self, known: dict[str, Option], site: Site, search: Search, pod: Ask, names: Iterable[str]) -> None:
        """Compute the cost of room for a pod on these nodes again."""
        for name in names:
            if known.pop(name, None) is not None:
                option = self._option(site, search, pod, name)
                if option is not None:
                    known[name] = option

    def _options(self, site: Site, search: Search, pod: Ask, domain: Domain | None) -> list[Option]:
        """The cost of room for a pod on each possible node."""
        return [
            option for node in site.nodes(pod, domain) if (option := self._option(site, search, pod, node)) is not None
        ]

    def _option(self, site: Site, search: Search, pod: Ask, node: str) -> Option | None:
        """The cheapest known set of jobs on a node that makes room for a pod."""
        if site.room(pod, node):
            return Option(Cost(), node, ())
        here = [uid for uid in site.givers(node) if uid not in search.chosen and self._may_give(search, uid)]
        here.sort(key=self.prices.dear)
        if here and site.room_without(pod, node, here[:1]):
            return self._better(None, node, here[:1])  # No set costs less than its cheapest job.
        if not here or not site.room_without(pod, node, here):
            return None
        best: Option | None = None
        for order in (here, sorted(here, key=self.prices.for_each)):
            best = self._better(best, node, self._grown(site, search, pod, node, order))
        for uids in site.sets(pod, node, here, best, self.prices):
            if best is not None and self.prices.cost(uids)[:2] > best.cost[:2]:
                break
            if site.room_without(pod, node, uids) and self._legal(search, uids):
                best = self._better(best, node, uids)
        return best

    def _may_give(self, search: Search, uid: str) -> bool:
        if self.prices.run(uid) is None or not (self.moves or self.judge.asks(self.begun.giver(uid).queue)):
            return False
        self.looks += 1
        return (self.may(uid) and self._gives(search, uid)) or self._moves(search, uid)

    def _better(self, best: Option | None, node: str, uids: Sequence[str] | None) -> Option | None:
        if uids is None:
            return best
        option = Option(self.prices.cost(uids), node, tuple(self.prices.in_order(uids)))
        return option if best is None or option < best else best

    def _legal(self, search: Search, uids: Sequence[str]) -> bool:
        """Whether the rules allow these jobs one after the other."""
        taken = list(takewhile(lambda uid: self._taken(search, uid), self.prices.in_order(uids)))
        for uid in taken:
            search.leave(uid)
        return len(taken) == len(uids)

    def _grown(self, site: Site, search: Search, pod: Ask, node: str, order: Sequence[str]) -> list[str] | None:
        """Allowed jobs one after the other until the pod has room, then without the jobs that are not needed."""
        uids: list[str] = []
        for uid in order:
            if not self._legal(search, [*uids, uid]):
                continue
            uids.append(uid)
            if site.room_without(pod, node, uids):
                break
        else:
            return None
        for uid in sorted(uids, key=lambda uid: (self.prices.rank(uid), self.prices.lost(uid)), reverse=True):
            rest = [other for other in uids if other != uid]
            if rest and site.room_without(pod, node, rest):
                uids = rest
        return uids

    def _improved(self, search: Search) -> Search:
        """The search with cheaper victims in place of the dearest: one job that is enough with some of the rest, or as
        many of the cheapest jobs as needed. Where nothing is lost, nothing is cheaper.
        """
        if not self.prices.price(search.chosen):
            return search
        most, may_give = self.prices.cost(search.chosen).rank, partial(self._may_give, self.begun.copied())
        cheap, others = tee(islice(self.prices.least_lost_first(most, may_give), MAX_OTHERS))
        for other in others:
            if self.prices.lost(other) >= self.prices.price(search.chosen):
                break
            if other not in search.chosen:
                search = self._cheaper(search, [other, *sorted(search.chosen, key=self.prices.dear)])
        for dear in sorted(search.chosen, key=self.prices.dear, reverse=True):
            cheap, others = tee(cheap)
            search = self._cheaper(search, self._losing_less(dear, others))
        return search

    def _losing_less(self, than: str, uids: Iterable[str]) -> list[str]:
        most = self.prices.lost(than)
        return list(takewhile(lambda uid: self.prices.lost(uid) < most, uids))

    def _cheaper(self, than: Search, order: Iterable[str]) -> Search:
        """As many of these jobs as needed, in this order, without the jobs that are not needed; ``than`` where that is
        not cheaper.
        """
        search = self.begun.copied()
        for uid in order:
            self._taken(search, uid)
            if self.prices.price(search.chosen) < self.prices.price(than.chosen) * 4 and self._enough(search):
                break
        if self._enough(search):
            search.trim(self._enough, self.prices.dear)
            again = self._set(self.prices.in_order(search.chosen))
            if again is not None and self.prices.cost(again.chosen) < self.prices.cost(than.chosen):
                return again if not again.moving or self._enough(again) else than
        return than

    def _set(self, uids: Iterable[str]) -> Search | None:
        """The search with these jobs chosen one after the other; None where the rules do not allow all."""
        search = self.begun.copied()
        legal = all(uid in search.chosen or self._taken(search, uid) for uid in uids)
        return search if legal else None

    # --- exactly --------------------------------------------------------------------------------------------------

    def _exact(self) -> Found:
        """The cheapest of all sets, where the candidates are few."""
        gone = self._all_gone()
        if not self._fit_at_most():
            return Found([])
        givers = sorted(gone.chosen[len(self.begun.chosen) :], key=self.prices.dear)
        if len(givers) > FEW:
            return Found([], gave_up=True)
        best: Search | None = None
        most = MAX_MOVED if gone.moving else MAX_EXACT
        for uids in islice(cheapest(givers, self.prices.rank, self.prices.lost), most):
            if best is not None and self.prices.cost(uids)[:2] > self.prices.cost(best.chosen)[:2]:
                break
            order = self.prices.in_order(uids)
            search = self._set(order)
            may_give = not gone.moving.keys() >= {*uids}
            if self.moves and may_give and (search is None or not self._enough(search)):
                search = self._set(order[::-1])  # In reverse order other jobs give quota, and other jobs move.
            better = best is None or self.prices.cost(uids) < self.prices.cost(best.chosen)
            best = search if search is not None and better and self._enough(search) else best
        return self._found(best) if best is not None else Found([], gave_up=2 ** len(givers) > most)
