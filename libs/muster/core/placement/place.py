"""Places whole gangs, or nothing: every pod of every member set of a decision.

The view is unchanged when a pod finds no place. Pods of one shape are placed together, bucket by bucket: first the
bucket with the least waste for the usual requests, then the tightest (``pack``) or the emptiest (``spread``). For one
shape a placement is found whenever a placement exists. For several shapes a few orders are tried; the last order is
exact for one head and one group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace, nsmallest

from muster.core.placement.affinity import PodAffinity
from muster.core.placement.choices import (
    LATE,
    BucketChoice,
    Rank,
    choices,
    pinned_to_nodes,
    short_of,
    sparing,
    suits,
    wasting,
    within,
)
from muster.core.placement.matching import suits_node, suits_volumes
from muster.core.placement.needs import NodeClass, PodNeed, need_of, refused
from muster.core.placement.view import Ask, View
from muster.model.places import Obstacle, ObstacleCode, Shortage
from muster.model.placing import GPU, WHOLE
from muster.model.strategies import Strategy

MAX_DOMAINS_TRIED = 16
RANKED = 128
"""Number of tightest buckets weighed by waste; the other buckets follow, tightest first."""


def place(view: View, asks: Sequence[Ask], strategy: Strategy = "pack") -> Shortage | None:
    """Take places for all asks, or for no ask; the ask's own strategy overrides ``strategy``."""
    wanted = [ask for ask in asks if ask.count > 0]
    if not wanted:
        return None
    return within(view, wanted, wanted[0].together, lambda inside: _together(view, inside, strategy))


def _together(view: View, wanted: Sequence[Ask], strategy: Strategy) -> Shortage | None:
    first: Shortage | None = None
    for order, rank in _attempts(view, list(wanted)):
        mark, short = view.mark(), None
        for ask in order:
            short = _place_one(view, ask, strategy, rank)
            if short is not None:
                break
        if short is None:
            return None
        view.undo(mark)
        first = first or short
        if len(wanted) == 1:
            break
        alone = next((shortage for ask in wanted if (shortage := _alone(view, ask)) is not None), None)
        if alone is not None:
            return alone
    return first


def _attempts(view: View, asks: list[Ask]) -> Iterator[tuple[list[Ask], Rank | None]]:
    normal = wasting(view)
    hardest = sorted(asks, key=lambda ask: (-weight(view, ask), ask.count, ask.name))
    yield hardest, normal
    if len(asks) < 2:
        return
    main = max(asks, key=lambda ask: (ask.count * weight(view, ask), ask.name))
    rest = [ask for ask in sorted(asks, key=lambda ask: (ask.count, ask.name)) if ask is not main]
    yield [*rest, main], sparing(view, main)
    yield list(reversed(hardest)), normal
    yield list(asks), None


def weight(view: View, ask: Ask) -> int:
    """The part of the largest node taken by one pod, per mille of its scarcest resource; shares count as shares."""
    parts = [
        amount * 1000 // view.ledger.scale[name] for name, amount in ask.request.items() if view.ledger.scale.get(name)
    ]
    share = (ask.rules.share or (WHOLE if ask.rules.gpu_memory else 0)) * ask.rules.devices
    return max([*parts, share * 1000 // max(view.ledger.scale.get(GPU, 0), 1), 1])


def _alone(view: View, ask: Ask) -> Shortage | None:
    """Why an ask would not fit even without the other asks."""
    mark = view.mark()
    short = _place_one(view, ask, "pack", None)
    view.undo(mark)
    return short


# --- one ask ----------------------------------------------------------------------------------------------------


def _place_one(view: View, ask: Ask, strategy: Strategy, rank: Rank | None) -> Shortage | None:
    """Places for all pods of an ask, within one domain where the ask's rules require a domain.

    After a failure some places may be taken.
    """
    return within(view, [ask], ask.rules.topology, lambda inside: _place_set(view, inside[0], strategy, rank))


def _place_set(view: View, ask: Ask, strategy: Strategy, rank: Rank | None) -> Shortage | None:
    strategy = ask.strategy or strategy
    candidates = choices(view, ask)
    affinity = PodAffinity(view, ask) if PodAffinity.concerns(view, ask) else None
    if affinity is not None:
        return _by_rules_between_pods(view, ask, list(_ordered(candidates, rank)), affinity, strategy)
    left = ask.count
    if strategy == "spread":
        left = _deal(view, ask, candidates)
    else:
        for choice in _ordered(candidates, rank):
            fit = choice.fit if left > 1 else 1
            for name in choice.names:
                count = min(fit, left)
                view.take(ask, choice.need, name, count)
                left -= count
                if not left:
                    return None
    return _shortage(view, ask, ask.count - left, None) if left else None


def _ordered(choices: list[BucketChoice], rank: Rank | None) -> Iterator[BucketChoice]:
    """Best first: the tightest choices by waste, then the rest; computed only as far as needed."""
    if rank is None:
        yield from sorted(choices, key=_tightness)
        return
    best = nsmallest(RANKED, choices, key=_tightness) if len(choices) > RANKED else choices
    yield from sorted(best, key=lambda choice: (choice.left >= LATE, rank(choice), choice.left, choice.first))
    if len(choices) > RANKED:
        yield from sorted(choices, key=_tightness)[RANKED:]


def _tightness(choice: BucketChoice) -> tuple[int, str]:
    return choice.left, choice.first


def _deal(view: View, ask: Ask, choices: list[BucketChoice]) -> int:
    """Place one pod at a time, always on the emptiest node; returns the number of pods left over."""
    heap = [(0, -choice.left, name, index) for index, choice in enumerate(choices) for name in choice.names]
    heapify(heap)
    fits = [choice.fit for choice in choices]
    dealt: dict[str, tuple[PodNeed, int]] = {}
    left = ask.count
    while left and heap:
        given, rank, name, index = heap[0]
        left -= 1
        dealt[name] = (choices[index].need, given + 1)
        if given + 1 < fits[index]:
            heapreplace(heap, (given + 1, rank, name, index))
        else:
            heappop(heap)
    for name, (need, count) in dealt.items():
        view.take(ask, need, name, count)
    return left


def refused_by(view: View, ask: Ask, key: str) -> tuple[str, str]:
    """(code, detail) of the ask's own rule against empty nodes of a class; empty where no rule refuses."""
    group, pinned = view.ledger.classes[key], pinned_to_nodes(view, ask)
    closed = refused(ask.rules, group, pinned)
    if closed is not None:
        return closed
    need, missing = need_of(ask.request, ask.rules, group)
    for bucket, names in view.buckets(key):
        if pinned and not any(suits(view, ask, name) for name in names):
            return "node_affinity", ""
        short = missing or short_of(group, need, bucket)
        if short:
            return "insufficient", short[0]
    return "", ""


# --- rules between pods -----------------------------------------------------------------------------------------


def _by_rules_between_pods(
    view: View, ask: Ask, choices: list[BucketChoice], affinity: PodAffinity, strategy: Strategy
) -> Shortage | None:
    """Pod by pod, where rules between pods have a say."""
    spots = [(choice, name) for choice in choices for name in choice.names]
    if strategy == "spread":
        spots.reverse()
    if affinity.unattached and ask.count > 1:
        for domain in _domains(view, ask, spots):
            mark = view.mark()
            if _one_by_one(view, ask, domain, PodAffinity(view, ask)) == ask.count:
                return None
            view.undo(mark)
    fitted = _one_by_one(view, ask, spots, affinity)
    return None if fitted == ask.count else _shortage(view, ask, fitted, affinity)


def _domains(view: View, ask: Ask, spots: list[tuple[BucketChoice, str]]) -> list[list[tuple[BucketChoice, str]]]:
    """For pods with affinity to each other: the domains with room for all pods, tightest first."""
    key = ask.rules.together[0].key
    domains: dict[str, list[tuple[BucketChoice, str]]] = {}
    for spot in spots:
        value = view.ledger.nodes[spot[1]].labels.get(key)
        if value is not None:
            domains.setdefault(value, []).append(spot)
    rooms = {value: sum(choice.fit for choice, _ in inside) for value, inside in domains.items()}
    fitting = sorted((room, value) for value, room in rooms.items() if room >= ask.count)
    return [domains[value] for _, value in fitting[:MAX_DOMAINS_TRIED]]


def _one_by_one(view: View, ask: Ask, spots: list[tuple[BucketChoice, str]], affinity: PodAffinity) -> int:
    """Number of pods placed one by one; a full or finally closed spot is not tried again."""
    open_spots, fitted = list(spots), 0
    while fitted < ask.count:
        closed: list[int] = []
        placed = False
        for index, (choice, name) in enumerate(open_spots):
            obstacle = affinity.obstacle(name)
            if obstacle:
                if obstacle in _FINAL:
                    closed.append(index)
                continue
            view.take(ask, choice.need, name, 1)
            affinity.joined(name)
            fitted += 1
            slot = view.slot(name)
            if slot is None or choice.need.fit(slot.free, sorted(slot.shared.values())) <= 0:
                closed.append(index)
            placed = True
            break
        for index in reversed(closed):
            del open_spots[index]
        if not placed:
            break
    return fitted


_FINAL = frozenset({"ports", "anti_affinity", "existing_anti_affinity", "spread_label"})
"""Obstacles that further placements do not remove."""


# --- reasons --------------------------------------------------------------------------------------------------


def _shortage(view: View, ask: Ask, fitted: int, affinity: PodAffinity | None) -> Shortage:
    """Why no node takes one more pod of the ask, counted over every node."""
    counts: dict[tuple[ObstacleCode, str], int] = {}

    def count(code: ObstacleCode, detail: str, nodes: int) -> None:
        counts[code, detail] = counts.get((code, detail), 0) + nodes

    pinned = pinned_to_nodes(view, ask)
    for key, group in view.ledger.classes.items():
        closed = refused(ask.rules, group, pinned)
        if closed is not None:
            count(*closed, sum(len(names) for _, names in view.buckets(key)))
            continue
        need, missing = need_of(ask.request, ask.rules, group)
        for resource, small in _too_small(view, ask, group, need, missing, pinned).items():
            count("too_small", resource, small)
            count("insufficient", resource, -small)
        for bucket, names in view.buckets(key):
            suited = names
            if pinned:
                suited = [name for name in names if suits_node(ask.rules, view.ledger.nodes[name].labels, name)]
                count("node_affinity", "", len(names) - len(suited))
            short = missing or short_of(group, need, bucket)
            if short:
                for resource in short:
                    count("insufficient", resource, len(suited))
                continue
            for name in suited if pinned or affinity is not None else ():
                if pinned and not suits_volumes(ask.rules, view.ledger.nodes[name].labels, name):
                    count("volume", "", 1)
                elif affinity is not None and (obstacle := affinity.obstacle(name)):
                    count(obstacle, "", 1)
    obstacles = tuple(Obstacle(code, nodes, detail) for (code, detail), nodes in sorted(counts.items()) if nodes > 0)
    return Shortage(ask.name, fitted, ask.count, view.ledger.count, obstacles, unsupported=ask.rules.unsupported)


def _too_small(
    view: View, ask: Ask, group: NodeClass, need: PodNeed | None, missing: list[str], pinned: bool
) -> dict[str, int]:
    """Resource -> number of the class's nodes that suit a pod and are too small even when empty."""
    counts: dict[str, int] = {}
    for bucket in group.empty.values():
        short = missing or short_of(group, need, bucket)
        suited = len(bucket.names)
        if short and pinned:
            suited = sum(suits_node(ask.rules, view.ledger.nodes[name].labels, name) for name in bucket.names)
        for resource in short:
            counts[resource] = counts.get(resource, 0) + suited
    return counts
