"""ElasticQuotaTrees as a source of the quota model: an object becomes a quota tree in force, or a list of broken rules.

Rules (ACK capacity scheduling). Per node min <= max. The children's min sum up to no more than the parent's. The root's
min equals its max. Namespaces are on leaves only, each on one leaf. Siblings differ in name. Two nodes with one name in
different branches are allowed: every node is keyed by its full path. A list of flavors is a max of 0 of all others.

A tree with a broken rule is refused as a whole, and the version before stays in force: half of a tree is not what its
author meant.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import msgspec
from msgspec import Struct, field, structs

from muster.core.objects.meta import FLAVORS, PREFIX, not_decoded
from muster.core.quota.trees.capacity import NodesGive, SeenNode, following, follows
from muster.core.quota.trees.rules import RuleError, read_flavors, read_rules, reapplied, yes_or_no
from muster.core.stage import leave_out
from muster.events.base import Cause, Event
from muster.events.decisions import QuotaTreeAccepted, QuotaTreeRejected, QuotaTreeRemoved
from muster.events.envelope import MAX_BYTES
from muster.events.facts import ObjectGone, QuotaTreeGone, QuotaTreeObserved, TreeNodeSpec
from muster.events.registry import encode
from muster.model.problem import FieldProblem, problem
from muster.model.quota import COUNTED, NO_GPUS, ROOT, Flavor, Gpus, QuotaNode, QuotaTree, flavor_of, of_flavor
from muster.model.resources import (
    MAX_RESOURCES,
    QuantityError,
    Vector,
    add_into,
    is_resource_name,
    parse_quantity,
    positive,
    texts,
)
from muster.model.strategies import PLACEMENT, StrategyError, strategies, strategies_text
from muster.model.text import shorten

# --- tree -------------------------------------------------------------------------------------------------------------


MAX_DEPTH = 32
MAX_NODES = 10_000
MAX_PATH = 1_000
"""Characters of a full path: every node, and every event about a node, carries the path."""
MAX_TREE_BYTES = MAX_BYTES - 32 * 1024
"""An accepted tree must fit into one commit."""
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
PROFILES = ("ack", "full")
LEND_LIMIT = "alibabacloud.com/lendlimit"
WEIGHTS = ("muster.dev/weight", "quota.scheduling.koordinator.sh/shared-weight")
"""Attributes of a node: its share among its siblings, where the tree divides by weight; the first attribute counts."""
PREEMPTS = "muster.dev/preempt-lower-priority"
"""Attribute of a node: ``true`` or ``false`` for the node and its subtree, before the value above or on the tree."""
REAPPLIED = "muster.dev/reapplied"
"""Attribute with the same reach, for a manifest applied again; read by deploy/policies, and only checked here."""


def read_tree(observed: QuotaTreeObserved) -> tuple[QuotaTree, list[FieldProblem]]:
    """The tree of an object, and every broken rule in the order of the nodes.

    The tree may be put in force only when the list is empty.
    """
    rules, wrong = read_rules(observed.rules)
    named = [error.values.get("key") for error in wrong]
    flavors = read_flavors(observed.rules.get("flavors", "")) if f"{PREFIX}/flavors" not in named else ()
    reader = _TreeReader(weighted=rules.runtime == "weight", flavors=flavors, follows=rules.capacity == "nodes")
    reader.visit(observed.root, ROOT, depth=1, preempts=rules.preempt_lower_priority)
    profile = observed.profile or PROFILES[0]
    if profile not in PROFILES:
        reader.broken(problem(ROOT, "profile_unknown", value=profile, choices=PROFILES))
    for error in wrong:
        reader.broken(structs.replace(error, path=ROOT))
    if rules.unbound_queue and not any(n.path == rules.unbound_queue and not n.children for n in reader.nodes):
        reader.broken(problem(ROOT, "unbound_queue_no_leaf", queue=rules.unbound_queue))
    tree = QuotaTree(ref=observed.ref, nodes=tuple(reader.nodes), profile=profile, rules=rules, flavors=flavors)
    violations = [error for of_node in reader.violations for error in of_node]
    if not violations and (size := len(encode(tree))) > MAX_TREE_BYTES:
        violations.append(problem(ROOT, "tree_bytes", count=size, most=MAX_TREE_BYTES))
    return tree, violations


def as_written(tree: QuotaTree) -> TreeNodeSpec:
    """The tree as an object would have it: what is supposed of a tree in force passes :func:`read_tree` again."""
    nodes = {node.path: node for node in tree.nodes}

    def spec(path: str) -> TreeNodeSpec:
        node = nodes[path]
        weight = json.dumps(texts(node.weight)) if node.weight else ""
        return TreeNodeSpec(
            name=node.name,
            min=texts(node.guaranteed),
            max=texts(node.limit),
            namespaces=node.namespaces,
            attributes=({WEIGHTS[0]: weight} if weight else {})
            | ({FLAVORS: ",".join(node.flavors)} if node.flavors else {}),
            children=tuple(spec(child) for child in node.children),
        )

    return spec(tree.root)


class _TreeReader:
    def __init__(self, *, weighted: bool, flavors: tuple[Flavor, ...] = (), follows: bool = False) -> None:
        self.weighted = weighted
        self.follows = follows
        """Whether the amounts of the root are those of the nodes."""
        self.flavors = tuple(flavor.name for flavor in flavors)
        self.parts = {of_flavor(name, flavor.name): name for flavor in flavors for name in flavor.resources}
        """{resource of a flavor: its total}"""
        self.nodes: list[QuotaNode] = []
        self.violations: list[list[FieldProblem]] = [[]]
        """Per node, in the order of the nodes."""
        self.leaf_of: dict[str, str] = {}

    def broken(self, error: FieldProblem, place: int = 0) -> None:
        """Add a rule broken by node ``place``."""
        self.violations[place].append(error)

    def visit(
        self, spec: TreeNodeSpec, path: str, depth: int, *, preempts: bool, above: tuple[str, ...] = ()
    ) -> Vector:
        """Append the node and its subtree; returns the node's min. ``preempts``, ``above``: the value, and the flavors,
        of the nodes above.
        """
        place = len(self.nodes)
        if place:
            self.violations.append([])
        guaranteed = self._with_totals(self._amounts(path, "min", spec.min, place), least=path != ROOT)
        limit = self._amounts(path, "max", spec.max, place)
        if path == ROOT:
            guaranteed, limit = self._of_root(spec, guaranteed, limit)
        above = self._flavors(path, spec.attributes, place, above)
        limit = self._of_listed(limit, above) if path != ROOT else limit
        for name in sorted(guaranteed.keys() & limit.keys()):
            if guaranteed[name] > limit[name]:
                over = problem(path, "min_over_max", resource=name, least=guaranteed[name], most=limit[name])
                self.broken(over, place)
        if path == ROOT:
            self._check_root(guaranteed, limit, spec)
        self._check_namespaces(spec, path, place)
        paths = tuple(f"{path}/{child.name}" for child in spec.children)
        kept = self._kept(path, spec.attributes, guaranteed, place)
        weight = self._weight(path, spec.attributes, place) if self.weighted else {}
        preempts = self._preempts(path, spec.attributes, place, above=preempts)
        self._reapplied(path, spec.attributes, place)
        laid_out = self._placement(path, spec.attributes, place)
        node = QuotaNode(path, guaranteed, limit, spec.namespaces, paths, kept, weight, preempts, placement=laid_out)
        self.nodes.append(structs.replace(node, flavors=above) if above else node)
        if depth >= MAX_DEPTH and spec.children:
            self.broken(problem(path, "tree_too_deep", most=MAX_DEPTH), place)
            return guaranteed
        total: Vector = {}
        siblings = Counter(paths)
        for child, child_path in zip(spec.children, paths, strict=True):
            if len(self.nodes) >= MAX_NODES:
                self.broken(problem(path, "tree_too_large", most=MAX_NODES), place)
                return guaranteed
            self._check_name(child.name, child_path, siblings, place)
            if len(child_path) > MAX_PATH:
                self.broken(problem(shorten(child_path, 300), "path_too_long", most=MAX_PATH), place)
                continue
            add_into(total, self.visit(child, child_path, depth + 1, preempts=preempts, above=above))
        written = total.keys() & COUNTED if path == ROOT and self.follows else total.keys()
        for name in sorted(written):
            if total[name] > guaranteed.get(name, 0):
                own = guaranteed.get(name, 0)
                over = problem(path, "children_over_parent", resource=name, total=total[name], own=own)
                self.broken(over, place)
        return guaranteed

    def _amounts(self, path: str, which: str, texts: dict[str, str], place: int) -> Vector:
        amounts: Vector = {}
        if len(texts) > MAX_RESOURCES:
            self.broken(problem(path, "names_many_resources", which=which, count=len(texts), most=MAX_RESOURCES), place)
            return amounts
        for name in sorted(texts):
            plain = name.removeprefix("requests.").removeprefix("limits.")
            if plain != name or name.startswith("count/"):
                self.broken(problem(path, "names_as_quota", which=which, value=name[:64], resource=plain[:64]), place)
                continue
            if "@" in name and name not in self.parts:
                self.broken(problem(path, "flavor_unknown", which=which, value=name[:300]), place)
                continue
            if name not in self.parts and not is_resource_name(name):
                self.broken(problem(path, "names_no_resource", which=which, value=name[:64]), place)
                continue
            try:
                amounts[name] = parse_quantity(texts[name], name)
            except QuantityError as err:
                self.broken(problem(path, "bad_amount", err.problem, which=which, resource=name), place)
        return amounts

    def _with_totals(self, amounts: Vector, *, least: bool = False) -> Vector:
        """The amounts, with the sum over the flavors of each resource that has amounts by flavor and no total.
        ``least``: or a total below the sum, which the amounts by flavor would overbook.
        """
        sums: Vector = {}
        for name in amounts.keys() & self.parts.keys():
            add_into(sums, {self.parts[name]: amounts[name]})
        sums = {name: whole for name, whole in sums.items() if name not in amounts or (least and whole > amounts[name])}
        return dict(sorted((amounts | sums).items())) if sums else amounts

    def _of_listed(self, limit: Vector, listed: tuple[str, ...]) -> Vector:
        """The max of a node with a list of flavors: nothing of the types of the same resources that it leaves out."""
        told_apart = {self.parts[name] for name in self.parts if flavor_of(name) in listed}
        none = {name: 0 for name in self.parts if self.parts[name] in told_apart and flavor_of(name) not in listed}
        return dict(sorted((limit | none).items())) if none else limit

    def _of_root(self, spec: TreeNodeSpec, guaranteed: Vector, limit: Vector) -> tuple[Vector, Vector]:
        """(min, max) of the root. Where the root follows the nodes: none as yet of each resource that any node of the
        tree names, and by flavor; the counted resources as written.
        """
        if not self.follows:
            return guaranteed, self._with_totals(limit)
        names, below = {*self.parts, *self.parts.values()}, [spec]
        while below:
            node = below.pop()
            names.update(*(self._amounts(ROOT, "min", texts, 0) for texts in (node.min, node.max)))
            below += node.children
        named = dict.fromkeys(sorted(names - COUNTED), 0)
        least, most = ({name: part[name] for name in part if name in COUNTED} for part in (guaranteed, limit))
        return named | least, named | most

    def _flavors(self, path: str, attributes: dict[str, str], place: int, above: tuple[str, ...]) -> tuple[str, ...]:
        """The flavors that the work of the node may use, in order: its own list, or else its parent's."""
        text = attributes.get(FLAVORS, "")
        names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
        for name in names:
            if name not in self.flavors:
                self.broken(problem(path, "flavor_unknown", which=FLAVORS, value=name[:300]), place)
        return names or above

    def _kept(self, path: str, attributes: dict[str, str], guaranteed: Vector, place: int) -> Vector:
        """The part of a node's min that the node does not lend: min - lend limit, for the resources in the lend
        limit.
        """
        text = attributes.get(LEND_LIMIT, "")
        if not text:
            return {}
        try:
            limits = msgspec.json.decode(text, type=dict[str, str | int])
        except msgspec.DecodeError as err:
            self.broken(problem(path, "lend_limit_no_object", not_decoded(str(err)), key=LEND_LIMIT), place)
            return {}
        lent = self._amounts(path, "lendlimit", {name: str(value) for name, value in limits.items()}, place)
        return positive({name: guaranteed.get(name, 0) - amount for name, amount in lent.items()})

    def _weight(self, path: str, attributes: dict[str, str], place: int) -> Vector:
        """A node's share among its siblings: one number for all resources limited by the root, or a number for each
        resource.
        """
        name = next((name for name in WEIGHTS if attributes.get(name)), "")
        if not name:
            return {}
        try:
            weights = msgspec.json.decode(attributes[name], type=str | int | dict[str, str | int])
        except msgspec.DecodeError:
            weights = attributes[name]
        if not isinstance(weights, dict):
            weights = dict.fromkeys(sorted(self.nodes[0].limit.keys() - COUNTED) if self.nodes else (), weights)
        return self._amounts(path, name, {resource: str(value) for resource, value in weights.items()}, place)

    def _preempts(self, path: str, attributes: dict[str, str], place: int, *, above: bool) -> bool:
        """Whether the node evicts work of lower priority: its own setting, or else its parent's."""
        try:
            return yes_or_no(attributes[PREEMPTS]) if attributes.get(PREEMPTS) else above
        except RuleError as err:
            self.broken(problem(path, "attribute", err.problem, key=PREEMPTS), place)
            return above

    def _placement(self, path: str, attributes: dict[str, str], place: int) -> str:
        """The node's own placement strategies for the pods of its jobs."""
        try:
            return strategies_text(strategies(attributes.get(PLACEMENT, "")))
        except StrategyError as err:
            self.broken(problem(path, "attribute", err.problem, key=PLACEMENT), place)
            return ""

    def _reapplied(self, path: str, attributes: dict[str, str], place: int) -> None:
        try:
            reapplied(attributes.get(REAPPLIED) or "refuse")
        except RuleError as err:
            self.broken(problem(path, "attribute", err.problem, key=REAPPLIED), place)

    def _check_root(self, guaranteed: Vector, limit: Vector, spec: TreeNodeSpec) -> None:
        for name in sorted((guaranteed.keys() | limit.keys()) - COUNTED):
            low, high = guaranteed.get(name), limit.get(name)
            unread = (name in spec.min and name not in guaranteed) or (name in spec.max and name not in limit)
            if low != high and not unread:
                self.broken(_root_differs(name, low, high))

    def _check_namespaces(self, spec: TreeNodeSpec, path: str, place: int) -> None:
        if spec.namespaces and spec.children:
            self.broken(problem(path, "namespace_on_inner_node", namespace=spec.namespaces[0]), place)
        for namespace in spec.namespaces:
            other = self.leaf_of.setdefault(namespace, path)
            if not _NAMESPACE.fullmatch(namespace):
                self.broken(problem(path, "not_a_namespace", value=namespace[:64]), place)
            elif other != path:
                self.broken(problem(path, "namespace_twice", namespace=namespace, other=other), place)

    def _check_name(self, name: str, path: str, siblings: Counter[str], place: int) -> None:
        if not name or "/" in name or len(name) > 253 or not name.isprintable():
            self.broken(problem(shorten(path, 300), "not_a_node_name", value=shorten(name, 64)), place)
        elif siblings.pop(path, 1) > 1:
            self.broken(problem(path, "name_twice", name=name), place)


def _root_differs(resource: str, low: int | None, high: int | None) -> FieldProblem:
    """The error of a root whose min of a resource is not its max."""
    if low is None and high is not None:
        return problem(ROOT, "root_min_missing", resource=resource, most=high)
    if high is None and low is not None:
        return problem(ROOT, "root_max_missing", resource=resource, least=low)
    return problem(ROOT, "root_min_max", resource=resource, least=low or 0, most=high or 0)


def promised(tree: QuotaTree) -> dict[str, None]:
    """The resources with a min at any leaf, sorted, or else the resources with a limit anywhere; counted resources
    excluded.
    """
    least = {name for leaf in leaves(tree) for name, amount in leaf.guaranteed.items() if amount}
    names = least - COUNTED or {name for node in tree.nodes for name in node.limit} - COUNTED
    return dict.fromkeys(sorted(names))


def guaranteed(tree: QuotaTree) -> dict[str, None]:
    """The resources that some node below the root is guaranteed, sorted; with a resource, its amounts by flavor."""
    below = (node for node in tree.nodes if "/" in node.path)
    names = {name for node in below for name, least in node.guaranteed.items() if least}
    parts = {of_flavor(name, flavor.name) for flavor in tree.flavors for name in flavor.resources if name in names}
    return dict.fromkeys(sorted(names | parts))


def pooled(tree: QuotaTree) -> dict[str, None]:
    """The paths between root and leaves with a guarantee: any leaf below may be owed this guarantee."""
    inner = (node for node in tree.nodes if node.children and "/" in node.path and not tree.by_shares)
    return {node.path: None for node in inner if any(node.guaranteed.values())}


def leaves(tree: QuotaTree) -> Iterator[QuotaNode]:
    """The nodes without children, in tree order."""
    return (node for node in tree.nodes if not node.children)


# --- treesource -------------------------------------------------------------------------------------------------------


class TreeSource(Struct):
    """The observed ElasticQuotaTrees."""

    OBSERVED: ClassVar[type[Event]] = QuotaTreeObserved
    GONE: ClassVar[type[ObjectGone]] = QuotaTreeGone
    SHARDS: ClassVar[tuple[str, ...]] = ("elasticquotatrees",)

    trees: dict[str, QuotaTreeObserved] = field(default_factory=dict)
    """uid -> newest state"""
    causes: dict[str, Cause] = field(default_factory=dict)
    """uid -> the newest fact about the tree, while the tree exists or is in force"""
    deleted: Cause = Cause(0, 0)
    """The newest fact about a deleted tree."""
    refused: dict[str, None] = field(default_factory=dict)
    """Uids of trees whose newest judged version breaks a rule."""
    gpus: Gpus = NO_GPUS
    resized: Cause = Cause(0, 0)
    """The newest fact that changed ``gpus`` or ``capacity``."""
    capacity: dict[str, NodesGive] = field(default_factory=dict)
    """uid of a tree whose root follows the nodes -> their amounts"""

    def observed(self, event: QuotaTreeObserved, cause: Cause) -> None:
        """A tree exists in this state."""
        self.trees[event.ref.uid], self.causes[event.ref.uid] = event, cause

    def follow(self, uid: str, nodes: Iterable[SeenNode]) -> None:
        """Count the nodes for a tree whose root follows the nodes."""
        self.capacity.pop(uid, None)
        rules = self.trees[uid].rules
        if rules.get("capacity") == "nodes":
            gives = self.capacity[uid] = NodesGive()
            for node in nodes:
                gives.add(_flavors_of(rules), node)

    def node(self, before: SeenNode | None, after: SeenNode | None, cause: Cause) -> None:
        """A node has changed; None: it does not exist."""
        for uid, gives in self.capacity.items():
            flavors, self.resized = _flavors_of(self.trees[uid].rules), cause
            if before is not None:
                gives.add(flavors, before, -1)
            if after is not None:
                gives.add(flavors, after)

    def gone(self, uid: str, cause: Cause) -> None:
        leave_out(uid, self.trees, self.capacity, self.refused)
        self.causes[uid] = self.deleted = cause

    def nodes_give(self, total: Vector, ready: Vector, gpus: Gpus, cause: Cause) -> None:
        """Set the GPUs by which amounts of memory are counted; the root of such a tree declares its own total."""
        if gpus != self.gpus:
            self.gpus, self.resized = gpus, cause

    def judged(self, uid: str, *, accepted: bool) -> None:
        """A version of a tree is judged."""
        if accepted:
            self.refused.pop(uid, None)
        elif uid in self.trees:
            self.refused[uid] = None

    def removed(self, uid: str) -> None:
        self.causes.pop(uid, None)

    def decisions_due(
        self, trees: Mapping[str, QuotaTree], judged: Mapping[str, int]
    ) -> Iterator[QuotaTreeAccepted | QuotaTreeRejected | QuotaTreeRemoved]:
        """Accept the oldest tree that breaks no rule, and reject each other tree while the accepted tree exists."""
        force = trees.get(ROOT)
        if force is not None and force.ref.uid not in self.trees:
            yield QuotaTreeRemoved(cause=self.causes.get(force.ref.uid, self.deleted), ref=force.ref)
            return
        owner = force.ref.uid if force is not None else None
        for observed in sorted(self.trees.values(), key=lambda tree: (tree.created, tree.ref.name, tree.ref.uid)):
            uid, cause = observed.ref.uid, self.causes[observed.ref.uid]
            if judged.get(uid) == observed.rv:
                if owner == uid and force is not None and uid not in self.refused and self._is_resized(force):
                    yield QuotaTreeAccepted(cause=self.resized, tree=self._sized(force), rv=observed.rv)
                continue
            if owner is not None and owner != uid:
                other = self.trees[owner].ref
                rule = problem(ROOT, "one_tree", tree=other.key)
                yield QuotaTreeRejected(cause=cause, ref=observed.ref, rv=observed.rv, violations=(rule,))
                continue
            tree, broken = read_tree(observed)
            if broken:
                yield QuotaTreeRejected(cause=cause, ref=observed.ref, rv=observed.rv, violations=tuple(broken[:100]))
            else:
                owner = uid
                yield QuotaTreeAccepted(cause=cause, tree=self._sized(tree), rv=observed.rv)

    def _is_resized(self, tree: QuotaTree) -> bool:
        """Whether the nodes have other GPUs, or other amounts, than a tree in force says."""
        gives = self.capacity.get(tree.ref.uid)
        return tree.gpus != self.gpus or (gives is not None and not follows(tree, gives))

    def _sized(self, tree: QuotaTree) -> QuotaTree:
        sized = structs.replace(tree, gpu_memory=self.gpus.largest, gpu_products=self.gpus.products)
        gives = self.capacity.get(tree.ref.uid)
        return sized if gives is None else following(sized, gives)


def _flavors_of(rules: Mapping[str, str]) -> tuple[Flavor, ...]:
    """The flavors of a tree; none where the annotation is unreadable: such a tree is refused."""
    try:
        return read_flavors(rules.get("flavors", ""))
    except RuleError:
        return ()
