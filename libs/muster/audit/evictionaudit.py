"""The audit of evictions: owed, legal, and no larger than needed (I8, I19); no other job takes the room (I26).

Like the auditor, this audit keeps arithmetic of its own, and calls no code of the preemptor or the accountant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from muster.audit.auditbooks import ChargeSeen, Finding, Orders, Trees, add_amounts, amounts_of
from muster.events.decisions import EvictionOrdered
from muster.model.keys import Ref, path_chain, root_of
from muster.model.quota import MACHINES, QuotaNode
from muster.model.resources import Vector, total_of
from muster.model.victims import PartialVictim, Victim

Ranks = Mapping[str, int | None]
"""uid -> priority of the workload at the last queueing"""

MOST_SERVED = 8
"""Most times a job leaves for a job with less service."""


class Accounts(Struct):
    """The tree and all charges at the time of an order; the victims leave one by one."""

    event: EvictionOrdered
    nodes: Mapping[str, QuotaNode]
    held: Mapping[str, ChargeSeen]
    used: dict[str, Vector]
    claimed: dict[str, Vector]
    """The amounts held for other jobs."""
    own: list[ChargeSeen]
    """Victims of the claimant's own queue."""
    others: list[ChargeSeen]

    def leave(self, charges: Sequence[ChargeSeen], times: int = -1) -> None:
        for charge in charges:
            add_amounts(self.used, charge.queue, charge.amounts, times)

    def enough(self) -> bool:
        """Whether the claimant fits; with room from other quotas, also whether it is covered by a guarantee, and the
        others could have left without the rest.
        """
        event = self.event
        fits = _fits(path_chain(event.queue), amounts_of(event), self.nodes, self.total())
        within = event.kind == "service" or not self.others
        return fits and (within or (bool(_covering(event, self.nodes, self.total())) and self.lent() is None))

    def lent(self) -> ChargeSeen | None:
        """The first job of another queue that was not above the guarantees of its side when its turn came."""
        self.leave(self.others, 1)
        first: ChargeSeen | None = None
        for charge in self.others:
            first = first or (None if self._above(charge) else charge)
            self.leave([charge])
        return first

    def _above(self, charge: ChargeSeen) -> bool:
        """Whether every node of a job's side uses more of one requested resource than it is guaranteed; of a flavor
        that the claimant is not guaranteed by name, also more than its guarantee for any flavor. Every node of the
        claimant's side stays within its guarantee of this resource.
        """
        mine, total = path_chain(self.event.queue), self.total()
        sides = [at for at in path_chain(charge.queue) if at in self.nodes and at not in mine]
        level = _covering(self.event, self.nodes, total)
        theirs = path_chain(charge.queue)
        own = [at for at in mine[mine.index(level) :] if at not in theirs] if level else []

        def is_loan(name: str, asked: int) -> bool:
            over = [at for at in own if total.get(at, {}).get(name, 0) + asked > _owes(self.nodes[at]).get(name, 0)]
            if not all(_covers_claim(self.nodes[at], name, total.get(at, {}), self.event.request) for at in over):
                return False
            return all(
                total.get(at, {}).get(name, 0) > self.nodes[at].guaranteed.get(name, 0)
                and (not over or not _covers_any(self.nodes[at].guaranteed, name, total.get(at, {}), {}))
                for at in sides
            )

        asked_for = amounts_of(self.event).items()
        return any(is_loan(name, asked) for name, asked in asked_for if asked and charge.amounts.get(name))

    def total(self) -> dict[str, Vector]:
        """The amounts charged, and held for other jobs, by node."""
        total = {at: dict(amounts) for at, amounts in self.used.items()}
        for at, amounts in self.claimed.items():
            for name, amount in amounts.items():
                here = total.setdefault(at, {})
                here[name] = here.get(name, 0) + amount
        return total


def findings(
    event: EvictionOrdered,
    trees: Trees,
    held: Mapping[str, ChargeSeen],
    before: Orders,
    priorities: Mapping[str, int],
) -> Iterator[Finding]:
    """All findings about one order, given the charges at the time of the order.

    ``before``: earlier orders and claims, taken as carried out. ``priorities``: of all queued jobs. A claimant that has
    gone since had the priority in the order.
    """
    nodes, tree = trees.nodes, trees.by_root.get(root_of(event.queue))
    ranks: Ranks = {event.ref.uid: event.priority, **priorities}
    if event.for_nodes:
        yield from _makes_room(event, nodes, held, before, ranks)
        return
    books = Accounts(event, nodes, held, {}, before.held_beside(event.ref.uid), [], [])
    gone = before.leaving()
    books.leave([charge for uid, charge in held.items() if uid not in gone], 1)
    shrinking = before.shrinking()
    books.leave([_part(part) for uid, part in shrinking.items() if uid in held and uid not in gone])
    for part in event.partial:
        yield from _may_give(books, part, gone | shrinking.keys(), ranks)
    for victim in event.victims:
        charge = held.get(victim.ref.uid)
        yield from _may_leave(event.ref, victim, charge, gone | before.moving.keys())
        if charge is not None and not victim.moves:
            (books.own if charge.queue == event.queue else books.others).append(charge)
            yield from _comes_before(event, victim, charge, before, ranks)
    if books.own and event.kind != "service":
        asked = event.queue in nodes and nodes[event.queue].preempts
        yield "I19", asked, f"work of lower priority is evicted in {event.queue}, and the tree does not allow that"
        if not event.preemptible:
            yield from _firm(event, nodes, held)
    books.leave(books.own)
    if tree is not None and tree.by_shares:
        return  # by fair shares, which the accountant judges: there is no min to fall below
    if event.kind != "service" and (books.others or not books.own):
        within = bool(_covering(event, nodes, books.total()))
        beyond = f"that is beyond every min from {event.queue} upwards"
        yield "I19", within, f"{event.ref} asks for {event.request}, and {beyond}"
    books.leave(books.others)
    kept = books.lent()
    queue = kept.queue if kept is not None else ""
    yield "I19", kept is None, f"a job of {queue} is evicted for {event.ref}, and {queue} is within its min before"
    if not trees.move and not any(node.kept for node in nodes.values()):
        yield from _needed(books, places=before.places)


def _may_give(books: Accounts, part: PartialVictim, gone: set[str], ranks: Ranks) -> Iterator[Finding]:
    event, charge = books.event, books.held.get(part.ref.uid)
    yield "I19", part.ref.uid not in gone, f"{part.ref} is to give workers, and leaves already"
    legal = charge is not None and charge.preemptible and charge.attempt == part.attempt
    yield "I19", legal, f"{part.ref} is to give workers, and is not charged under attempt {part.attempt}"
    less = charge is not None and _above(charge.amounts, _part(part).amounts)
    yield "I19", less, f"{part.ref} is to give {part.request}, and that is all it has"
    own = event.kind == "priority" and part.queue == event.queue
    (books.own if own else books.others).append(_part(part))
    if own and charge is not None:
        yield _outranked(event, part, ranks)


def _may_leave(claimant: Ref, victim: Victim, charge: ChargeSeen | None, gone: set[str]) -> Iterator[Finding]:
    yield "I19", victim.ref.uid not in gone, f"{victim.ref} is ordered to leave for {claimant}, and does already"
    legal = charge is not None and charge.preemptible and charge.attempt == victim.attempt
    yield "I19", legal, f"{victim.ref} is ordered to leave, and is not charged under attempt {victim.attempt}"


def _makes_room(
    event: EvictionOrdered,
    nodes: Mapping[str, QuotaNode],
    held: Mapping[str, ChargeSeen],
    orders: Orders,
    ranks: Ranks,
) -> Iterator[Finding]:
    """All findings about one order for room on nodes, except the choice of nodes.

    The arguments are the arguments of ``findings``.
    """
    gone, inside = orders.leaving() | orders.moving.keys(), event.kind == "priority"
    yield "I19", bool(event.victims), f"nodes are cleared for {event.ref} without a victim"
    for victim in event.victims:
        charge = held.get(victim.ref.uid)
        yield from _may_leave(event.ref, victim, charge, gone)
        if charge is not None:
            right = victim.moves or (charge.queue == event.queue) == inside
            yield "I19", right, f"{victim.ref} of {charge.queue} is evicted for {event.queue} by {event.kind}"
            if inside:
                yield _outranked(event, victim, ranks)
        gone.add(victim.ref.uid)
    if inside and not event.preemptible:
        yield from _firm(event, nodes, held)


def _comes_before(
    event: EvictionOrdered, victim: Victim, charge: ChargeSeen, before: Orders, ranks: Ranks
) -> Iterator[Finding]:
    """The victim's rank behind the claimant: a bound on service, or a lower priority in the victim's own queue."""
    if event.kind == "service":
        times = before.served.get(victim.ref.uid, 0)
        yield "I19", times < MOST_SERVED, f"{victim.ref} is ordered to leave for less service after {times} times"
    elif charge.queue == event.queue:
        yield _outranked(event, victim, ranks)


def _part(part: PartialVictim) -> ChargeSeen:
    return ChargeSeen(part.queue, part.request, part.attempt, part.pods, part=True)


def _above(whole: Vector, part: Vector) -> bool:
    """Whether a pod is left, even a pod without a request."""
    return part.get(MACHINES, 0) < whole.get(MACHINES, 0) and all(part[name] <= whole.get(name, 0) for name in part)


def _needed(books: Accounts, *, places: bool) -> Iterator[Finding]:
    ref, count = books.event.ref, len(books.own) + len(books.others)
    yield "I8", books.enough(), f"{ref} would not fit without all {count} victims"
    for mine in (books.own, books.others) if not places else ():
        for charge in list(mine):
            mine.remove(charge)
            books.leave([charge], 1)
            yield "I8", not books.enough(), f"{ref} needs fewer victims than {count}"
            books.leave([charge])
            mine.append(charge)


def _outranked(event: EvictionOrdered, victim: Victim | PartialVictim, ranks: Ranks) -> Finding:
    """Priorities at queueing; an adopted job was never queued and has the priority in the order."""
    lower, priority = ranks.get(victim.ref.uid, victim.priority), ranks[event.ref.uid]
    holds = lower is not None and priority is not None and lower < priority == event.priority
    return "I19", holds, f"{victim.ref} of priority {lower} is evicted in its own queue for priority {priority}"


def _firm(event: EvictionOrdered, nodes: Mapping[str, QuotaNode], held: Mapping[str, ChargeSeen]) -> Iterator[Finding]:
    """A claimant that is not preemptible stays within the min at every level, whichever jobs leave."""
    firm: dict[str, Vector] = {}
    for charge in held.values():
        if not charge.preemptible:
            add_amounts(firm, charge.queue, charge.amounts, 1)
    above = [nodes[at] for at in path_chain(event.queue) if at in nodes]
    for name, asked in event.request.items():
        if any(name in node.limit or name in node.guaranteed for node in above):
            for node in above:
                least, now = node.guaranteed.get(name, 0), firm.get(node.path, {}).get(name, 0)
                yield "I19", now + asked <= least, f"{event.ref} is not preemptible and beyond the min of {node.path}"


def _covering(event: EvictionOrdered, nodes: Mapping[str, QuotaNode], used: Mapping[str, Vector]) -> str:
    """The lowest node below the root within whose guarantee the claimant stays, in all that the tree guarantees to any
    queue; empty without such a node. A claimant that also takes from its own queue stays within its leaf's guarantee.
    """
    root = root_of(event.queue)
    some = {name for at, node in nodes.items() if at != root and root_of(at) == root for name in node.guaranteed}
    names = [name for name, asked in event.request.items() if asked and (name in some or total_of(name) in some)]
    levels = [at for at in path_chain(event.queue)[:-1] if at in nodes]
    for at in (levels[:1] if event.kind == "priority" else levels) if names else ():
        uses, least = used.get(at, {}), _owes(nodes[at])
        if all(
            uses.get(name, 0) + event.request[name] <= least.get(name, 0)
            or _covers_claim(nodes[at], name, uses, event.request)
            for name in names
        ):
            return at
    return ""


def _owes(node: QuotaNode) -> Vector:
    """The guarantee of a claimant: no more than the nodes of the cluster give."""
    return {name: min(least, node.lowered.get(name, least)) for name, least in node.guaranteed.items()}


def _covers_claim(node: QuotaNode, name: str, uses: Vector, asked: Vector) -> bool:
    return _covers_any(_owes(node), name, uses, asked)


def _covers_any(guaranteed: Vector, name: str, uses: Vector, asked: Vector) -> bool:
    """Whether use of a flavor beyond the amount of this flavor is within the part of the guarantee by total that no
    flavor has.
    """
    whole = total_of(name)
    if whole == name:
        return False
    flavors = {other: least for other, least in guaranteed.items() if other != whole and total_of(other) == whole}
    within = sum(min(uses.get(other, 0) + asked.get(other, 0), least) for other, least in flavors.items())
    beside = uses.get(whole, 0) + asked.get(whole, 0) - within
    return beside <= guaranteed.get(whole, 0) - sum(flavors.values())


def _fits(path: Iterable[str], asked: Vector, nodes: Mapping[str, QuotaNode], used: Mapping[str, Vector]) -> bool:
    return all(
        used.get(at, {}).get(name, 0) + amount <= nodes[at].limit[name]
        for at in path
        if at in nodes
        for name, amount in asked.items()
        if name in nodes[at].limit
    )
