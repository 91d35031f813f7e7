"""What one pod of a template asks for.

Kubernetes' rule per resource: max(sum of containers and sidecars, largest ordinary init container together with the
sidecars started before it); pod-level requests replace that where they are set; overhead is added. A container's
request is its request, else its limit, resource by resource (templates are not defaulted by the API server).
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.objects.meta import Int32, UnreadableError, unreadable
from muster.core.objects.podrules import (
    RawAffinity,
    RawPort,
    RawRules,
    RawSpread,
    RawToleration,
    RawVolume,
    rules_of,
)
from muster.model.placing import PodRules
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

Quantity = str | int | float
"""As manifests hold it: ``"500m"``, ``4`` or ``0.5``."""


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
    """What is only shown is read as it is: a job is not refused for it."""


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
    """The names of the containers of a pod, initial ones too."""
    return [each.name for each in (*spec.containers, *(spec.init_containers or ()))]


def names_resource(spec: PodSpec, name: str) -> bool:
    """Whether any container of a pod names a resource, be it with the amount 0."""
    found = (each.resources or Resources() for each in (*spec.containers, *(spec.init_containers or ())))
    return any(name in (each.limits or {}) or name in (each.requests or {}) for each in found)


def pod_rules(spec: PodSpec, labels: dict[str, str]) -> PodRules:
    """Where a pod of this spec with these labels may run."""
    containers = (*spec.containers, *(each for each in spec.init_containers or () if each.restart_policy == "Always"))
    return rules_of(
        RawRules(
            node_selector=spec.node_selector or None,
            tolerations=spec.tolerations or None,
            affinity=spec.affinity,
            topology_spread_constraints=spec.topology_spread_constraints or None,
            volumes=tuple(each for each in spec.volumes or () if each.persistent_volume_claim is not None) or None,
            ports=tuple(
                port for each in containers for port in each.ports or () if port.host_port or spec.host_network
            ),
            host_network=bool(spec.host_network),
        ),
        labels,
    )


def pod_request(spec: PodSpec, path: str, *, extra: Vector | None = None) -> Vector:
    """The request of one pod, base units, sorted by resource; ``extra`` is what an operator adds as one container.

    ``path`` is the path of the spec, for errors. Raises UnreadableError on a quantity that is none.
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
    """The vector itself; raises UnreadableError when an amount is more than can be counted."""
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
    found: Vector = {}
    for name, text in texts.items():
        if not is_resource_name(name):
            raise unreadable(path, "not_a_resource", value=name[:64])
        try:
            found[name] = parse_quantity(text if isinstance(text, str) else repr(text), name)
        except QuantityError as err:
            raise UnreadableError(err.at(f"{path}.{name}")) from err
    return found
