"""The ledger with the places taken so far by a decision: the state gets these places only by the fold."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from muster.core.placement.devices import DEVICE, pick
from muster.core.placement.needs import PODS, Bucket, PodNeed, PodSought, Slot, enter, leave, need_of
from muster.core.placement.nodeledger import NodeLedger, Occupant
from muster.model.placing import GPU, WHOLE, PodRules, Topology
from muster.model.resources import Vector
from muster.model.strategies import Strategy

FEW = 16
"""Up to this part of the names, removing names one by one is faster than a scan of all names."""


class Ask(Struct, frozen=True):
    """``count`` pods of one shape, for one member set of a gang."""

    name: str
    """Distinguishes the sets of one decision."""
    count: int
    request: Vector
    namespace: str = ""
    rules: PodRules = PodRules()
    together: Topology = Topology()
    """The domain for all sets of the gang; the same in every ask of a decision."""
    strategy: Strategy | None = None
    """The layout of the pods; None: the general layout."""


class Taken(Struct, frozen=True):
    """``count`` pods of an ask on a node; ``devices``: the shared GPU devices, pod by pod."""

    ask: Ask
    node: str
    count: int
    devices: tuple[int, ...] = ()

    def devices_of(self, index: int) -> tuple[int, ...]:
        """The devices of one pod; empty for a pod without shares."""
        devices = len(self.devices) // self.count
        return self.devices[index * devices : (index + 1) * devices]


class Kept(NamedTuple):
    """The room kept on a node."""

    free: list[int]
    """Amounts, in the order of the class's resources."""
    shares: dict[int, int]
    """Number of a shared GPU device -> kept parts."""
    whole: bool = False
    """The room suffices for all pods: the pods have room now."""


class View:
    """Takes places on a scratch copy of the nodes; :meth:`mark` and :meth:`undo` for all or nothing."""

    def __init__(self, ledger: NodeLedger) -> None:
        self.ledger = ledger
        self.taken: list[Taken] = []
        self._slots: dict[str, Slot] = {}
        self._left: dict[tuple[str, str], dict[str, None]] = {}
        """(class, bucket) -> changed nodes of the bucket."""
        self._own: dict[str, dict[str, Bucket]] = {}
        self._journal: list[tuple[str, Slot | None]] = []
        self.late: frozenset[str] = frozenset()
        """Classes of nodes that are taken only as a last resort."""
        self.mixes: dict[str, str] = {}
        """Class -> the mix for this class, for scores."""

    def slot(self, node: str) -> Slot | None:
        """The free resources of a node; None for a node that does not exist."""
        slot = self._slots.get(node)
        if slot is not None:
            return slot
        known = self.ledger.nodes.get(node)
        return known.slot if known is not None and known.uid else None

    def need(self, ask: Ask, node: str) -> PodNeed | None:
        """The need of a pod on a node; None where the node lacks a requested resource altogether."""
        slot = self.slot(node)
        return need_of(ask.request, ask.rules, self.ledger.classes[slot.group])[0] if slot is not None else None

    def room_for(self, sought: PodSought) -> int:
        """Upper bound of the pods of a kind with room beside the taken and kept places."""
        needs = ((key, need) for key, need in sought.needs.items() if need is not None)
        return sum(
            len(names) * max(need.fit(bucket.free, bucket.shared), 0)
            for key, need in needs
            for bucket, names in self.buckets(key)
        )

    def buckets(self, group: str) -> Iterator[tuple[Bucket, list[str]]]:
        """Buckets of a class, each with the names of its nodes."""
        for key, bucket in self.ledger.classes[group].buckets.items():
            left = self._left.get((group, key))
            if not left:
                yield bucket, bucket.names
            elif len(left) < len(bucket.names):
                yield bucket, _without(bucket.names, left)
        for bucket in self._own.get(group, {}).values():
            yield bucket, list(bucket.names)  # taking places changes it

    def take(self, ask: Ask, need: PodNeed, node: str, count: int) -> None:
        """Place ``count`` pods of an ask on a node: the pods must fit."""
        before = self.slot(node)
        assert before is not None, f"{node} is no node"
        after = Slot(before.group, list(before.free), dict(before.shared))
        for index, amount in need.parts:
            after.free[index] -= amount * count
        devices = tuple(share_devices(after, need, count)) if need.share else ()
        self._move(node, after)
        self.taken.append(Taken(ask, node, count, devices))

    def keep(self, ask: Ask, node: str, count: int, devices: Sequence[int] = (), frees: Sequence[int] = ()) -> Kept:
        """Keep the free part of the room of ``count`` pods from all others, even if the part is too small for one pod.

        ``devices``: the devices for the pods' shares, pod by pod. ``frees``: shared devices that other pods leave, for
        pods with whole devices. Returns the kept room, for ``unkeep``.
        """
        before = self.slot(node)
        need = self.need(ask, node)
        if before is None or need is None:
            return Kept([], {})
        after, shares = Slot(before.group, list(before.free), dict(before.shared)), dict[int, int]()
        for index, amount in need.parts:
            after.free[index] -= min(amount * count, max(after.free[index], 0))
        kept = [was - left for was, left in zip(before.free, after.free, strict=True)]
        for device in devices if need.share and need.gpu >= 0 else ():
            if device not in after.shared:
                if after.free[need.gpu] < WHOLE:
                    continue
                after.free[need.gpu] -= WHOLE
            left = after.shared.get(device, DEVICE)
            part = min(need.share, max(left, 0))
            after.shared[device] = left - part
            shares[device] = shares.get(device, 0) + part
        if frees and need.gpu >= 0 and not need.share:
            lacks = (dict(need.parts).get(need.gpu, 0) * count - kept[need.gpu]) // WHOLE
            for device in [number for number in frees if after.shared.get(number, 0) > 0][: max(lacks, 0)]:
                shares[device], after.shared[device] = after.shared[device], 0
        self._move(node, after)
        whole = all(kept[index] >= amount * count for index, amount in need.parts)
        return Kept(kept, shares, whole and (not need.share or sum(shares.values()) >= need.share * len(devices)))

    def unkeep(self, node: str, kept: Kept) -> None:
        """Free the room kept on a node."""
        before = self.slot(node)
        if before is not None and kept.free:
            after = Slot(before.group, list(map(sum, zip(before.free, kept.free, strict=True))), dict(before.shared))
            for device, share in kept.shares.items():
                self._return(after, device, share)
            self._move(node, after)

    def close(self, node: str) -> None:
        """Nothing more is placed on a node."""
        before = self.slot(node)
        if before is not None:
            self._move(node, Slot(before.group, [min(left, 0) for left in before.free]))

    def give(self, occupant: Occupant) -> None:
        """Suppose that an occupant has left its node: all pods, with their whole and shared devices."""
        node = occupant.node
        before = self.slot(node)
        if before is None:
            return
        resources = self.ledger.classes[before.group].resources
        after = Slot(before.group, list(before.free), dict(before.shared))
        for index, name in enumerate(resources):
            after.free[index] += occupant.count * (1000 if name == PODS else occupant.request.get(name, 0))
        for device in occupant.devices if occupant.share and GPU in resources else ():
            self._return(after, device, occupant.share)
        self._move(node, after)

    def _return(self, slot: Slot, device: int, share: int) -> None:
        """Free a share of a device; a device without shares is whole again."""
        left = slot.shared.pop(device, DEVICE) + share
        if left < DEVICE:
            slot.shared[device] = left
        else:
            slot.free[self.ledger.classes[slot.group].resources.index(GPU)] += WHOLE

    def onto(self, ledger: NodeLedger) -> View:
        """The same taken and kept places, on a ledger with all of these nodes in their present state here."""
        copy = View(ledger)
        for node, slot in self._slots.items():
            copy._move(node, Slot(slot.group, list(slot.free), dict(slot.shared)))
        copy.taken = list(self.taken)
        return copy

    def mark(self) -> tuple[int, int]:
        """Where to undo to."""
        return len(self._journal), len(self.taken)

    def undo(self, mark: tuple[int, int]) -> None:
        """Release everything taken since the mark."""
        while len(self._journal) > mark[0]:
            node, before = self._journal.pop()
            now = self._slots.pop(node)
            leave(self._own[now.group], now, node)
            if before is None:
                base = self.ledger.nodes[node].slot
                assert base is not None
                del self._left[base.group, base.key][node]
            else:
                self._slots[node] = before
                enter(self._own[before.group], before, node)
        del self.taken[mark[1] :]

    def _move(self, node: str, after: Slot) -> None:
        before = self._slots.get(node)
        own = self._own.setdefault(after.group, {})
        if before is None:
            base = self.ledger.nodes[node].slot
            assert base is not None
            self._left.setdefault((base.group, base.key), {})[node] = None
        else:
            leave(own, before, node)
        self._journal.append((node, before))
        self._slots[node] = after
        enter(own, after, node)


def _without(names: list[str], left: Mapping[str, None]) -> list[str]:
    """Sorted names without some names: a few names are removed without a scan."""
    if len(left) * FEW > len(names):
        return [name for name in names if name not in left]
    rest = names.copy()
    for name in left:
        del rest[bisect_left(rest, name)]
    return rest


def share_devices(slot: Slot, need: PodNeed, count: int) -> list[int]:
    """Take shares of devices for pods that fit; returns the devices, pod by pod."""
    whole = max(slot.free[need.gpu], 0) // WHOLE
    taken = [device for devices in pick(slot.shared, whole, need.share, need.devices, count) for device in devices]
    for device in taken:
        if device not in slot.shared:
            slot.free[need.gpu] -= WHOLE
        slot.shared[device] = slot.shared.get(device, DEVICE) - need.share
    return taken
