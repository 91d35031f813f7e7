"""From an ElasticQuotaTree as written to a quota tree in force, or every rule it breaks.

Rules (ACK capacity scheduling): per node min <= max; the children's min sum up to no more than the parent's;
the root's min equals its max; namespaces stand on leaves only, each on one leaf; siblings differ in name.
Two nodes of one name in different branches are fine: everything is keyed by full path.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.events.facts import QuotaTreeObserved, TreeNodeSpec
from muster.model.quota import QuotaNode, QuotaTree, Violation
from muster.model.resources import QuantityError, Vector, add_into, format_quantity, parse_quantity

ROOT = "root"
MAX_DEPTH = 32
MAX_NODES = 10_000
PROFILES = ("ack", "full")


def read_tree(observed: QuotaTreeObserved) -> tuple[QuotaTree, list[Violation]]:
    """The tree an object describes, and every rule it breaks in the order of its nodes.

    The tree may be put in force only when the list is empty.
    """
    reader = _Reader()
    reader.visit(observed.root, ROOT, depth=1)
    profile = observed.profile or PROFILES[0]
    if profile not in PROFILES:
        reader.broken(
            ROOT, "profile", f"profile {profile!r} is unknown; write one of {', '.join(PROFILES)} or leave it out"
        )
    tree = QuotaTree(ref=observed.ref, nodes=tuple(reader.nodes), profile=profile)
    return tree, reader.violations


class _Reader:
    def __init__(self) -> None:
        self.nodes: list[QuotaNode] = []
        self.violations: list[Violation] = []
        self.leaf_of: dict[str, str] = {}

    def broken(self, path: str, rule: str, detail: str) -> None:
        self.violations.append(Violation(path, rule, detail))

    def visit(self, spec: TreeNodeSpec, path: str, depth: int) -> Vector:
        """Append the node and its subtree; returns the node's min."""
        guaranteed = self._amounts(path, "min", spec.min)
        limit = self._amounts(path, "max", spec.max)
        for name in sorted(guaranteed.keys() & limit.keys()):
            if guaranteed[name] > limit[name]:
                self.broken(
                    path,
                    "min_over_max",
                    f"min {name} {format_quantity(guaranteed[name], name)} is over max "
                    f"{format_quantity(limit[name], name)}; lower min or raise max",
                )
        if path == ROOT:
            self._check_root(guaranteed, limit, spec)
        self._check_namespaces(spec, path)
        place = len(self.nodes)
        paths = tuple(f"{path}/{child.name}" for child in spec.children)
        self.nodes.append(QuotaNode(path, guaranteed, limit, spec.namespaces, paths))
        if depth >= MAX_DEPTH and spec.children:
            self.broken(path, "depth", f"the tree is deeper than {MAX_DEPTH} levels")
            return guaranteed
        total: Vector = {}
        for child, child_path in zip(spec.children, paths, strict=True):
            self._check_name(child.name, child_path, paths)
            if len(self.nodes) > MAX_NODES:
                self.broken(path, "size", f"the tree has more than {MAX_NODES} nodes")
                return guaranteed
            add_into(total, self.visit(child, child_path, depth + 1))
        for name in sorted(total):
            if total[name] > guaranteed.get(name, 0):
                self.violations.insert(
                    self._violations_before(place),
                    Violation(
                        path,
                        "children_over_parent",
                        f"the children's min {name} sum up to {format_quantity(total[name], name)}, over this node's "
                        f"min {format_quantity(guaranteed.get(name, 0), name)}; lower theirs or raise this one",
                    ),
                )
        return guaranteed

    def _violations_before(self, place: int) -> int:
        """Where a violation of node ``place`` belongs so that the list follows the order of the nodes."""
        later = {node.path for node in self.nodes[place + 1 :]}
        return next((i for i, found in enumerate(self.violations) if found.path in later), len(self.violations))

    def _amounts(self, path: str, which: str, texts: dict[str, str]) -> Vector:
        amounts: Vector = {}
        for name in sorted(texts):
            try:
                amounts[name] = parse_quantity(texts[name], name)
            except QuantityError as err:
                self.broken(path, "quantity", f"{which} {name}: {err}")
        return amounts

    def _check_root(self, guaranteed: Vector, limit: Vector, spec: TreeNodeSpec) -> None:
        for name in sorted(guaranteed.keys() | limit.keys()):
            low, high = guaranteed.get(name), limit.get(name)
            if low != high and not (name in spec.min and name not in guaranteed):
                shown = [format_quantity(v, name) if v is not None else "absent" for v in (low, high)]
                self.broken(
                    ROOT,
                    "root_min_max",
                    f"the root's min and max must be equal, and are {shown[0]} and {shown[1]} for {name}",
                )

    def _check_namespaces(self, spec: TreeNodeSpec, path: str) -> None:
        if spec.namespaces and spec.children:
            self.broken(
                path,
                "namespace_on_inner_node",
                f"namespace {spec.namespaces[0]} stands on a node with children; move it to a leaf",
            )
        for namespace in spec.namespaces:
            other = self.leaf_of.setdefault(namespace, path)
            if other != path:
                self.broken(path, "namespace_twice", f"namespace {namespace} is already on {other}; name it once")

    def _check_name(self, name: str, path: str, siblings: tuple[str, ...]) -> None:
        if not name or "/" in name or len(name) > 253:
            shown = name if len(name) <= 64 else name[:64] + "…"
            self.broken(path[:300], "name", f"{shown!r} is not a node name: 1 to 253 characters without a slash")
        elif siblings.count(path) > 1 and not any(v.path == path and v.rule == "name_twice" for v in self.violations):
            self.broken(path, "name_twice", f"two children of one node are called {name}; rename one")


def leaves(tree: QuotaTree) -> Iterator[QuotaNode]:
    """The nodes without children, in tree order."""
    return (node for node in tree.nodes if not node.children)
