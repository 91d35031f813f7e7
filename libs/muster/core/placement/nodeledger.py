"""The node ledger: the free resources of every node: allocatable, minus every pod there, minus every held place.

Nodes are grouped: first by the fields that static filters read (a class), then by their free resources (a bucket), so
that a gang is placed by looking at buckets, not at nodes. The groups are plain data, kept in line by every change.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.placement.devices import DEVICE, share_on
from muster.core.placement.matching import asked_labels, names_nodes
from muster.core.placement.mix import Mix
from muster.core.placement.needs import PODS, NodeClass, PodSought, Slot, enter, leave
from muster.events.facts import NodeGone, NodeObserved
from muster.model.placing import ANYWHERE, GPU, HOSTNAME, WHOLE, PodRules, Taint
from muster.model.resources import Vector, add_into

SHOWN = ("cpu", GPU, "memory")
"""The resources that decide how tight a node is."""


class Occupant(Struct):
    """An entry that takes room on a node: a pod, or held places of one shape for future pods."""

    node: str
    namespace: str
    request: Vector
    count: int = 1
    rules: PodRules = ANYWHERE
    devices: list[int] = field(default_factory=list)
    """The shared GPU devices of the pods, pod by pod, where pods take shares."""
    passing: bool = False
    """The occupant belongs to a job, or was bound by muster: the occupant will leave some day."""
    groups: list[str] = field(default_factory=list)
    """The reservation group of each device; a device beyond the list has no group yet."""
    keeps: str = ""
    """The group for which this pod keeps a device from the device plugin; the pod uses no device."""
    owner: str = ""
    """uid of the pod's workload, where known"""
    share: int = 0
    """The share of each device, in parts; set by the ledger for the node."""


class Node(Struct):
    """One node with its occupants. ``uid`` is empty while only the occupants are known."""

    uid: str = ""
    allocatable: Vector = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    schedulable: bool = False
    ready: bool = False
    used: Vector = field(default_factory=dict)
    occupants: dict[str, None] = field(default_factory=dict)
    slot: Slot | None = None
    """The slot of the node in the index; None for a node outside the index."""
    shared: dict[int, int] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)
    """Shared device -> group that shares the device."""
    kept: dict[str, int] = field(default_factory=dict)
    """Group -> number of pods that keep the group's device."""
    idle: int = 0
    """Devices kept for groups without pods: no other pod can use these devices yet."""

    def unused(self) -> list[str]:
        """The groups without pods for which a device is kept."""
        groups = set(self.groups.values())
        return [group for group in self.kept if group not in groups]


class NodeLedger(Struct):
    """Every node, every occupant, and the index over the free resources."""

    nodes: dict[str, Node] = field(default_factory=dict)
    count: int = 0
    """Number of existing nodes."""
    moves: int = 0
    """Counter of changes of nodes and of their occupants."""
    changes: int = 0
    """Counter of changes that may open room: a changed node, or the end of an occupant without an ending charge."""
    occupants: dict[str, Occupant] = field(default_factory=dict)
    """Pods by uid, held places by the name of the hold."""
    namespaces: dict[str, dict[str, None]] = field(default_factory=dict)
    """Namespace -> occupants."""
    owned: dict[str, dict[str, None]] = field(default_factory=dict)
    """uid of a workload -> occupants, where known"""
    averse: dict[str, None] = field(default_factory=dict)
    """Occupants with rules that keep other pods away."""
    classes: dict[str, NodeClass] = field(default_factory=dict)
    asked: dict[str, None] = field(default_factory=dict)
    """Labels used by rules of known pods: these labels make the classes."""
    scale: Vector = field(default_factory=dict)
    """Resource -> largest amount on one node."""
    mix: Mix = field(default_factory=Mix)
    sought: dict[str, PodSought] = field(default_factory=dict)
    """The kinds of pods for which jobs wait to find room"""
    lost: dict[str, None] = field(default_factory=dict)
    """Nodes with occupants that do not exist, or are not known yet."""
    idling: dict[str, None] = field(default_factory=dict)
    """Nodes with a kept device that no pod shares."""

    # --- nodes ------------------------------------------------------------------------------------------------

    def node_observed(self, event: NodeObserved) -> None:
        """A node looks like this now."""
        state = event.node
        node = self.nodes.setdefault(state.ref.name, Node())
        self.count += not node.uid
        self.changes += 1
        self.moves += 1
        self._forget(state.ref.name, node)
        self.lost.pop(state.ref.name, None)
        node.uid, node.allocatable, node.labels = state.ref.uid, state.allocatable, state.labels
        node.taints, node.schedulable, node.ready = state.taints, state.schedulable, state.ready
        self._share_anew(node)
        for name in SHOWN:
            if state.allocatable.get(name, 0) > self.scale.get(name, 0):
                self.scale[name] = state.allocatable[name]
        self._enter(state.ref.name, node)

    def node_gone(self, event: NodeGone) -> None:
        """A node no longer exists; a pod bound to the node stays known until the pod's own end."""
        node = self.nodes.get(event.ref.name)
        if node is None or node.uid != event.ref.uid:
            return
        self._forget(event.ref.name, node)
        self.count -= 1
        self.changes += 1
        self.moves += 1
        if node.occupants:
            self.lost[event.ref.name] = None
            self.nodes[event.ref.name] = Node(
                used=node.used,
                occupants=node.occupants,
                shared=node.shared,
                groups=node.groups,
                kept=node.kept,
                idle=node.idle,
            )
        else:
            del self.nodes[event.ref.name]

    def learn(self, rules: PodRules) -> None:
        """Note the rules of coming pods: nodes that differ by these rules must differ in the index."""
        if rules == ANYWHERE:
            return
        news = [key for key in asked_labels(rules) if key not in self.asked and key != HOSTNAME]
        if not news:
            return
        self.asked |= dict.fromkeys(news)
        for name, node in self.nodes.items():
            if any(key in node.labels for key in news):
                self._forget(name, node)
                self._enter(name, node)

    # --- occupants --------------------------------------------------------------------------------------------

    def settle(self, key: str, occupant: Occupant) -> None:
        """A pod takes room on a node, or places there are held for pods to come."""
        self._take_off(key)
        self.occupants[key] = occupant
        self.namespaces.setdefault(occupant.namespace, {})[key] = None
        if occupant.owner:
            self.owned.setdefault(occupant.owner, {})[key] = None
        if occupant.rules.apart:
            self.averse[key] = None
        node = self.nodes.setdefault(occupant.node, Node())
        node.occupants[key] = None
        occupant.share = min(share_on(occupant.rules, node.labels), DEVICE)
        if not node.uid:
            self.lost[occupant.node] = None
        self._charge(occupant, occupant.count, occupant.devices)

    def hand_on(self, before: str, after: str) -> None:
        """The occupants of one owner pass to the workload of this owner."""
        for key in self.owned.pop(before, {}) if before != after else ():
            self.occupants[key].owner = after
            self.owned.setdefault(after, {})[key] = None

    def evict(self, key: str) -> Occupant | None:
        """An occupant is gone."""
        occupant = self._take_off(key)
        self.changes += occupant is not None and not (occupant.passing and occupant.owner)
        return occupant

    def _take_off(self, key: str) -> Occupant | None:
        occupant = self.occupants.pop(key, None)
        if occupant is None:
            return None
        for index, name in ((self.namespaces, occupant.namespace), (self.owned, occupant.owner)):
            if name or index is self.namespaces:
                del index[name][key]
                if not index[name]:
                    del index[name]
        self.averse.pop(key, None)
        node = self.nodes[occupant.node]
        del node.occupants[key]
        self._charge(occupant, -occupant.count, occupant.devices)
        if not node.uid and not node.occupants:
            del self.nodes[occupant.node], self.lost[occupant.node]
        return occupant

    def thin(self, key: str) -> None:
        """Release one of the places held under a key."""
        occupant = self.occupants[key]
        if occupant.count == 1:
            self._take_off(key)
            return
        per_pod = len(occupant.devices) // occupant.count
        devices = occupant.devices[len(occupant.devices) - per_pod :]
        del occupant.devices[len(occupant.devices) - per_pod :]
        occupant.count -= 1
        self._charge(occupant, -1, devices)

    def _charge(self, occupant: Occupant, times: int, devices: list[int]) -> None:
        self.moves += 1
        node = self.nodes[occupant.node]
        self._leave(occupant.node, node)
        add_into(node.used, occupant.request, times)
        add_into(node.used, {PODS: 1000}, times)
        _share_out(node, devices, occupant.share if times > 0 else -occupant.share)
        if times > 0:
            for device, group in zip(devices, occupant.groups, strict=False):
                node.groups[device] = group
        if occupant.keeps:
            add_into(node.kept, {occupant.keeps: times})
        idle = len(node.unused()) if node.kept else 0
        if idle != node.idle:
            add_into(node.used, {GPU: WHOLE}, idle - node.idle)
            node.idle = idle
            self.idling.pop(occupant.node, None)
            if idle:
                self.idling[occupant.node] = None
        self._enter(occupant.node, node)

    def _share_anew(self, node: Node) -> None:
        """Compute the shares on a node again: the device memory may be new. The node is not in the index."""
        for key in node.occupants:
            occupant = self.occupants[key]
            share = min(share_on(occupant.rules, node.labels), DEVICE)
            if share != occupant.share:
                # At once: a device without any share for a moment would lose its group.
                _share_out(node, occupant.devices, share - occupant.share)
                occupant.share = share

    # --- the index --------------------------------------------------------------------------------------------

    def slot_of(self, node: Node) -> Slot:
        """The free resources of a node, and the node's class."""
        resources = sorted(node.allocatable)
        labels = {key: node.labels[key] for key in sorted(self.asked) if key in node.labels}
        group = repr(
            (resources, labels, [(t.key, t.value, t.effect) for t in node.taints], node.schedulable, node.ready)
        )
        free = [node.allocatable[name] - node.used.get(name, 0) for name in resources]
        if group not in self.classes:
            self.classes[group] = NodeClass(resources, labels, node.taints, node.schedulable, node.ready)
        return Slot(group, free, dict(node.shared))

    def _enter(self, name: str, node: Node) -> None:
        if not node.uid:
            return
        if node.slot is None:
            node.slot = self.slot_of(node)
            enter(self.classes[node.slot.group].empty, _empty(node), name)
        else:
            names = self.classes[node.slot.group].resources
            node.slot.free = [node.allocatable[resource] - node.used.get(resource, 0) for resource in names]
            node.slot.shared = dict(node.shared)
        enter(self.classes[node.slot.group].buckets, node.slot, name)
        self._count(node.slot, 1)

    def _leave(self, name: str, node: Node) -> None:
        if node.slot is not None:
            leave(self.classes[node.slot.group].buckets, node.slot, name)
            self._count(node.slot, -1)

    def _forget(self, name: str, node: Node) -> None:
        """Remove a node from the index: the node's class may change."""
        if node.slot is None:
            return
        self._leave(name, node)
        leave(self.classes[node.slot.group].empty, _empty(node), name)
        if not self.classes[node.slot.group].buckets:
            del self.classes[node.slot.group]
            for sought in self.sought.values():
                sought.needs.pop(node.slot.group, None)
        node.slot = None

    # --- what is sought -----------------------------------------------------------------------------------------

    def seek(self, request: Vector, rules: PodRules, pods: int, line: str) -> str:
        """A line waits for room for ``pods`` pods at once; returns the name of the kind."""
        key = repr((request, rules))
        if key not in self.sought:
            pinned = names_nodes(rules) or any(label not in self.asked for label in asked_labels(rules))
            sought = self.sought[key] = PodSought(request, rules, pinned)
            sought.room = self.room_for(sought)
        self.sought[key].wanted(pods, line)
        return key

    def room_for(self, sought: PodSought) -> int:
        """Number of such pods with room, counted over all nodes."""
        return sum(
            len(bucket.names) * sought.fit(name, group, bucket.free, bucket.shared)
            for name, group in self.classes.items()
            for bucket in group.buckets.values()
        )

    def unseek(self, key: str, pods: int, line: str) -> None:
        """A line waits no longer."""
        self.sought[key].unwanted(pods, line)
        if not self.sought[key].asks:
            del self.sought[key]

    def _count(self, slot: Slot, times: int) -> None:
        """A node with so much left is there, or is there no more."""
        group, shared = self.classes[slot.group], sorted(slot.shared.values()) if self.sought else []
        for sought in self.sought.values():
            sought.room += times * sought.fit(slot.group, group, slot.free, shared)

    def recount(self) -> dict[str, Vector]:
        """{node: resources taken by the occupants}, counted again: for checks."""
        taken: dict[str, Vector] = {}
        for occupant in self.occupants.values():
            used = taken.setdefault(occupant.node, {})
            add_into(used, occupant.request, occupant.count)
            add_into(used, {PODS: 1000}, occupant.count)
        for name, node in self.nodes.items():
            if node.shared or node.idle:
                add_into(taken[name], {GPU: WHOLE}, len(node.shared) + node.idle)
        return taken


def _empty(node: Node) -> Slot:
    """The free resources of a node without occupants."""
    return Slot("", [node.allocatable[name] for name in sorted(node.allocatable)], {})


def _share_out(node: Node, devices: list[int], share: int) -> None:
    """Take a share of each device; a negative share is a release."""
    for device in devices:
        before = node.shared.get(device, DEVICE)
        after = before - share
        add_into(node.used, {GPU: WHOLE}, (after < DEVICE) - (before < DEVICE))
        if after < DEVICE:
            node.shared[device] = after
        else:
            node.shared.pop(device, None)
            node.groups.pop(device, None)
