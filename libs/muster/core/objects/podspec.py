"""The request of one pod of a template, and the nodes allowed by the pod spec.

Allowed nodes: only rules that can forbid a node; preferences are left out.

Request: Kubernetes' rule per resource is max(sum of containers and sidecars, largest ordinary init container together
with the sidecars started before). Pod-level requests replace the maximum where set; overhead is added. The request of a
container is its own request, else its limit, resource by resource (the API server does not default templates).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from muster.core.objects.meta import Int32, Int64, UnreadableError, unreadable
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
from muster.model.resources import (
    MAX_AMOUNT,
    MAX_RESOURCES,
    QuantityError,
    Vector,
    add_into,
    highest,
    is_resource_name,
    parse_quantity,
)

# --- podrules ---------------------------------------------------------------------------------------------------------


_OPERATORS: dict[str, Operator] = {
    "In": "In",
    "NotIn": "NotIn",
    "Exists": "Exists",
    "DoesNotExist": "DoesNotExist",
    "Gt": "Gt",
    "Lt": "Lt",
}
_CLOSING = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods away; PreferNoSchedule keeps no pod away."""


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
    """The parts of a pod spec that restrict the nodes."""

    node_selector: dict[str, str] | None = None
    tolerations: tuple[RawToleration, ...] | None = None
    affinity: RawAffinity | None = None
    topology_spread_constraints: tuple[RawSpread, ...] | None = None
    volumes: tuple[RawVolume, ...] | None = None
    ports: tuple[RawPort, ...] = ()
    host_network: bool = False


_NOTHING = RawRules()


def rules_of(raw: RawRules, labels: dict[str, str]) -> PodRules:
    """The rules of a pod with these labels; the result has no labels."""
    if raw == _NOTHING:
        return ANYWHERE
    affinity = raw.affinity or RawAffinity()
    wanted = affinity.node_affinity or RawNodeAffinity()
    required = wanted.required_during_scheduling_ignored_during_execution
    together = (affinity.pod_affinity or RawPodAffinity()).required_during_scheduling_ignored_during_execution or ()
    apart = (affinity.pod_anti_affinity or RawPodAffinity()).required_during_scheduling_ignored_during_execution or ()
    return PodRules(
        node_labels=dict(sorted((raw.node_selector or {}).items())),
        tolerations=tuple(_toleration(toleration) for toleration in raw.tolerations or ()),
        nodes=None if required is None else node_terms(required),
        claims=tuple(
            volume.persistent_volume_claim.claim_name[:253]
            for volume in raw.volumes or ()
            if volume.persistent_volume_claim is not None
        ),
        together=tuple(_pod_term(term, labels) for term in together),
        apart=tuple(_pod_term(term, labels) for term in apart),
        spread=tuple(
            _spread(spread, labels)
            for spread in raw.topology_spread_constraints or ()
            if spread.when_unsatisfiable == "DoNotSchedule"
        ),
        ports=tuple(_ports(raw)),
        unsupported=next((wrong for term in together + apart if (wrong := _unsupported(term)) is not None), None),
    )


def topology_of(annotations: Mapping[str, str]) -> Topology:
    """The topology levels from KAI Scheduler's annotations: node labels whose values are the domains for the pods."""
    return Topology(annotations.get(REQUIRED_LEVEL, "")[:317], annotations.get(PREFERRED_LEVEL, "")[:317])


def node_terms(selector: RawNodeSelector) -> tuple[NodeTerm, ...]:
    """The terms of a node selector: at least one term has to match."""
    return tuple(
        NodeTerm(
            labels=tuple(_requirements(term.match_expressions)),
            names=tuple(_requirements(term.match_fields)),
        )
        for term in selector.node_selector_terms or ()
    )


def taints_of(raw: tuple[RawTaint, ...] | None) -> tuple[Taint, ...]:
    """The taints that keep pods away, sorted."""
    taints = [Taint(taint.key, taint.value or "", taint.effect) for taint in raw or () if taint.effect in _CLOSING]
    return tuple(sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect)))


def _toleration(raw: RawToleration) -> Toleration:
    return Toleration(raw.key or "", raw.operator or "Equal", raw.value or "", raw.effect or "")


def _requirements(raw: Iterable[RawRequirement] | None) -> Iterator[Requirement]:
    for expression in raw or ():
        operator = _OPERATORS.get(expression.operator)
        if operator is None:  # an operator of the future: as kube-scheduler, what cannot be read matches nothing
            yield Requirement(expression.key, "In", ())
        else:
            yield Requirement(expression.key, operator, expression.values or ())


def selector_of(raw: RawLabelSelector | None) -> tuple[Requirement, ...] | None:
    """A label selector; None for a missing selector: None selects nothing."""
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
    for declared in raw.ports:
        port = declared.host_port or (declared.container_port if raw.host_network else 0)
        if 0 < port < 65536:
            ip = declared.host_ip or ""
            yield HostPort(port, declared.protocol or "TCP", "" if ip in ("0.0.0.0", "::") else ip[:64])  # noqa: S104


# --- podspec ----------------------------------------------------------------------------------------------------------


Quantity = str | int | float
"""A quantity in manifests: ``"500m"``, ``4`` or ``0.5``."""


class Resources(Struct, frozen=True):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class Container(Struct, frozen=True, rename="camel"):
    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: tuple[RawPort, ...] | None = None
    image: object = None
    command: object = None
    args: object = None
    """A displayed field is read in any shape: no job is refused for a displayed field."""


class Gate(Struct, frozen=True):
    name: str = ""


class SchedulingGroup(Struct, frozen=True, rename="camel"):
    pod_group_name: str | None = None


class PodSpec(Struct, frozen=True, rename="camel"):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: Resources | None = None
    priority_class_name: str | None = None
    priority: Int32 | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[RawToleration, ...] | None = None
    affinity: RawAffinity | None = None
    topology_spread_constraints: tuple[RawSpread, ...] | None = None
    volumes: tuple[RawVolume, ...] | None = None
    host_network: bool | None = None
    scheduling_gates: tuple[Gate, ...] | None = None
    scheduling_group: SchedulingGroup | None = None
    resource_claims: object = None
    """Dynamic resource allocation, of any shape: no device of a claim is counted."""


class TemplateMeta(Struct, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(Struct, frozen=True):
    metadata: TemplateMeta | None = None
    spec: PodSpec = field(default_factory=PodSpec)

    @property
    def annotations(self) -> dict[str, str]:
        return (self.metadata.annotations if self.metadata is not None else None) or {}

    @property
    def labels(self) -> dict[str, str]:
        return (self.metadata.labels if self.metadata is not None else None) or {}


_POD_LEVEL = ("cpu", "memory")


def container_names(spec: PodSpec) -> list[str]:
    """The names of the containers of a pod, init containers included."""
    return [container.name for container in (*spec.containers, *(spec.init_containers or ()))]


def names_resource(spec: PodSpec, name: str) -> bool:
    """Whether any container of a pod names a resource, even with the amount 0."""
    resources = (container.resources or Resources() for container in (*spec.containers, *(spec.init_containers or ())))
    return any(
        name in (container_resources.limits or {}) or name in (container_resources.requests or {})
        for container_resources in resources
    )


def pod_rules(spec: PodSpec, labels: dict[str, str]) -> PodRules:
    """Where a pod of this spec with these labels may run."""
    containers = (
        *spec.containers,
        *(container for container in spec.init_containers or () if container.restart_policy == "Always"),
    )
    return rules_of(
        RawRules(
            node_selector=spec.node_selector or None,
            tolerations=spec.tolerations or None,
            affinity=spec.affinity,
            topology_spread_constraints=spec.topology_spread_constraints or None,
            volumes=tuple(volume for volume in spec.volumes or () if volume.persistent_volume_claim is not None)
            or None,
            ports=tuple(
                port
                for container in containers
                for port in container.ports or ()
                if port.host_port or spec.host_network
            ),
            host_network=bool(spec.host_network),
        ),
        labels,
    )


def pod_request(spec: PodSpec, path: str, *, extra: Vector | None = None) -> Vector:
    """The request of one pod, base units, sorted by resource; ``extra``: one container added by an operator.

    ``path``: the path of the spec, for errors. Raises UnreadableError for an invalid quantity.
    """
    running: Vector = dict(extra or {})
    sidecars: Vector = {}
    peak: Vector = {}
    for index, container in enumerate(spec.init_containers or ()):
        asks = container_request(container.resources, f"{path}.initContainers[{index}]")
        if container.restart_policy == "Always":
            add_into(sidecars, asks)
        else:
            moment = dict(asks)
            add_into(moment, sidecars)
            peak = highest(peak, moment)
        _check_width(peak, f"{path}.initContainers[{index}]")
        _check_width(sidecars, f"{path}.initContainers[{index}]")
    for index, container in enumerate(spec.containers):
        add_into(running, container_request(container.resources, f"{path}.containers[{index}]"))
        _check_width(running, f"{path}.containers[{index}]")
    add_into(running, sidecars)
    total = highest(running, peak)
    if spec.resources is not None:
        whole = container_request(spec.resources, f"{path}")
        for name, amount in whole.items():
            if name in _POD_LEVEL or name.startswith("hugepages-"):
                total[name] = amount
    add_into(total, amounts(spec.overhead or {}, f"{path}.overhead"))
    return check_total(dict(sorted(total.items())), path)


def check_total(vector: Vector, path: str) -> Vector:
    """The vector, unchanged; raises UnreadableError for an uncountable amount."""
    too_much = [name for name, amount in vector.items() if amount > MAX_AMOUNT]
    if too_much:
        raise unreadable(path, "uncountable_request", resource=too_much[0])
    return vector


def _check_width(vector: Vector, path: str) -> None:
    if len(vector) > MAX_RESOURCES:
        raise unreadable(path, "many_resources_asked", most=MAX_RESOURCES)


def container_request(resources: Resources | None, path: str) -> Vector:
    """Requests, and limits of resources without a request."""
    if resources is None:
        return {}
    asked = amounts(resources.requests or {}, f"{path}.resources.requests")
    for name, amount in amounts(resources.limits or {}, f"{path}.resources.limits").items():
        if name not in (resources.requests or {}):
            asked[name] = amount
    return {name: amount for name, amount in asked.items() if amount}


def amounts(texts: dict[str, Quantity], path: str) -> Vector:
    """Quantities as base units; raises UnreadableError naming the resource."""
    if len(texts) > MAX_RESOURCES:
        raise unreadable(path, "many_resources", count=len(texts), most=MAX_RESOURCES)
    vector: Vector = {}
    for name, text in texts.items():
        if not is_resource_name(name):
            raise unreadable(path, "not_a_resource", value=name[:64])
        try:
            vector[name] = parse_quantity(text if isinstance(text, str) else repr(text), name)
        except QuantityError as err:
            raise UnreadableError(err.at(f"{path}.{name}")) from err
    return vector
