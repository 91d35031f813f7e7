"""Whether labels, taints and ports match: Kubernetes' own rules, one small function each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from muster.model.placing import GPU_MEMORY, HostPort, NodeTerm, PodRules, PodTerm, Requirement, Taint, Toleration

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable")
"""The taint that a cordoned node counts with."""


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether one expression is true for a set of labels."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    left, right = _integer(value), _integer(requirement.values[0] if len(requirement.values) == 1 else None)
    if left is None or right is None:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def _integer(text: str | None) -> int | None:
    if text is None or len(text) > 20:
        return None
    digits = text.removeprefix("-").removeprefix("+") if text[:1] in "+-" else text
    return int(text) if digits.isascii() and digits.isdigit() else None


def selects(selector: Sequence[Requirement] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; None matches nothing."""
    return selector is not None and all(holds(requirement, labels) for requirement in selector)


def any_term(terms: Iterable[NodeTerm], labels: Mapping[str, str], name: str) -> bool:
    """Whether any term matches a node."""
    return any(
        (term.labels or term.names)
        and all(holds(requirement, labels) for requirement in term.labels)
        and all(holds(requirement, {requirement.key: name}) for requirement in term.names)
        for term in terms
    )


def suits_node(rules: PodRules, labels: Mapping[str, str], name: str) -> bool:
    """NodeSelector and required node affinity."""
    wanted = rules.node_labels.items() <= labels.items()
    return wanted and (rules.nodes is None or any_term(rules.nodes, labels, name))


def suits_volumes(rules: PodRules, labels: Mapping[str, str], name: str) -> bool:
    """The node affinity of every volume."""
    return all(any_term(terms, labels, name) for terms in rules.volumes)


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint the pod does not put up with."""
    return next(
        (taint for taint in taints if not any(tolerates(toleration, taint) for toleration in tolerations)), None
    )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return not toleration.key or toleration.key == taint.key
    return toleration.operator in ("", "Equal") and toleration.key == taint.key and toleration.value == taint.value


def term_matches(term: PodTerm, own_namespace: str, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether a term of a pod in ``own_namespace`` means a pod with these labels in ``namespace``."""
    if not term.everywhere and namespace not in (term.namespaces or (own_namespace,)):
        return False
    return selects(term.selector, labels)


def ports_clash(one: Iterable[HostPort], other: Sequence[HostPort]) -> bool:
    """Whether the host ports of two pods exclude each other on one node."""
    return any(
        mine.port == theirs.port
        and mine.protocol == theirs.protocol
        and (mine.ip == theirs.ip or not mine.ip or not theirs.ip)
        for mine in one
        for theirs in other
    )


def asked_labels(rules: PodRules) -> list[str]:
    """The node labels used by nodeSelector, node affinity, volumes and a demand for GPU memory."""
    terms = [*(rules.nodes or ()), *(term for volume in rules.volumes for term in volume)]
    keys = [*rules.node_labels, *(requirement.key for term in terms for requirement in term.labels)]
    keys += [level for level in (rules.topology.required, rules.topology.preferred) if level]
    if rules.gpu_memory:
        keys.append(GPU_MEMORY)
    return sorted(dict.fromkeys(keys))


def names_nodes(rules: PodRules) -> bool:
    """Whether a rule looks at the name of a node."""
    return any(term.names for term in (rules.nodes or ())) or any(
        term.names for volume in rules.volumes for term in volume
    )


def pod_labels_asked(rules: Iterable[PodRules]) -> list[str]:
    """The pod labels used by rules between pods."""
    keys: dict[str, None] = {}
    for pod in rules:
        selectors = [term.selector for term in (*pod.together, *pod.apart)]
        for selector in (*selectors, *(spread.selector for spread in pod.spread)):
            keys |= dict.fromkeys(requirement.key for requirement in selector or ())
    return sorted(keys)
