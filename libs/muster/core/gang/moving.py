"""Who is moved so that a job finds its places: only jobs that find places of their own in the same plan.

Tried are windows of nodes, those first with the least on them that may move: a window grows node by node until the job
fits with everybody gone who may go; then nobody goes who is not needed, and each of the others is placed again beside
the job. A plan is one only if all of them are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.core.gang import planned
from muster.core.gang.asks import asks_of
from muster.core.gang.state import AdmitterState
from muster.core.placement.place import place
from muster.core.placement.view import Ask, View
from muster.events.clearing import Move
from muster.model.places import Placement
from muster.model.placing import GPU
from muster.model.resources import Vector, add_into
from muster.model.strategies import Strategy

TRIES = 256
"""How often places are looked for in one plan."""
WINDOWS = 64
"""From how many nodes windows begin."""

Plan = tuple[tuple[Placement, ...], tuple[Move, ...]]
"""(the places of the job, who is moved where)"""


def plan(
    state: AdmitterState, view: View, asks: Sequence[Ask], candidates: Sequence[str], mode: Strategy
) -> Plan | None:
    """The first plan that gives the job its places and each of those who move theirs; None where none was found.

    ``candidates``: uids, who should be moved first first. ``view``: as it will be when all that is ordered is done.
    """
    return _Search(state, view, asks, mode).found(candidates)


class _Search:
    def __init__(self, state: AdmitterState, view: View, asks: Sequence[Ask], mode: Strategy) -> None:
        self._state, self._view, self._asks, self._mode = state, view, asks, mode
        self._tries = TRIES

    def found(self, candidates: Sequence[str]) -> Plan | None:
        if not self._may_fit():
            return None
        rank = {uid: at for at, uid in enumerate(candidates) if self._is_whole(uid)}
        nodes = self._by_node(rank)
        for start in range(min(len(nodes), WINDOWS)):
            uids: dict[str, None] = {}
            for end in range(start, len(nodes)):
                uids |= dict.fromkeys(nodes[end])
                if self._tries <= 0 or len(uids) > 2 * self._state.placement.moves:
                    break
                chosen = sorted(uids, key=rank.__getitem__)
                if self._fits(chosen):
                    found = self._trimmed(chosen)
                    if found is not None:
                        return found
                    break
        return None

    def _may_fit(self) -> bool:
        """Whether the nodes have as much free in all as the job asks for: moving frees nothing."""
        asked: Vector = {}
        for ask in self._asks:
            add_into(asked, ask.request, ask.count)
        free: Vector = {}
        for name in self._state.ledger.nodes:
            slot = self._view.slot(name)
            if slot is not None:
                group = self._state.ledger.classes[slot.group]
                for resource, left in zip(group.resources, slot.free, strict=True):
                    free[resource] = free.get(resource, 0) + max(left, 0)
                free[GPU] = free.get(GPU, 0) + sum(slot.shared.values())
        return all(free.get(resource, 0) >= amount for resource, amount in asked.items())

    def _is_whole(self, uid: str) -> bool:
        """Whether it has as many pods on nodes as it is placed with again, no more and no less."""
        gang = self._state.gangs.get(uid)
        if gang is None or gang.waits or gang.held or uid in self._state.cleared:
            return False
        occupants = self._state.ledger.occupants
        pods = sum(occupants[key].count for key in planned.occupants_of(self._state, uid))
        return pods > 0 and pods == sum(ask.count for ask in asks_of(self._state, gang))

    def _by_node(self, rank: Mapping[str, int]) -> list[list[str]]:
        """Who may move from each node, the node with the fewest of their pods first, then who should move first."""
        occupants = self._state.ledger.occupants
        on: dict[str, dict[str, int]] = {}
        for uid in rank:
            for key in planned.occupants_of(self._state, uid):
                here = on.setdefault(occupants[key].node, {})
                here[uid] = here.get(uid, 0) + occupants[key].count

        def order(name: str) -> tuple[int, int, str]:
            return sum(on[name].values()), max(rank[uid] for uid in on[name]), name

        return [list(on[name]) for name in sorted(on, key=order)]

    def _fits(self, chosen: Sequence[str]) -> bool:
        """Whether the job finds its places with these gone."""
        self._tries -= 1
        mark = self._view.mark()
        planned.leave(self._state, self._view, chosen)
        short = place(self._view, self._asks, self._mode)
        self._view.undo(mark)
        return short is None

    def _trimmed(self, chosen: list[str]) -> Plan | None:
        """The plan with nobody in it who is not needed; who should be moved last is let go first."""
        for uid in reversed(chosen.copy()):
            rest = [each for each in chosen if each != uid]
            if rest and self._tries > 0 and self._fits(rest):
                chosen = rest
        return self._placed(chosen) if len(chosen) <= self._state.placement.moves else None

    def _placed(self, chosen: Sequence[str]) -> Plan | None:
        """The plan in which exactly these move, if each of them finds its places."""
        state, view, mark = self._state, self._view, self._view.mark()
        before = {uid: _nodes(state, uid) for uid in chosen}
        planned.leave(state, view, chosen)
        places, moves = self._places(self._asks), list[Move]()
        for uid in sorted(chosen, key=lambda uid: (-_size(state, uid), chosen.index(uid))):
            mine = self._places(asks_of(state, state.gangs[uid])) if places is not None else None
            if mine is not None:
                moves.append(Move(uid, before[uid], mine))
        view.undo(mark)
        if places is None or len(moves) < len(chosen):
            return None
        return places, tuple(sorted(moves, key=lambda move: chosen.index(move.uid)))

    def _places(self, asks: Sequence[Ask]) -> tuple[Placement, ...] | None:
        first = len(self._view.taken)
        if place(self._view, asks, self._mode) is not None:
            return None
        return tuple(Placement(each.ask.name, each.node, each.count, each.devices) for each in self._view.taken[first:])


def _nodes(state: AdmitterState, uid: str) -> tuple[str, ...]:
    return tuple(sorted({state.ledger.occupants[key].node for key in planned.occupants_of(state, uid)}))


def _size(state: AdmitterState, uid: str) -> int:
    """Who takes more is placed first."""
    return sum(sum(ask.request.values()) * ask.count for ask in asks_of(state, state.gangs[uid]))
