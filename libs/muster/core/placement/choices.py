"""Where the pods of an ask could go: the nodes, the cost of a choice, and the domain of a topology.

The cost of a choice counts beyond its tightness.

Topology: all pods of a gang, or of a worker group, within one domain of a level (one rack, one zone). A level is a
label of nodes; nodes with equal values are one domain. The required level must hold; the preferred level is tried
first. Of several domains with room, the domain with the least remaining room is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from muster.core.placement.devices import PART
from muster.core.placement.matching import asked_labels, names_nodes, suits_node, suits_volumes
from muster.core.placement.mix import waste
from muster.core.placement.needs import Bucket, NodeClass, PodNeed, Slot, need_of, refused
from muster.core.placement.nodeledger import SHOWN
from muster.core.placement.view import Ask, View, share_devices
from muster.model.places import Shortage
from muster.model.placing import GPU, WHOLE, NodeTerm, PodRules, Requirement, Topology
from muster.model.problem import problem

# --- choices ----------------------------------------------------------------------------------------------------------


LATE = 1 << 62
"""Added to the tightness of a choice whose nodes are to be taken last."""


class BucketChoice(NamedTuple):
    """Nodes of one bucket with room for at least one pod of an ask; compared by tightness, then by name."""

    left: int
    first: str
    group: str
    need: PodNeed
    bucket: Bucket
    names: list[str]

    @property
    def fit(self) -> int:
        """Pods that fit on each node."""
        return self.need.fit(self.bucket.free, self.bucket.shared)


def choices(view: View, ask: Ask) -> list[BucketChoice]:
    """Every bucket with room for a pod of the ask on suitable nodes."""
    pinned = pinned_to_nodes(view, ask)
    suitable: list[BucketChoice] = []
    for key, group in view.ledger.classes.items():
        if refused(ask.rules, group, pinned):
            continue
        need, missing = need_of(ask.request, ask.rules, group)
        if need is None or missing:
            continue
        weights, gpu = _weights(view, group)
        for bucket, names in view.buckets(key):
            free = bucket.free
            for index, amount in need.parts:
                if free[index] < amount:
                    break
            else:
                if need.share and need.fit(free, bucket.shared) <= 0:
                    continue
                suited = [name for name in names if suits(view, ask, name)] if pinned else names
                if suited:
                    left = LATE if key in view.late else 0
                    for index, weight in weights:
                        left += free[index] * weight
                    if bucket.shared:
                        left += sum(bucket.shared) // PART * gpu
                    suitable.append(BucketChoice(left, suited[0], key, need, bucket, suited))
    return suitable


def _weights(view: View, group: NodeClass) -> tuple[list[tuple[int, int]], int]:
    """The weight of each resource: the amount of the largest node weighs the same for all resources."""
    scale = view.ledger.scale
    places = {name: index for index, name in enumerate(group.resources)}
    weights = {name: (1 << 50) // scale[name] for name in SHOWN if scale.get(name)}
    return [(places[name], weight) for name, weight in weights.items() if name in places], weights.get(GPU, 0)


def pinned_to_nodes(view: View, ask: Ask) -> bool:
    """Whether the rules of an ask distinguish nodes of one class."""
    return names_nodes(ask.rules) or any(key not in view.ledger.asked for key in asked_labels(ask.rules))


def suits(view: View, ask: Ask, name: str) -> bool:
    labels = view.ledger.nodes[name].labels
    return suits_node(ask.rules, labels, name) and suits_volumes(ask.rules, labels, name)


def short_of(group: NodeClass, need: PodNeed | None, bucket: Bucket) -> list[str]:
    """The scarce resources on the nodes of a bucket."""
    if need is None:
        return []
    short = [group.resources[index] for index, amount in need.parts if bucket.free[index] < amount]
    if need.share and need.fit(bucket.free, bucket.shared) <= 0 and not short:
        short.append(GPU)
    return short


# --- ranks ------------------------------------------------------------------------------------------------------------


Rank = Callable[[BucketChoice], int]
"""The cost of a choice beyond its tightness: the lower, the better."""


def wasting(view: View) -> Rank:
    """How many more of a node's GPUs would be of no use to the usual requests."""
    mixes = view.mixes
    places: dict[str, dict[str, int]] = {}

    def rank(choice: BucketChoice) -> int:
        need, bucket = choice.need, choice.bucket
        if need.gpu < 0 or (bucket.free[need.gpu] <= 0 and not bucket.shared):
            return 0
        mix = mixes.get(choice.group)
        if mix is None:
            group = view.ledger.classes[choice.group]
            mix = mixes[choice.group] = view.ledger.mix.for_nodes(group.labels, group.taints)
            places[choice.group] = {name: index for index, name in enumerate(group.resources)}
        if not mix:
            return 0
        if choice.group not in places:
            group = view.ledger.classes[choice.group]
            places[choice.group] = {name: index for index, name in enumerate(group.resources)}
        at = places[choice.group]
        return _wasted(*_after(need, bucket), at, mix) - _wasted(bucket.free, bucket.shared, at, mix)

    return rank


def sparing(view: View, main: Ask) -> Rank:
    """Where the places for the largest set shrink least."""

    def rank(choice: BucketChoice) -> int:
        group = view.ledger.classes[choice.group]
        other, _ = need_of(main.request, main.rules, group)
        if other is None or refused(main.rules, group, pinned_to_nodes(view, main)):
            return 0
        return other.fit(choice.bucket.free, choice.bucket.shared) - other.fit(*_after(choice.need, choice.bucket))

    return rank


def _after(need: PodNeed, bucket: Bucket) -> tuple[list[int], list[int]]:
    """The free resources of a bucket's node after one pod."""
    free, shared = list(bucket.free), bucket.shared
    for index, amount in need.parts:
        free[index] -= amount
    if need.share:
        slot = Slot("", free, dict(enumerate(shared)))
        share_devices(slot, need, 1)
        shared = sorted(slot.shared.values())
    return free, shared


def _wasted(free: list[int], shared: list[int], places: dict[str, int], mix: str) -> int:
    cpu = free[places["cpu"]] if "cpu" in places else 0
    memory = free[places["memory"]] if "memory" in places else 0
    return waste(cpu, memory, max(free[places[GPU]], 0) // WHOLE, tuple([rest // PART for rest in shared]), mix)


# --- topology ---------------------------------------------------------------------------------------------------------


MAX_DOMAINS = 64
"""Most domains tried, the tightest first."""

Where = tuple[tuple[str, str], ...]
"""Labels with values: the domains for the pods."""


def within(
    view: View, asks: Sequence[Ask], topology: Topology, attempt: Callable[[Sequence[Ask]], Shortage | None]
) -> Shortage | None:
    """Places for all asks within one domain of each level; ``attempt`` takes places for every ask or for no ask."""
    if not topology.required and not topology.preferred:
        return attempt(asks)
    short: Shortage | None = None
    required = [topology.required] if topology.required else []
    both = [*required, topology.preferred] if topology.preferred else required
    for levels in dict.fromkeys((tuple(both), tuple(required))):
        for where in _domains(view, asks, levels) if levels else ((),):
            mark = view.mark()
            shortage = attempt([_inside(ask, where) for ask in asks])
            if shortage is None:
                return None
            view.undo(mark)
            short = short or shortage
    if not required:
        return short
    return _told(view, asks, topology.required, short)


def _domains(view: View, asks: Sequence[Ask], levels: tuple[str, ...]) -> Iterator[Where]:
    """Domains with room for every ask alone, the tightest first."""
    rooms = [_rooms(view, ask, levels) for ask in asks]
    fitting = [
        (sum(room[where] for room in rooms), where)
        for where in rooms[0]
        if all(room.get(where, 0) >= ask.count for room, ask in zip(rooms, asks, strict=True))
    ]
    yield from (where for _, where in sorted(fitting)[:MAX_DOMAINS])


def _rooms(view: View, ask: Ask, levels: tuple[str, ...]) -> dict[Where, int]:
    """{domain: how many pods of an ask would find a place there}"""
    rooms: dict[Where, int] = {}
    for choice in choices(view, ask):
        for name in choice.names:
            labels = view.ledger.nodes[name].labels
            if all(level in labels for level in levels):
                where = tuple((level, labels[level]) for level in levels)
                rooms[where] = rooms.get(where, 0) + choice.fit
    return rooms


def _inside(ask: Ask, where: Where) -> Ask:
    """The ask, within these domains alone."""
    if not where:
        return ask
    here = tuple(Requirement(level, "In", (value,)) for level, value in where)
    rules: PodRules = ask.rules
    nodes = tuple(replace(term, labels=(*term.labels, *here)) for term in rules.nodes or (NodeTerm(),))
    return replace(ask, rules=replace(rules, nodes=nodes, topology=Topology()))


def _told(view: View, asks: Sequence[Ask], level: str, short: Shortage | None) -> Shortage:
    """The first ask without a domain with room, and the room of the best domain: ``rack r2 has 6 of 8``."""
    for ask in asks:
        rooms = _rooms(view, ask, (level,))
        best = max(rooms, key=lambda where: (rooms[where], where), default=None)
        count = rooms[best] if best is not None else 0
        if count < ask.count or short is None:
            name = level.rpartition("/")[2]
            none = problem("", "domain_none", level=name)
            within = (
                none
                if best is None
                else problem("", "domain_short", level=name, domain=best[0][1], has=count, wants=ask.count)
            )
            return Shortage(ask.name, min(count, ask.count), ask.count, view.ledger.count, within=within)
    name = level.rpartition("/")[2]
    assert short is not None
    return replace(short, within=problem("", "domain_not_for_all", level=name))
