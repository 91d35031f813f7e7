"""The nodes in a search for victims: the nodes suitable for a pod, the jobs on a node, and whether a whole gang fits.

Every earlier order counts as done: the victims are gone, and their claimants have their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

from msgspec.structs import replace

from muster.core.gang import plantrials
from muster.core.gang.admitterstate import AdmitterState
from muster.core.gang.jobplaces import asks_of_claimant, jobs_on, leave, may_fit, occupants_of, relocated
from muster.core.gang.nodeclaims import could_have_places
from muster.core.placement.choices import choices, pinned_to_nodes, suits
from muster.core.placement.needs import need_of, refused
from muster.core.placement.place import weight
from muster.core.placement.view import Ask, View
from muster.core.victimsearch.prices import Option, Prices, cheapest
from muster.events.elastic import GrowthOption
from muster.model.resources import Vector, add_into

MAX_SETS = 256
"""The sets of jobs tried on one node, at most."""

Domain = tuple[str, str]
"""A label of nodes and its value."""


class Site:
    """The nodes from the point of view of one waiting gang."""

    def __init__(self, places: AdmitterState, uid: str, asks: Sequence[Ask]) -> None:
        self._places, self._uid, self._asks = places, uid, asks
        self._fits: dict[tuple[frozenset[str], frozenset[str]], bool] = {}

    @cached_property
    def view(self) -> View:
        return plantrials.supposed(self._places, self._uid)

    @cached_property
    def _settled(self) -> View:
        return plantrials.settled(self._places, self._uid)

    def fits(self, gone: Iterable[str], moving: Iterable[str] = ()) -> bool:
        """Whether the gang finds its places without the ``gone`` jobs, and the ``moving`` jobs among the ``gone`` find
        other places.
        """
        key = frozenset(gone), frozenset(moving)
        if key not in self._fits:
            self._fits[key] = self._tried(sorted(key[0]), sorted(key[1])) is not None
        return self._fits[key]

    def places(self, gone: Sequence[str], moving: Sequence[str]) -> plantrials.Places:
        """The places of the gang without the ``gone`` jobs, and those of the ``moving`` jobs that would not start
        again on the same nodes; nothing where the gang has no places.
        """
        places, moves = self._tried(gone, moving) or ((), ())
        return places, relocated(self._places, moves) or moves

    def _tried(self, gone: Sequence[str], moving: Sequence[str]) -> plantrials.Places | None:
        view = self._settled if moving else self.view
        mark = view.mark()
        places = plantrials.tried(self._places, view, self._asks, gone, moving)
        view.undo(mark)
        return places

    def may_fit(self, gone: Iterable[str] = ()) -> bool:
        """Whether all nodes together have enough free for the gang, without the ``gone`` jobs."""
        mark = self.view.mark()
        for uid in gone:
            self.leave(uid)
        fits = may_fit(self._places, self.view, self._asks)
        self.view.undo(mark)
        return fits

    def may_ever_fit(self) -> bool:
        """Whether each pod set of the gang alone would fit on the empty nodes."""
        return could_have_places(self._places, self._asks)

    def leave(self, uid: str) -> None:
        """Suppose that a job had nothing on the nodes."""
        leave(self._places, self.view, (uid,))

    @cached_property
    def pods(self) -> list[Ask]:
        """The pods of the gang one by one, the largest first."""
        ordered = sorted(self._asks, key=lambda ask: (-weight(self.view, ask), ask.name))
        return [replace(ask, count=1) for ask in ordered for _ in range(ask.count)]

    def domains(self) -> list[Domain | None]:
        """The domains where the whole gang may be: the domains of the required topology level; [None] for anywhere."""
        levels = {ask.together.required or ask.rules.topology.required for ask in self._asks} - {""}
        if len(levels) != 1:
            return [None]
        [level] = levels
        labels = (node.labels.get(level) for node in self._places.ledger.nodes.values() if node.uid)
        return [(level, value) for value in sorted({value for value in labels if value is not None})]

    def nodes(self, ask: Ask, domain: Domain | None) -> Iterator[str]:
        """The nodes suitable for a pod, full or not."""
        for name, node in self._places.ledger.nodes.items():
            if (domain is None or node.labels.get(domain[0]) == domain[1]) and self.suits(ask, name):
                yield name

    def suits(self, ask: Ask, node: str) -> bool:
        """Whether a node is suitable for a pod, full or not."""
        slot = self.view.slot(node)
        if slot is None:
            return False
        pinned = pinned_to_nodes(self.view, ask)
        closed = refused(ask.rules, self.view.ledger.classes[slot.group], pinned) is not None
        return not closed and (not pinned or suits(self.view, ask, node))

    def free(self, ask: Ask) -> list[str]:
        """The suitable nodes with enough free resources for a pod, by name."""
        return sorted(name for choice in choices(self.view, ask) for name in choice.names)

    def givers(self, node: str) -> Iterable[str]:
        """Uids of the jobs with something on a node."""
        return jobs_on(self._places, node)

    def nodes_of(self, uid: str) -> list[str]:
        """The nodes on which a job has something."""
        occupants = self._places.ledger.occupants
        return list(dict.fromkeys(occupants[key].node for key in occupants_of(self._places, uid)))

    def room(self, ask: Ask, node: str) -> bool:
        """Whether a node has enough free resources for a pod."""
        slot = self.view.slot(node)
        need = self.view.need(ask, node)
        return slot is not None and need is not None and need.fit(slot.free, sorted(slot.shared.values())) > 0

    def room_without(self, ask: Ask, node: str, uids: Iterable[str]) -> bool:
        """Whether a node has enough free resources for a pod once these jobs are gone."""
        mark = self.view.mark()
        for uid in uids:
            self.leave(uid)
        fits = self.room(ask, node)
        self.view.undo(mark)
        return fits

    def lacks(self, ask: Ask, node: str) -> Vector:
        """The amounts missing on a node for a pod of whole devices; empty where the amounts are not known."""
        slot = self.view.slot(node)
        if slot is None:
            return {}
        group = self.view.ledger.classes[slot.group]
        need, _ = need_of(ask.request, ask.rules, group)
        if need is None:
            return {}
        return {
            group.resources[at]: amount - slot.free[at]
            for at, amount in need.parts
            if slot.free[at] < amount and group.resources[at] in ask.request
        }

    def freed(self, uid: str, node: str) -> Mapping[str, int]:
        """The amounts of a job on a node, without shared devices."""
        freed: Vector = {}
        for key in occupants_of(self._places, uid):
            occupant = self._places.ledger.occupants[key]
            if occupant.node == node:
                add_into(freed, occupant.request, occupant.count)
        return freed

    def shares(self, uid: str) -> bool:
        """Whether a job has shared devices."""
        occupants = self._places.ledger.occupants
        return any(occupants[key].share for key in occupants_of(self._places, uid))

    def sets(
        self, ask: Ask, node: str, here: Sequence[str], best: Option | None, prices: Prices
    ) -> Iterator[Sequence[str]]:
        """Sets of the jobs on a node, the cheapest first, at most MAX_SETS, and only sets that free the missing
        amounts. No set where the best option so far cannot be beaten.
        """
        if best is not None and len(best.uids) == len(here):
            return  # The pod needs every job here gone.
        lacks = {} if any(map(self.shares, here)) else self.lacks(ask, node)
        freed = {uid: self.freed(uid, node) for uid in here}
        if best is not None and lacks and len({tuple(amounts.items()) for amounts in freed.values()}) == 1:
            return  # All jobs here free the same: the best option has the cheapest.
        for uids in islice(cheapest(here, prices.rank, prices.lost), MAX_SETS):
            if all(sum(freed[uid].get(name, 0) for uid in uids) >= amount for name, amount in lacks.items()):
                yield uids

    def put(self, ask: Ask, node: str) -> None:
        """Suppose that a pod were on a node; the pod must fit."""
        need = self.view.need(ask, node)
        assert need is not None, f"{node} has had room just now"
        self.view.take(ask, need, node, 1)


def site_of(
    places: AdmitterState, uid: str, layout: str = "", growth: GrowthOption | None = None, pods: int = 0
) -> Site | None:
    """The nodes that a claimant needs to fit on; None where Muster places no gangs. See ``asks_of_claimant``."""
    if places.placement.strategy is None or uid not in places.gangs:
        return None
    asks = asks_of_claimant(places, uid, growth, pods, layout)
    return Site(places, uid, asks) if asks or growth is None else None
