"""Self-scaling Ray clusters: scaling in workers, and in the size of a worker.

Growth in place (Ray from 2.60 on), annotation ``ray.io/ippr``: the largest size of the pods of each group. Ray tries to
grow pods at every tick with waiting demand, past ``maxReplicas``, and does nothing else in a tick with a refusal. So
the entry is the grant: the size of the template for groups that may not grow, the owner's value for groups that may.

Scaling in workers: the limits of the worker groups, and the resources that one worker offers to Ray. Ray takes each
resource of a worker from the first source that names the resource: ``resources`` of the group, its ``rayStartParams``,
the limits of its first container, the requests of this container.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct, field, structs

from muster.core.objects.meta import (
    CEILINGS,
    DRAIN,
    DRIVE,
    GATE,
    GRANTED,
    IPPR,
    NODE_WAIT,
    OWN_IPPR,
    RESIZE,
    Meta,
    unreadable,
)
from muster.core.objects.podspec import Resources, pod_request, pod_rules
from muster.core.placement.devices import shares_gpu
from muster.core.workloads.common import count, sharing
from muster.core.workloads.ray import (
    WAIT_FOR_HEAD,
    HeadGroup,
    RayClusterSpec,
    ScaleStrategy,
    WorkerGroup,
    autoscaler_of,
    collector_of,
    hosts_of,
    least_of,
    replicas_of,
    scales,
    starts_small,
)
from muster.model import elastic
from muster.model.elastic import ScaledGroup
from muster.model.placing import GPU
from muster.model.raydemand import RAY_UNIT
from muster.model.resources import QuantityError, Vector, highest, parse_quantity, scaled
from muster.model.workload import PodSet, gpu_amounts

# --- workers that grow in place ---------------------------------------------------------------------------------------


OURS = "muster.dev"
"""Top-level key of our entry."""
MAX_TEXT = 16_384
HEAD = "headgroup"
GROWS = {"cpu": "max-cpu", "memory": "max-memory"}
"""{resource: name of its maximum in the annotation}"""
MOST = 2**53
"""More of a resource no worker offers."""


class Sizes(Struct, frozen=True):
    """Growth in place, as the object states it."""

    groups: dict[str, dict[str, object]] = field(default_factory=dict)
    """The owner's sizes, by group."""
    text: str = ""
    """The same as written by the owner."""
    ours: bool = False
    """The value of the annotation was written by us."""


def sizes_of(notes: Mapping[str, str]) -> Sizes:
    """Unreadable sizes allow no growth: Ray refuses such sizes too."""
    text = notes.get(IPPR, "")
    entry = _object(text)
    ours = entry.get(OURS) is True
    if ours:
        text = notes.get(OWN_IPPR, "")
        entry = _object(text)
    groups = entry.get("groups")
    named = {name: size for name, size in groups.items() if isinstance(size, dict)} if isinstance(groups, dict) else {}
    return Sizes(named, text, ours)


def growing(notes: Mapping[str, str]) -> tuple[str, ...]:
    """Worker groups with pods that may be grown now."""
    parts = (part.partition("/")[0] for part in notes.get(RESIZE, "")[:MAX_TEXT].split(","))
    return tuple(dict.fromkeys(name for name in parts if name))


def with_growth(group: ScaledGroup, raw: WorkerGroup, sizes: Sizes) -> ScaledGroup:
    """The group, with the additional request of one grown pod."""
    growth = _growth(raw, sizes.groups.get(group.name))
    if not growth:
        return group
    large = {name: amount + growth.get(name, 0) for name, amount in base_of(raw).items()}
    offers = dict(group.offers)
    if "CPU" in offers:
        offers["CPU"] = -(-large["cpu"] // 1000) * RAY_UNIT
    if "memory" in offers:
        offers["memory"] = large["memory"] * RAY_UNIT
    return structs.replace(group, grows=growth, grows_to=offers)


def notes_of(spec: RayClusterSpec, notes: Mapping[str, str], grow: Iterable[str]) -> dict[str, str]:
    """The annotations that let Ray grow pods of exactly these groups; empty where no group asks for growth."""
    sizes, may = sizes_of(notes), set(grow)
    if not sizes.groups and not notes.get(RESIZE):
        return {}
    raws: dict[str, WorkerGroup | HeadGroup] = {group.group_name: group for group in spec.worker_group_specs or ()}
    raws[HEAD] = spec.head_group_spec
    written: dict[str, object] = {}
    allowed: list[str] = []
    for name, size in sorted(sizes.groups.items()):
        raw = raws.get(name)
        base = base_of(raw) if raw is not None else {}
        if raw is None or not base:
            continue  # Ray knows no such group, or refuses to grow it.
        more = _growth(raw, size) if name in may else {}
        written[name] = dict(size) if more else {**size, **{GROWS[key]: _text(base[key], key) for key in GROWS}}
        asked = _of_container(raw, limits=False)
        allowed += [f"{name}/{key}={_text(asked[key] + amount, key)}" for key, amount in sorted(more.items())]
    annotations = {RESIZE: ",".join(allowed)}
    if sizes.groups:
        text = msgspec.json.encode({"groups": written, OURS: True}, order="deterministic").decode()
        annotations |= {IPPR: text, OWN_IPPR: sizes.text}
    return annotations


def base_of(raw: WorkerGroup | HeadGroup) -> Vector:
    """The size of a new pod of a group, as Ray reads the template: limits of the first container, else requests.

    Empty where a resource is missing: then the pod is not grown.
    """
    sizes = _of_container(raw, limits=True)
    return sizes if len(sizes) == len(GROWS) else {}


def _of_container(raw: WorkerGroup | HeadGroup, *, limits: bool) -> Vector:
    """The amounts of the first container: limits before requests, or requests before limits."""
    containers = raw.template.spec.containers
    own = (containers[0].resources if containers else None) or Resources()
    first, second = (own.limits, own.requests) if limits else (own.requests, own.limits)
    texts = {**(second or {}), **(first or {})}
    return {name: amount for name in GROWS if (amount := _amount(texts.get(name), name)) is not None}


def _growth(raw: WorkerGroup | HeadGroup, size: dict[str, object] | None) -> Vector:
    base = base_of(raw) if size else {}
    growth = {}
    for name in base:
        most = _amount((size or {}).get(GROWS[name]), name)
        if most is not None and most > base[name]:
            growth[name] = most - base[name]
    return growth


def _amount(value: object, name: str) -> int | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        amount = parse_quantity(str(value)[:32], name)
    except QuantityError:
        return None
    return amount if 0 <= amount < MOST else None


def _text(amount: int, name: str) -> str:
    return f"{amount}m" if name == "cpu" else str(amount)


def _object(text: str) -> dict[str, object]:
    try:
        value = msgspec.json.decode(text) if 0 < len(text) <= MAX_TEXT else None
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


# --- workers that are added -------------------------------------------------------------------------------------------


PARAMETERS = {"CPU": "num-cpus", "GPU": "num-gpus", "memory": "memory"}
"""{Ray's resource: rayStartParams}"""
TPU = "google.com/tpu"
TPU_TOPOLOGY, TPU_KIND = "cloud.google.com/gke-tpu-topology", "cloud.google.com/gke-tpu-accelerator"
TPU_GENERATIONS = {
    "tpu-v4-podslice": "v4",
    "tpu-v5-lite-device": "v5litepod",
    "tpu-v5-lite-podslice": "v5litepod",
    "tpu-v5p-slice": "v5p",
    "tpu-v6e-slice": "v6e",
    "tpu7x": "v7x",
}
"""{label in a node selector: name in Ray}"""
ONE_CORE = ("v5litepod", "v6e")
IDLE_S = 60
"""After how many seconds without work KubeRay has a worker removed where nothing is said."""
MAX_GROUPS = 256
MAX_LEAVING = 1_000
MAX_OFFERS = 64


def elastic_of(spec: RayClusterSpec, meta: Meta, at: str) -> elastic.Elastic | None:
    """How a cluster scales itself; None for a cluster of a fixed size. ``at``: the path of the spec, for errors."""
    if not scales(spec, meta):
        return None
    driven = not spec.enable_in_tree_autoscaling
    slow = spec.autoscaler_options is not None and spec.autoscaler_options.upscaling_mode == "Conservative"
    options = spec.autoscaler_options
    idle_s = options.idle_timeout_seconds if options is not None else None
    raws = (spec.worker_group_specs or ())[:MAX_GROUPS]
    beside = collector_of(spec, at)
    groups = [
        _group(group, f"{at}.workerGroupSpecs[{index}]", IDLE_S if idle_s is None else idle_s, beside)
        for index, group in enumerate(raws)
    ]
    notes = meta.annotations
    sizes = Sizes() if driven else sizes_of(notes)
    return elastic.Elastic(
        groups=tuple(with_growth(group, raw, sizes) for group, raw in zip(groups, raws, strict=True)),
        granted=elastic.read_counts(notes.get(GRANTED, "")),
        ceilings=elastic.read_counts(notes.get(CEILINGS, "")),
        mark=notes.get(GATE, "")[:64],
        head=offers_of(spec.head_group_spec),
        slow=slow,
        annotated=bool(notes),
        driven=driven,
        raised=not (driven or slow) and notes.get(DRIVE, "") == "true",
        beside=autoscaler_of(spec, at),
        drain=notes.get(DRAIN, "")[:64],
        node_wait=notes.get(NODE_WAIT, "")[:64],
        growing=growing(notes),
        ungated=bool(sizes.groups) and not sizes.ours,
    )


def as_admitted(spec: RayClusterSpec, meta: Meta, at: str) -> RayClusterSpec:
    """A waiting cluster, as the cluster would be admitted: with the owner's ``maxReplicas``, not with our last write.

    Worker groups that need only their minimum are admitted with the minimum: the rest is granted while the cluster
    runs.
    """
    granted = elastic.read_counts(meta.annotations.get(GRANTED, ""))
    ceilings = elastic.read_counts(meta.annotations.get(CEILINGS, ""))
    if not scales(spec, meta):
        return spec
    small, groups = starts_small(spec, meta), []
    for index, group in enumerate(spec.worker_group_specs or ()):
        ours = group.group_name in ceilings and granted.get(group.group_name) == group.max_replicas
        own = structs.replace(group, max_replicas=ceilings[group.group_name]) if ours else group
        if small:
            path = f"{at}.workerGroupSpecs[{index}]"
            own = structs.replace(own, replicas=least_of(own, spec, replicas_of(own, path), path))
        groups.append(own)
    return structs.replace(spec, worker_group_specs=tuple(groups))


def _group(group: WorkerGroup, path: str, idle_s: int, beside: Vector) -> elastic.ScaledGroup:
    if not group.group_name:
        raise unreadable(f"{path}.groupName", "group_unnamed")
    hosts = hosts_of(group, path)
    one = pod_request(group.template.spec, f"{path}.template.spec")
    extended = pod_request(group.template.spec, f"{path}.template.spec", extra=beside) if beside else one
    whole = highest(extended, WAIT_FOR_HEAD)
    rules, one = sharing(group.template, one, pod_rules(group.template.spec, group.template.labels))
    whole = {**whole, GPU: one[GPU]} if shares_gpu(rules) else whole
    least = count(group.min_replicas, 0, f"{path}.minReplicas")
    leaving = (group.scale_strategy.workers_to_delete if group.scale_strategy is not None else None) or ()
    return elastic.ScaledGroup(
        name=group.group_name,
        replicas=replicas_of(group, path),
        asked=count(group.replicas, least, f"{path}.replicas"),
        least=least,
        most=count(group.max_replicas, elastic.UNLIMITED, f"{path}.maxReplicas"),
        hosts=hosts,
        request=scaled(one, hosts),
        takes=scaled(whole, hosts) if whole != one else None,
        gpu_memory=gpu_amounts([PodSet("", hosts, rules=rules)]),
        offers=offers_of(group),
        labels=labels_of(group),
        priority=group.priority if isinstance(group.priority, int) else 0,
        leaving=tuple(name[:253] for name in leaving[:MAX_LEAVING]),
        signalled=_signalled(group.scale_strategy),
        idle_s=max(idle_s if group.idle_timeout_seconds is None else group.idle_timeout_seconds, 0),
    )


def _signalled(strategy: ScaleStrategy | None) -> bool:
    """Whether our entry is among the gates."""
    gates = strategy.scale_gate if strategy is not None else None
    entries = gates if isinstance(gates, list) else ()
    return any(isinstance(entry, dict) and entry.get("name") == elastic.SIGNAL for entry in entries)


def offers_of(group: WorkerGroup | HeadGroup) -> dict[str, int]:
    """{Ray's resource: ten-thousandths} of one host, whole numbers, as Ray's autoscaler reads the spec.

    Empty for a spec unreadable to the autoscaler: then the autoscaler makes no worker.
    """
    try:
        offers = _read(group)
    except (QuantityError, ValueError, msgspec.DecodeError):
        return {}
    return {name[:253]: amount * RAY_UNIT for name, amount in sorted(offers.items())[:MAX_OFFERS] if 0 < amount < MOST}


def labels_of(group: WorkerGroup) -> dict[str, str]:
    """Labels of the nodes for the choice of tasks and actors; labels in rayStartParams do not count."""
    labels = group.labels if isinstance(group.labels, dict) else {}
    return {str(key)[:317]: str(value)[:63] for key, value in sorted(labels.items())[:MAX_OFFERS]}


def _read(group: WorkerGroup | HeadGroup) -> dict[str, int]:
    """Each resource from the first source: ``resources`` of the group, rayStartParams, limits, requests."""
    own, params = group.resources or {}, group.ray_start_params or {}
    containers = group.template.spec.containers
    sizes = (containers[0].resources if containers else None) or Resources()
    limits, requests = sizes.limits or {}, sizes.requests or {}
    custom = {} if own else _custom(params.get("resources"))
    resources: dict[str, int] = {}
    for name, parameter in PARAMETERS.items():
        if name in own:
            resources[name] = _whole(own[name])
        elif parameter in params:
            resources[name] = int(str(params[parameter]))
    for name, kind in (("CPU", "cpu"), ("memory", "memory")):
        given = limits.get(kind, requests.get(kind))
        if name not in resources and given is not None:
            resources[name] = _whole(given)
    if "CPU" not in resources:
        raise ValueError("Ray's autoscaler makes no worker of which it does not know the CPUs")
    if "GPU" not in resources:
        gpus = (_whole(text) for source in (limits, requests) for name, text in source.items() if name.endswith("gpu"))
        resources["GPU"] = next((amount for amount in gpus if amount > 0), 0)
    tpus = _whole(own["TPU"]) if "TPU" in own else custom.get("TPU")
    if tpus is None:
        given_tpus = (_whole(source[TPU]) for source in (limits, requests) if TPU in source)
        tpus = next((amount for amount in given_tpus if amount > 0), None)
    if tpus is not None:
        resources["TPU"] = tpus
        resources |= _slice_head(group.template.spec.node_selector or {})
    resources |= {name: _whole(value) for name, value in own.items() if name not in (*PARAMETERS, "TPU")}
    return resources | custom


def _slice_head(selector: Mapping[str, str]) -> dict[str, int]:
    """The resource of a whole slice of TPUs: ``TPU-v4-16-head``."""
    topology, generation = selector.get(TPU_TOPOLOGY, ""), TPU_GENERATIONS.get(selector.get(TPU_KIND, ""))
    if not topology or generation is None:
        return {}
    cores = 1 if generation in ONE_CORE else 2
    for sides in topology.strip().lower().split("x"):
        cores *= int(sides)
    return {f"TPU-{generation}-{cores}-head": 1}


def _custom(text: object) -> dict[str, int]:
    """JSON within one more pair of quotation marks. Raises where Ray would."""
    if text is None:
        return {}
    value = msgspec.json.decode(str(text)[1:-1].replace("\\", ""))
    if not isinstance(value, dict) or not all(isinstance(amount, int) for amount in value.values()):
        raise ValueError("resources of rayStartParams are whole numbers by name")
    return {str(name): int(amount) for name, amount in value.items()}


def _whole(quantity: object) -> int:
    """A quantity of Kubernetes rounded up: ``500m`` is 1."""
    return parse_quantity(str(quantity)[:64], "memory")
