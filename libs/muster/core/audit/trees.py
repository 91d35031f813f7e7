"""The trees in force, and which leaf a charge counts at there, by the auditor's own reading of their rules."""

from __future__ import annotations

from msgspec import Struct, field

from muster.events.base import Event
from muster.events.decisions import QuotaTreeAccepted, QuotaTreeRemoved
from muster.model.quota import KAI_ROOT, QuotaNode, QuotaTree


class Trees(Struct):
    """The trees in force."""

    by_root: dict[str, QuotaTree] = field(default_factory=dict)
    nodes: dict[str, QuotaNode] = field(default_factory=dict)
    """By path."""
    leaves: dict[str, str] = field(default_factory=dict)
    """namespace -> leaf"""
    changed: int = 0
    """Sequence of the last one that came into force or left it."""

    def note(self, event: Event, seq: int) -> bool:
        """Whether the event puts a tree into force, or takes one out of it."""
        if isinstance(event, QuotaTreeAccepted):
            self.by_root[event.tree.root] = event.tree
        elif isinstance(event, QuotaTreeRemoved):
            self.by_root = {root: tree for root, tree in self.by_root.items() if tree.ref.uid != event.ref.uid}
        else:
            return False
        nodes = [node for tree in self.by_root.values() for node in tree.nodes]
        self.nodes, self.changed = {node.path: node for node in nodes}, seq
        self.leaves = {name: node.path for node in nodes if not node.children for name in node.namespaces}
        return True

    @property
    def move(self) -> bool:
        """Whether a limit moves with the requests."""
        return any(tree.rules.runtime for tree in self.by_root.values())

    def leaf(self, namespace: str, named: str) -> str:
        """Where a tree that comes into force puts a charge; empty where it leaves it."""
        own = self.leaves.get(namespace, "")
        if named.startswith("kai:") and KAI_ROOT in self.by_root:
            queue, _, quota = named[4:].partition("/")
            kai = (path for path in self.nodes if path.startswith(f"{KAI_ROOT}/"))
            found = [path for path in kai if self.nodes[path].name == queue]
            return found[0] if found and not own and not quota and not self.nodes[found[0]].children else ""
        named = named.partition("/")[2] if named.startswith("kai:") else named
        if not named:
            unbound = sorted((root != "root", tree.rules.unbound_queue) for root, tree in self.by_root.items())
            return own or next((path for _, path in unbound if path), "")
        found = [path for path, node in self.nodes.items() if node.name == named and not node.children]
        found = [path for path in found if not path.startswith(f"{KAI_ROOT}/")]
        return own if own in found else found[0] if len(found) == 1 else ""
