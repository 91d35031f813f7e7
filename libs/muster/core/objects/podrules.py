"""Where a pod may run, read from its spec: only what can forbid a node; preferences are left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from muster.core.objects.meta import Int32, Int64
from muster.model.placing import (
    ANYWHERE,
    HostPort,
    NodeTerm,
    Operator,
    PodRules,
    PodTerm,
    Requirement,
    Spread,
    Taint,
    Toleration,
    Topology,
)
from muster.model.problem import FieldProblem, problem

_OPERATORS: dict[str, Operator] = {
    "In": "In",
    "NotIn": "NotIn",
    "Exists": "Exists",
    "DoesNotExist": "DoesNotExist",
    "Gt": "Gt",
    "Lt": "Lt",
}
_CLOSING = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods away; PreferNoSchedule does not."""


REQUIRED_LEVEL = "kai.scheduler/topology-required-placement"
PREFERRED_LEVEL = "kai.scheduler/topology-preferred-placement"


class RawRequirement(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class RawNodeTerm(Struct, frozen=True, rename="camel"):
    match_expressions: tuple[RawRequirement, ...] | None = None
    match_fields: tuple[RawRequirement, ...] | None = None


class RawNodeSelector(Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[RawNodeTerm, ...] | None = None


class RawNodeAffinity(Struct, frozen=True, rename="camel"):
    required_during_scheduling_ignored_during_execution: RawNodeSelector | None = None


class RawLabelSelector(Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[RawRequirement, ...] | None = None


class RawPodTerm(Struct, frozen=True, rename="camel"):
    label_selector: RawLabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: RawLabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class RawPodAffinity(Struct, frozen=True, rename="camel"):
    required_during_scheduling_ignored_during_execution: tuple[RawPodTerm, ...] | None = None


class RawAffinity(Struct, frozen=True, rename="camel"):
    node_affinity: RawNodeAffinity | None = None
    pod_affinity: RawPodAffinity | None = None
    pod_anti_affinity: RawPodAffinity | None = None


class RawSpread(Struct, frozen=True, rename="camel"):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: RawLabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


class RawToleration(Struct, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class RawTaint(Struct, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str = ""


class RawPort(Struct, frozen=True, rename="camel"):
    name: str | None = None
    container_port: Int64 = 0
    host_port: Int64 = 0
    host_ip: str | None = field(name="hostIP", default=None)
    protocol: str | None = None


class RawClaim(Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class RawVolume(Struct, frozen=True, rename="camel"):
    persistent_volume_claim: RawClaim | None = None


class RawRules(Struct, frozen=True):
    """The parts of a pod spec that say where it may run."""

    node_selector: dict[str, str] | None = None
    tolerations: tuple[RawToleration, ...] | None = None
    affinity: RawAffinity | None = None
    topology_spread_constraints: tuple[RawSpread, ...] | None = None
    volumes: tuple[RawVolume, ...] | None = None
    ports: tuple[RawPort, ...] = ()
    host_network: bool = False


_NOTHING = RawRules()


def rules_of(raw: RawRules, labels: dict[str, str]) -> PodRules:
    """The rules of a pod with these labels; the labels themselves are not in them."""
    if raw == _NOTHING:
        return ANYWHERE
    affinity = raw.affinity or RawAffinity()
    wanted = affinity.node_affinity or RawNodeAffinity()
    required = wanted.required_during_scheduling_ignored_during_execution
    together = (affinity.pod_affinity or RawPodAffinity()).required_during_scheduling_ignored_during_execution or ()
    apart = (affinity.pod_anti_affinity or RawPodAffinity()).required_during_scheduling_ignored_during_execution or ()
    return PodRules(
        node_labels=dict(sorted((raw.node_selector or {}).items())),
        tolerations=tuple(_toleration(each) for each in raw.tolerations or ()),
        nodes=None if required is None else node_terms(required),
        claims=tuple(
            each.persistent_volume_claim.claim_name[:253]
            for each in raw.volumes or ()
            if each.persistent_volume_claim is not None
        ),
        together=tuple(_pod_term(each, labels) for each in together),
        apart=tuple(_pod_term(each, labels) for each in apart),
        spread=tuple(
            _spread(each, labels)
            for each in raw.topology_spread_constraints or ()
            if each.when_unsatisfiable == "DoNotSchedule"
        ),
        ports=tuple(_ports(raw)),
        unsupported=next((found for each in together + apart if (found := _unsupported(each)) is not None), None),
    )


def topology_of(annotations: Mapping[str, str]) -> Topology:
    """The levels within one domain of which pods are to be, as KAI Scheduler's annotations name them: node labels."""
    return Topology(annotations.get(REQUIRED_LEVEL, "")[:317], annotations.get(PREFERRED_LEVEL, "")[:317])


def node_terms(selector: RawNodeSelector) -> tuple[NodeTerm, ...]:
    """The terms of a node selector: one of them has to match."""
    return tuple(
        NodeTerm(
            labels=tuple(_requirements(term.match_expressions)),
            names=tuple(_requirements(term.match_fields)),
        )
        for term in selector.node_selector_terms or ()
    )


def taints_of(raw: tuple[RawTaint, ...] | None) -> tuple[Taint, ...]:
    """The taints that keep pods away, sorted."""
    found = [Taint(each.key, each.value or "", each.effect) for each in raw or () if each.effect in _CLOSING]
    return tuple(sorted(found, key=lambda each: (each.key, each.value, each.effect)))


def _toleration(raw: RawToleration) -> Toleration:
    return Toleration(raw.key or "", raw.operator or "Equal", raw.value or "", raw.effect or "")


def _requirements(raw: Iterable[RawRequirement] | None) -> Iterator[Requirement]:
    for each in raw or ():
        operator = _OPERATORS.get(each.operator)
        if operator is None:  # an operator of the future: as kube-scheduler, what cannot be read matches nothing
            yield Requirement(each.key, "In", ())
        else:
            yield Requirement(each.key, operator, each.values or ())


def selector_of(raw: RawLabelSelector | None) -> tuple[Requirement, ...] | None:
    """A label selector; None, which selects nothing, where there is none."""
    if raw is None:
        return None
    exact = [Requirement(key, "In", (value,)) for key, value in sorted((raw.match_labels or {}).items())]
    return (*exact, *_requirements(raw.match_expressions))


def _pod_term(raw: RawPodTerm, labels: dict[str, str]) -> PodTerm:
    selector = selector_of(raw.label_selector)
    if selector is not None:
        same = [Requirement(key, "In", (labels[key],)) for key in raw.match_label_keys or () if key in labels]
        other = [Requirement(key, "NotIn", (labels[key],)) for key in raw.mismatch_label_keys or () if key in labels]
        selector = (*selector, *same, *other)
    everywhere = raw.namespace_selector is not None and selector_of(raw.namespace_selector) == ()
    return PodTerm(raw.topology_key, selector, () if everywhere else raw.namespaces or (), everywhere)


def _unsupported(raw: RawPodTerm) -> FieldProblem | None:
    if raw.namespace_selector is None or selector_of(raw.namespace_selector) == ():
        return None
    return problem("", "affinity_by_namespace_label", key=raw.topology_key[:63])


def _spread(raw: RawSpread, labels: dict[str, str]) -> Spread:
    selector = selector_of(raw.label_selector)
    if selector is not None:
        selector += tuple(Requirement(key, "In", (labels[key],)) for key in raw.match_label_keys or () if key in labels)
    return Spread(
        key=raw.topology_key,
        skew=max(raw.max_skew, 1),
        selector=selector,
        domains=max(raw.min_domains or 1, 1),
        honor_affinity=raw.node_affinity_policy != "Ignore",
        honor_taints=raw.node_taints_policy == "Honor",
    )


def _ports(raw: RawRules) -> Iterator[HostPort]:
    for each in raw.ports:
        port = each.host_port or (each.container_port if raw.host_network else 0)
        if 0 < port < 65536:
            ip = each.host_ip or ""
            yield HostPort(port, each.protocol or "TCP", "" if ip in ("0.0.0.0", "::") else ip[:64])  # noqa: S104
