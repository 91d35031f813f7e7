"""ElasticQuotaTree (scheduling.sigs.k8s.io/v1beta1) as a fact: texts as written, nothing judged."""

from __future__ import annotations

from msgspec import Struct

from muster.core.objects.meta import PREFIX, Meta, decode, unreadable
from muster.core.objects.podspec import Quantity
from muster.core.quota.trees.rules import KNOWN, RETIRED
from muster.core.quota.trees.treesource import MAX_DEPTH, MAX_NODES
from muster.events.facts import QuotaTreeObserved, TreeNodeSpec

NAMESPACE = "kube-system"
"""The only namespace of trees in force."""

PROFILE = f"{PREFIX}/request-profile"
"""Annotation on the tree: ``ack`` (default) or ``full``."""


MOST_TEXT = {"flavors": 16_000}
"""Characters of an annotation that may be longer than others; a longer text is cut, and refuses the tree."""


class RawNode(Struct, frozen=True):
    name: str = ""
    min: dict[str, Quantity] | None = None
    max: dict[str, Quantity] | None = None
    namespaces: tuple[str, ...] | None = None
    attributes: dict[str, str] | None = None
    children: tuple[RawNode, ...] | None = None


class RawTreeSpec(Struct, frozen=True):
    root: RawNode | None = None


class RawTree(Struct, frozen=True):
    metadata: Meta
    spec: RawTreeSpec | None = None


def read_quota_tree(raw: bytes) -> QuotaTreeObserved:
    """The tree as written. Raises UnreadableError for a tree in another namespace, or too deep or too large."""
    tree: RawTree = decode(raw, RawTree)
    if tree.metadata.namespace != NAMESPACE:
        value = tree.metadata.namespace[:63]
        raise unreadable("metadata.namespace", "tree_elsewhere", value=value, namespace=NAMESPACE)
    if tree.spec is None or tree.spec.root is None:
        raise unreadable("spec" if tree.spec is None else "spec.root", "tree_missing")
    budget = [MAX_NODES]
    return QuotaTreeObserved(
        ref=tree.metadata.ref("ElasticQuotaTree"),
        rv=tree.metadata.rv,
        created=tree.metadata.created,
        root=_spec(tree.spec.root, "spec.root", 1, budget),
        profile=tree.metadata.annotations.get(PROFILE, "")[:40],
        rules={
            name: tree.metadata.annotations[f"{PREFIX}/{name}"][: MOST_TEXT.get(name, 300)]
            for name in (*KNOWN, *RETIRED)
            if f"{PREFIX}/{name}" in tree.metadata.annotations
        },
    )


def _spec(node: RawNode, path: str, depth: int, budget: list[int]) -> TreeNodeSpec:
    budget[0] -= 1
    if depth > MAX_DEPTH:
        raise unreadable(path, "tree_too_deep", most=MAX_DEPTH)
    if budget[0] < 0:
        raise unreadable(path, "tree_too_large", most=MAX_NODES)
    return TreeNodeSpec(
        name=node.name[:300],
        min=_texts(node.min),
        max=_texts(node.max),
        namespaces=node.namespaces or (),
        attributes=node.attributes or {},
        children=tuple(
            _spec(child, f"{path}.children[{index}]", depth + 1, budget)
            for index, child in enumerate(node.children or ())
        ),
    )


def _texts(quantities: dict[str, Quantity] | None) -> dict[str, str]:
    written = {name: text if isinstance(text, str) else repr(text) for name, text in (quantities or {}).items()}
    return dict(sorted(written.items()))
