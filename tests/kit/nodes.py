"""Nodes, pods and asks for tests of placement; and the naive oracle: pod by pod, node by node, every order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kit import facts
from muster.core.placement.matching import (
    ports_clash,
    selects,
    suits_node,
    suits_volumes,
    term_matches,
    untolerated,
)
from muster.core.placement.nodeledger import NodeLedger, Occupant
from muster.core.placement.view import Ask, View
from muster.events.facts import NodeObserved, NodePoolsObserved
from muster.model.keys import Ref
from muster.model.placing import GPU, HOSTNAME, HostPort, PodRules, PodTerm, Requirement, Spread, Taint, Toleration
from muster.model.pools import NodePool
from muster.model.workload import NodeState

GIB = 2**30


def node(
    name: str,
    cpu: int = 4,
    memory: int = 16,
    gpu: int = 0,
    pods: int = 110,
    labels: dict[str, str] | None = None,
    taints: Sequence[Taint] = (),
    schedulable: bool = True,
    ready: bool = True,
    uid: str = "",
) -> NodeObserved:
    allocatable = {"cpu": cpu * 1000, "memory": memory * GIB, "pods": pods * 1000}
    if gpu:
        allocatable[GPU] = gpu * 1000
    return NodeObserved(
        node=NodeState(
            ref=Ref("Node", "", name, uid or f"uid-{name}"),
            rv=facts.next_rv(),
            allocatable=dict(sorted(allocatable.items())),
            schedulable=schedulable,
            ready=ready,
            labels={HOSTNAME: name, **(labels or {})},
            taints=tuple(taints),
        )
    )


ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
POOLS = Ref("ConfigMap", "muster-system", "muster-node-pools", "uid-pools")


def pool(
    name: str,
    most: int,
    cpu: int = 4,
    memory: int = 16,
    gpu: int = 0,
    *,
    taint: str = "",
    wait_s: int = 900,
    provisioning: str = ATOMIC,
) -> NodePool:
    """A node pool whose nodes have the label ``pool``."""
    allocatable = {"cpu": cpu * 1000, "memory": memory * GIB, "pods": 110_000}
    if gpu:
        allocatable[GPU] = gpu * 1000
    key, _, value = taint.partition(":")
    return NodePool(
        name=name,
        most=most,
        allocatable=dict(sorted(allocatable.items())),
        labels={"pool": name},
        taints=(Taint(key, value),) if key else (),
        provisioning="" if provisioning == "unschedulable-pods" else provisioning,
        wait_ms=wait_s * 1000,
    )


def pools(*found: NodePool) -> NodePoolsObserved:
    return NodePoolsObserved(ref=POOLS, rv=facts.next_rv(), pools=tuple(sorted(found, key=lambda each: each.name)))


def ledger(*nodes: NodeObserved) -> NodeLedger:
    found = NodeLedger()
    for each in nodes:
        found.node_observed(each)
    return found


def ask(
    name: str = "worker",
    count: int = 1,
    cpu: int = 1,
    memory: int = 1,
    gpu: int = 0,
    namespace: str = "video",
    rules: PodRules | None = None,
) -> Ask:
    request = {"cpu": cpu * 1000, "memory": memory * GIB}
    if gpu:
        request[GPU] = gpu * 1000
    return Ask(name, count, request, namespace, rules or PodRules())


def apply(found: NodeLedger, view: View, key: str = "") -> None:
    """Fold what a view has taken into its ledger."""
    for index, taken in enumerate(view.taken):
        found.settle(
            f"hold-{key}-{index}",
            Occupant(
                taken.node, taken.ask.namespace, taken.ask.request, taken.count, taken.ask.rules, list(taken.devices)
            ),
        )


# --- the oracle ------------------------------------------------------------------------------------------------


class Naive:
    """Kubernetes' filters read straight from the book: no index, no buckets, no shortcuts."""

    def __init__(self, found: NodeLedger) -> None:
        self.nodes = {name: each for name, each in sorted(found.nodes.items()) if each.uid}
        self.pods: list[tuple[str, str, dict[str, int], PodRules]] = []
        for each in found.occupants.values():
            self.pods += [(each.node, each.namespace, each.request, each.rules)] * each.count

    def fits(self, one: Ask, name: str) -> bool:
        return self.room(one, name) and self.static(one, name) and self.beside(one, name)

    def room(self, one: Ask, name: str) -> bool:
        there = [request for where, _, request, _ in self.pods if where == name]
        total = self.nodes[name].allocatable
        for resource, amount in {**one.request, "pods": 1000}.items():
            used = sum(1000 if resource == "pods" else each.get(resource, 0) for each in there)
            if amount and used + amount > total.get(resource, 0):
                return False
        return True

    def static(self, one: Ask, name: str) -> bool:
        each, rules = self.nodes[name], one.rules
        return (
            each.schedulable
            and each.ready
            and untolerated(each.taints, rules.tolerations) is None
            and suits_node(rules, each.labels, name)
            and suits_volumes(rules, each.labels, name)
        )

    def beside(self, one: Ask, name: str) -> bool:
        labels, rules = self.nodes[name].labels, one.rules
        others = [(self.nodes[w].labels, w, ns, r) for w, ns, _, r in self.pods if w in self.nodes]
        for their_labels, where, namespace, theirs in others:
            if where == name and ports_clash(rules.ports, theirs.ports):
                return False
            for term in rules.apart:
                same = term.key in labels and labels[term.key] == their_labels.get(term.key)
                if same and term_matches(term, one.namespace, namespace, theirs.labels):
                    return False
            for term in theirs.apart:
                same = term.key in labels and labels[term.key] == their_labels.get(term.key)
                if same and term_matches(term, namespace, one.namespace, rules.labels):
                    return False
        return self._together(one, labels, others) and all(
            self._spread(one, each, labels, others) for each in rules.spread
        )

    def _together(self, one: Ask, labels: dict[str, str], others: list) -> bool:
        terms = one.rules.together
        if not terms:
            return True
        if any(term.key not in labels for term in terms):
            return False
        wanted = [
            their for their, _, ns, r in others if all(term_matches(t, one.namespace, ns, r.labels) for t in terms)
        ]
        if not any(term.key in their for their in wanted for term in terms):
            return all(term_matches(term, one.namespace, one.namespace, one.rules.labels) for term in terms)
        return all(any(their.get(term.key) == labels[term.key] for their in wanted) for term in terms)

    def _spread(self, one: Ask, rule: Spread, labels: dict[str, str], others: list) -> bool:
        if rule.key not in labels:
            return False
        eligible = [
            name
            for name, each in self.nodes.items()
            if all(r.key in each.labels for r in one.rules.spread)
            and (not rule.honor_affinity or suits_node(one.rules, each.labels, name))
        ]
        counts = {self.nodes[name].labels[rule.key]: 0 for name in eligible}
        for their, where, namespace, theirs in others:
            if where in eligible and namespace == one.namespace and selects(rule.selector, theirs.labels):
                counts[their[rule.key]] += 1
        least = min(counts.values(), default=0) if len(counts) >= rule.domains else 0
        own = selects(rule.selector, one.rules.labels)
        return counts.get(labels[rule.key], 0) + own - least <= rule.skew

    def put(self, one: Ask, name: str) -> None:
        self.pods.append((name, one.namespace, one.request, one.rules))

    def search(self, asks: Sequence[Ask], budget: int = 200_000) -> bool | None:
        """Whether the pods fit one after the other in some way; None when that takes too long to say."""
        pods = [each for each in asks for _ in range(each.count)]
        self.steps = budget
        try:
            return self._search(pods, 0, "")
        except TimeoutError:
            return None

    def _search(self, pods: list[Ask], index: int, after: str) -> bool:
        if index == len(pods):
            return True
        one = pods[index]
        plain = not (one.rules.together or one.rules.apart or one.rules.spread)
        start = after if plain and index and pods[index - 1] is one else ""
        for name in self.nodes:
            self.steps -= 1
            if self.steps < 0:
                raise TimeoutError
            if name >= start and self.fits(one, name):
                self.put(one, name)
                if self._search(pods, index + 1, name):
                    return True
                self.pods.pop()
        return False


# --- chance -----------------------------------------------------------------------------------------------------

ZONE = "zone"


def some_nodes(rng: Random, most: int = 6) -> list[NodeObserved]:
    found = []
    for index in range(rng.randint(1, most)):
        labels = {ZONE: rng.choice("abc")} if rng.random() < 0.9 else {}
        if rng.random() < 0.3:
            labels["disk"] = rng.choice(("ssd", "hdd"))
        found.append(
            node(
                f"n{index}",
                cpu=rng.choice((2, 4, 8, 16)),
                memory=rng.choice((8, 32)),
                gpu=rng.choice((0, 2, 4)),
                pods=rng.choice((3, 110, 110)),
                labels=labels,
                taints=(Taint("gpu", "yes"),) if rng.random() < 0.2 else (),
                schedulable=rng.random() > 0.1,
                ready=rng.random() > 0.05,
            )
        )
    return found


def some_rules(rng: Random, *, pod_rules: bool) -> PodRules:
    app = rng.choice(("a", "b"))
    rules: dict[str, object] = {"labels": {"app": app}}
    if rng.random() < 0.1:
        rules["node_labels"] = {"disk": "ssd"}
    if rng.random() < 0.5:
        rules["tolerations"] = (Toleration("gpu", "Exists"),)
    if pod_rules:
        key = rng.choice((ZONE, HOSTNAME))
        of = (Requirement("app", "In", (rng.choice(("a", "b")),)),)
        match rng.randint(0, 4):
            case 0:
                rules["together"] = (PodTerm(key, of),)
            case 1:
                rules["apart"] = (PodTerm(key, of),)
            case 2:
                rules["spread"] = (Spread(key, rng.randint(1, 2), of, domains=rng.choice((1, 1, 2))),)
            case 3:
                rules["ports"] = (HostPort(80),)
            case _:
                pass
    return PodRules(**rules)


def some_ask(rng: Random, name: str, *, pod_rules: bool = False, most: int = 5) -> Ask:
    return ask(
        name,
        count=rng.randint(1, most),
        cpu=rng.choice((1, 1, 2, 3)),
        memory=rng.choice((1, 2, 4)),
        gpu=rng.choice((0, 0, 1, 2)),
        rules=some_rules(rng, pod_rules=pod_rules),
    )
