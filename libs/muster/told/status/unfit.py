"""The jobs with a pod that no node of the cluster can run, even an empty node.

Declared node pools count as nodes. Taints and volumes do not count: they come and go without a change of the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from muster.core.placement.matching import suits_node
from muster.core.placement.needs import PODS, NodeClass, need_of
from muster.model.placing import PodRules
from muster.model.resources import Vector
from muster.model.workload import PodSet, Workload, least
from muster.told.codes.values import Unfit
from muster.told.readmodel.readstate import NodesShown

ALIKE = 0.6
"""The likeness from which a name counts as a misspelling of another name."""
NAMES = 5
"""The most names that a sentence lists."""

_Offer = tuple[str, Vector, dict[str, str]]
"""The name, the amounts and the labels of a node, or of a node to come."""


def unfit(nodes: NodesShown, workload: Workload) -> Unfit | None:
    """The first pods that no node can run; None where a node can run each, and while the nodes are not known.

    O(nodes) for such pods; for other pods a few nodes of the rarest resource are looked at.
    """
    if not nodes.nodes or not nodes.complete:
        return None
    for pods in workload.pod_sets:
        if (
            least((pods,))
            and pods.rules.unsupported is None
            and not any(_runs(pods, *of) for of in _likely(nodes, pods))
        ):
            return _why(nodes, pods)
    return None


def close_names(wanted: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that are spelled alike, the most alike first; all names where none is."""
    known = sorted(names)
    return (*(get_close_matches(wanted, known, n=1, cutoff=ALIKE) or known),)[:NAMES]


def _likely(nodes: NodesShown, pods: PodSet) -> Iterator[_Offer]:
    """The nodes that offer the rarest resource of a pod."""
    having = [nodes.offering.get(name, {}) for name, amount in takes(pods).items() if amount > 0]
    for uid in min(having, key=len, default=nodes.nodes):
        node = nodes.nodes[uid]
        yield node.ref.name, node.allocatable, node.labels
    yield from _pools(nodes)


def _pools(nodes: NodesShown) -> Iterator[_Offer]:
    return (("", pool.allocatable, pool.labels) for pools in nodes.pools.values() for pool in pools if pool.most)


def _all(nodes: NodesShown) -> list[_Offer]:
    return [*((node.ref.name, node.allocatable, node.labels) for node in nodes.nodes.values()), *_pools(nodes)]


def takes(pods: PodSet) -> Vector:
    """The amounts that one pod takes of a node."""
    return pods.request if pods.takes is None else pods.takes


def _runs(pods: PodSet, name: str, amounts: Vector, labels: dict[str, str]) -> bool:
    if any(amounts.get(resource, 0) < amount for resource, amount in takes(pods).items() if amount > 0):
        return False
    resources = sorted(amounts)
    need, _ = need_of(takes(pods), pods.rules, NodeClass(resources, labels, (), True, True))
    if need is None or need.fit([amounts[resource] for resource in resources], []) <= 0:
        return False
    return suits_node(pods.rules, labels, name)


def _why(nodes: NodesShown, pods: PodSet) -> Unfit:
    offers, asked = _all(nodes), takes(pods)
    told = Unfit("together", pods.name, pods.count, len(nodes.nodes), dict(asked))
    offering = {name for name, uids in nodes.offering.items() if name and uids}
    offering |= {name for pools in nodes.pools.values() for pool in pools for name in pool.allocatable}
    for resource in sorted(asked):
        if asked[resource] and resource not in offering:
            offered = close_names(resource, offering - {PODS})
            return Unfit("absent", pods.name, pods.count, len(nodes.nodes), {resource: asked[resource]}, near=offered)
    suited = [offer for offer in offers if suits_node(pods.rules, offer[2], offer[0])]
    if not suited:
        label = next((key for key in sorted(pods.rules.node_labels) if not _has(offers, key, pods.rules)), "")
        wanted = pods.rules.node_labels.get(label, "")
        values = {labels[label] for _, _, labels in offers if label in labels} if label else set[str]()
        named = f"{label}={wanted}" if label else ""
        return Unfit("label", pods.name, pods.count, len(nodes.nodes), label=named, near=close_names(wanted, values))
    for resource in sorted(asked):
        largest = max(amounts.get(resource, 0) for _, amounts, _ in suited)
        if asked[resource] > largest:
            narrowed, one = len(suited) < len(offers), {resource: asked[resource]}
            return Unfit("large", pods.name, pods.count, len(nodes.nodes), one, most=largest, narrowed=narrowed)
    return told


def _has(offers: Iterable[_Offer], key: str, rules: PodRules) -> bool:
    return any(labels.get(key) == rules.node_labels[key] for _, _, labels in offers)
