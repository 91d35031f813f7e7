"""The pods of a SparkApplication: Spark makes driver and executors from settings of its own.

A field of the SparkApplication wins over its property of ``spec.sparkConf``. Memory is the heap plus an overhead: the
named overhead, else a share of the heap (a tenth; four tenths for Python and R), at least 384 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.objects.meta import GANG, SCHEDULING_GROUP, Meta, UnreadableError, unreadable
from muster.core.objects.podspec import (
    Container,
    PodSpec,
    PodTemplate,
    RawAffinity,
    RawToleration,
    TemplateMeta,
    container_request,
    pod_request,
)
from muster.core.workloads.common import Needs, Program, count
from muster.core.workloads.defined import ObjectView, Parts, Special
from muster.core.workloads.steering import OURS
from muster.model.resources import MAX_AMOUNT, QuantityError, Vector, is_resource_name, parse_quantity
from muster.model.text import shorten
from muster.model.workload import Template

MIB = 2**20
LEAST_OVERHEAD = 384 * MIB
DYNAMIC = "spark.dynamicAllocation"
SHARED = "spark.kubernetes.memoryOverheadFactor"
_UNITS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_MEMORY = re.compile(r"([0-9]{1,18})(?:([kmgtp])b?|b)?")
_FACTOR = re.compile(r"([0-9]{1,9})(?:\.([0-9]{0,9}))?")


class Gpu(Struct, frozen=True):
    name: str = ""
    quantity: int = 0


class Role(Struct, frozen=True, rename="camel"):
    """The driver or the executors, as both are described."""

    instances: int | None = None
    cores: int | None = None
    core_request: str | None = None
    memory: str | None = None
    memory_overhead: str | None = None
    gpu: Gpu | None = None
    priority_class_name: str | None = None
    sidecars: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[RawToleration, ...] | None = None
    affinity: RawAffinity | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    scheduler_name: str | None = None
    template: PodTemplate | None = field(default=None)


class DynamicAllocation(Struct, frozen=True, rename="camel"):
    enabled: bool = False
    initial_executors: int | None = None
    min_executors: int | None = None
    max_executors: int | None = None


class SparkSpec(Struct, frozen=True, rename="camel"):
    type: str = ""
    image: object = None
    main_class: object = None
    main_application_file: object = None
    arguments: object = None
    driver: Role = field(default_factory=Role)
    executor: Role = field(default_factory=Role)
    spark_conf: dict[str, str] | None = None
    memory_overhead_factor: str | None = None
    node_selector: dict[str, str] | None = None
    dynamic_allocation: DynamicAllocation | None = None
    batch_scheduler: str | None = None

    @property
    def properties(self) -> Mapping[str, str]:
        return self.spark_conf or {}

    def get(self, written: str | None, name: str) -> tuple[str, str]:
        """A setting and its path: the field, else the property; two empty texts for a missing setting."""
        if written:
            return written, ""
        return self.properties.get(name, ""), f"spec.sparkConf[{name}]"

    def whole(self, written: int | None, name: str, path: str, default: int) -> int:
        """A number of pods: the field at the path, else the property, else the default."""
        text, at = self.get(None, name)
        return count(written, number(text, at) if text else default, path)

    def under(self, prefix: str) -> dict[str, str]:
        """{rest of the name: value} of the properties whose names begin so."""
        return {name.removeprefix(prefix): text for name, text in self.properties.items() if name.startswith(prefix)}


def request_of(role: Role, name: str, spec: SparkSpec) -> Vector:
    """The request of one pod of a role: the Spark container, and the containers beside Spark's."""
    path = f"spec.{name}"
    asks: Vector = {"cpu": _cpu(role, name, spec), "memory": _memory(role, name, spec)}
    if role.gpu is not None and role.gpu.quantity:
        if not is_resource_name(role.gpu.name) or not 0 < role.gpu.quantity <= MAX_AMOUNT // 1000:
            raise unreadable(f"{path}.gpu", "not_gpus", value=shorten(role.gpu.name, 64), count=role.gpu.quantity)
        asks[role.gpu.name] = role.gpu.quantity * 1000
    pod = role.template.spec if role.template is not None else PodSpec()
    # Spark keeps what the container of the template asks for beside cpu and memory.
    given = (
        container_request(pod.containers[0].resources, f"{path}.template.spec.containers[0]") if pod.containers else {}
    )
    for resource, amount_of in (*_devices(name, spec), *given.items()):
        asks.setdefault(resource, amount_of)
    beside = PodSpec(
        containers=(*pod.containers[1:], *(role.sidecars or ())),
        init_containers=(*(pod.init_containers or ()), *(role.init_containers or ())),
        overhead=pod.overhead,
        resource_claims=pod.resource_claims,
    )
    return pod_request(beside, path, extra={key: amount for key, amount in asks.items() if amount})


def _devices(name: str, spec: SparkSpec) -> Iterator[tuple[str, int]]:
    """The devices of one pod by ``spark.ROLE.resource.NAME.amount`` and ``.vendor``, which Spark does not do without.

    https://spark.apache.org/docs/latest/running-on-kubernetes.html#resource-allocation-and-configuration-overview
    """
    prefix = f"spark.{name}.resource."
    for key in sorted(key for key in spec.properties if key.startswith(prefix) and key.endswith(".amount")):
        home, at = key.removesuffix(".amount"), f"spec.sparkConf[{key[:128]}]"
        if spec.properties[key] == "0":
            continue
        resource = f"{spec.properties.get(f'{home}.vendor', '')}/{home.removeprefix(prefix)}"
        if not is_resource_name(resource):
            raise unreadable(at, "not_a_resource", value=shorten(resource, 64))
        yield resource, number(spec.properties[key], at) * 1000


def template_of(role: Role, name: str, spec: SparkSpec) -> PodTemplate:
    """A role's pod, as far as relevant for its places and devices: the role's own settings override the template."""
    template, own = role.template or PodTemplate(), f"spark.kubernetes.{name}."
    everywhere = {**spec.under("spark.kubernetes.node.selector."), **spec.under(f"{own}node.selector.")}
    selector = {**everywhere, **(spec.node_selector or {}), **(template.spec.node_selector or {})}
    pod = replace(
        template.spec,
        node_selector={**selector, **(role.node_selector or {})},
        tolerations=(*(template.spec.tolerations or ()), *(role.tolerations or ())),
        affinity=role.affinity or template.spec.affinity,
        priority_class_name=role.priority_class_name or template.spec.priority_class_name,
    )
    labels = {**template.labels, **spec.under(f"{own}label."), **(role.labels or {})}
    notes = {**template.annotations, **spec.under(f"{own}annotation."), **(role.annotations or {})}
    return PodTemplate(metadata=TemplateMeta(labels=labels, annotations=notes), spec=pod)


def number(text: str, path: str) -> int:
    """A whole number in a property."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise unreadable(path, "not_a_number", value=shorten(text, 64))
    return int(text)


def _cpu(role: Role, name: str, spec: SparkSpec) -> int:
    text, path = spec.get(role.core_request, f"spark.kubernetes.{name}.request.cores")
    if text:
        try:
            return parse_quantity(text, "cpu")
        except QuantityError as err:
            raise UnreadableError(err.at(path or f"spec.{name}.coreRequest")) from err
    if role.cores is not None:
        if not 0 <= role.cores < 2**31:
            raise unreadable(f"spec.{name}.cores", "not_cores", value=role.cores)
        return role.cores * 1000
    text, path = spec.get(None, f"spark.{name}.cores")
    return number(text, path) * 1000 if text else 1000


def _memory(role: Role, name: str, spec: SparkSpec) -> int:
    text, path = spec.get(role.memory, f"spark.{name}.memory")
    heap = amount(text, path or f"spec.{name}.memory") if text else 1024 * MIB
    text, path = spec.get(role.memory_overhead, f"spark.{name}.memoryOverhead")
    if text:
        total = heap + amount(text, path or f"spec.{name}.memoryOverhead")
    else:
        text, path = spec.get(None, f"spark.{name}.minMemoryOverhead")
        total = heap + max(_share(heap // MIB, name, spec) * MIB, amount(text, path) if text else LEAST_OVERHEAD)
    if name == "executor":
        total += _beside_heap(spec)
    return total


def _beside_heap(spec: SparkSpec) -> int:
    """The memory of an executor beside heap and overhead, in bytes: for Python, and off the heap where this is on."""
    total, properties = 0, spec.properties
    python, off_heap = "spark.executor.pyspark.memory", "spark.memory.offHeap.size"
    if spec.type == "Python" and properties.get(python):
        total += amount(properties[python], f"spec.sparkConf[{python}]")
    if properties.get("spark.memory.offHeap.enabled", "").lower() == "true" and properties.get(off_heap):
        total += amount(properties[off_heap], f"spec.sparkConf[{off_heap}]", bare=0)
    return total


def _share(heap_mib: int, name: str, spec: SparkSpec) -> int:
    """The overhead as a share of the heap, in MiB, cut as Spark cuts."""
    own = f"spark.{name}.memoryOverheadFactor"
    key = own if spec.properties.get(own) else SHARED
    text, path = spec.properties.get(key, ""), f"spec.sparkConf[{key}]"
    if not text:
        text, path = spec.memory_overhead_factor or "", "spec.memoryOverheadFactor"
    if not text:
        return heap_mib * (4 if spec.type in ("Python", "R") else 1) // 10
    match = _FACTOR.fullmatch(text)
    if match is None:
        raise unreadable(path, "not_a_share", value=shorten(text, 64))
    part = match[2] or ""
    scale: int = 10 ** len(part)
    return heap_mib * int(match[1] + part) // scale


def amount(text: str, path: str, *, bare: int = 20) -> int:
    """Memory in Spark's notation (``512m``, ``2g``) in bytes, cut to whole MiB; a bare number counts in 2**bare."""
    match = _MEMORY.fullmatch(text.strip().lower())
    if match is None:
        raise unreadable(path, "not_spark_memory", value=shorten(text, 64))
    shift = _UNITS[match[2]] if match[2] else (0 if text.strip().lower().endswith("b") else bare)
    return (int(match[1]) << shift) // MIB * MIB


def _parts(view: ObjectView, _meta: Meta, needs: Needs, _suspended: bool) -> Parts:
    """Driver and executors: with dynamic allocation the initial executors, and in ``full`` the most allowed."""
    spec: SparkSpec = view.get("spec")
    first, most = _executors(spec)
    needs.program = Program(spec.image).running(spec.main_class, spec.main_application_file, spec.arguments)
    if spec.batch_scheduler:
        needs.steering.leave()
    for name, role, pods in (("driver", spec.driver, 1), ("executor", spec.executor, first)):
        template, one = template_of(role, name, spec), request_of(role, name, spec)
        later = name == "executor"  # The driver makes them.
        needs.add(name, pods, template, f"spec.{name}", request=one, steer=False, later=later)
        inner = role.template.spec.scheduler_name if role.template is not None else ""
        named = spec.under("spark.kubernetes.")
        by_conf = named.get(f"{name}.scheduler.name") or named.get("scheduler.name")
        scheduler = role.scheduler_name or by_conf or inner or ""
        if role == Role():
            needs.steering.leave()  # It may not be there at all, and then nothing can be added to it.
        notes = role.annotations or {}
        steered = Template(
            f"/spec/{name}",
            flat=True,
            named=scheduler in OURS,
            marked=GANG in notes,
            annotations=bool(notes),
            noted=bool(notes.get(SCHEDULING_GROUP)),
            **needs.steering.on_nodes(name, role.node_selector, role.tolerations),
        )
        needs.steering.describe(steered, scheduler)
        needs.prioritize(template.spec.priority_class_name, template.spec.priority)
    needs.reserve(one, max(most, first) - first)
    return Parts()


def _executors(spec: SparkSpec) -> tuple[int, int]:
    """(initial executors, most executors)"""
    own = spec.whole(spec.executor.instances, "spark.executor.instances", "spec.executor.instances", -1)
    by_field = spec.dynamic_allocation or DynamicAllocation()
    if not by_field.enabled and spec.properties.get(f"{DYNAMIC}.enabled", "").lower() != "true":
        return (1, 1) if own < 0 else (own, own)
    dynamic, at = by_field if by_field.enabled else DynamicAllocation(), "spec.dynamicAllocation"
    low = spec.whole(dynamic.min_executors, f"{DYNAMIC}.minExecutors", f"{at}.minExecutors", 0)
    start = spec.whole(dynamic.initial_executors, f"{DYNAMIC}.initialExecutors", f"{at}.initialExecutors", 0)
    first = max(own, low, start)
    return first, spec.whole(dynamic.max_executors, f"{DYNAMIC}.maxExecutors", f"{at}.maxExecutors", first)


SPARK = Special(_parts, {"spec": SparkSpec})
