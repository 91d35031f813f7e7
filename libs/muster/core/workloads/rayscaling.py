"""Ray clusters that scale themselves: what their worker groups may become, and what one worker offers to Ray.

Ray takes the size of a worker from the first of these that names a resource: ``resources`` of the group, its
``rayStartParams``, the limits of its first container, the requests of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

import msgspec
from msgspec import structs

from muster.core.objects.meta import CEILINGS, DRIVE, GATE, GRANTED, Meta
from muster.core.objects.podspec import Resources, amounts, pod_request
from muster.core.workloads import rayresize
from muster.core.workloads.common import count
from muster.core.workloads.ray import (
    WAIT_FOR_HEAD,
    HeadGroup,
    RayClusterSpec,
    ScaleStrategy,
    WorkerGroup,
    autoscaler_of,
    collector_of,
    hosts_of,
    replicas_of,
)
from muster.model import elastic
from muster.model.placing import GPU
from muster.model.raydemand import RAY_UNIT
from muster.model.resources import Vector, highest, scaled

PARAMETERS = {"num-cpus": "CPU", "num-gpus": "GPU", "memory": "memory"}
"""{rayStartParams: Ray's resource}"""
IDLE_S = 60
"""After how many seconds without work KubeRay has a worker removed where nothing is said."""
MAX_GROUPS = 256
MAX_LEAVING = 1_000
MAX_OFFERS = 64
MOST = 2**53
"""More of a resource no worker offers."""


def elastic_of(spec: RayClusterSpec, meta: Meta, at: str) -> elastic.Elastic | None:
    """How a cluster scales itself; None for one that does not. ``at``: where its spec stands, for errors."""
    driven = not spec.enable_in_tree_autoscaling and meta.annotations.get(DRIVE, "") == "true"
    if not (spec.enable_in_tree_autoscaling or driven):
        return None
    options = spec.autoscaler_options
    idle_s = options.idle_timeout_seconds if options is not None else None
    raws = (spec.worker_group_specs or ())[:MAX_GROUPS]
    beside = collector_of(spec, at)
    groups = [
        _group(group, f"{at}.workerGroupSpecs[{index}]", index, IDLE_S if idle_s is None else idle_s, beside)
        for index, group in enumerate(raws)
    ]
    notes = meta.annotations
    sizes = rayresize.Sizes() if driven else rayresize.sizes_of(notes)
    return elastic.Elastic(
        groups=tuple(rayresize.with_growth(each, raw, sizes) for each, raw in zip(groups, raws, strict=True)),
        granted=elastic.read_counts(notes.get(GRANTED, "")),
        ceilings=elastic.read_counts(notes.get(CEILINGS, "")),
        mark=notes.get(GATE, "")[:64],
        head=offers_of(spec.head_group_spec),
        slow=options is not None and options.upscaling_mode == "Conservative",
        annotated=bool(notes),
        driven=driven,
        beside=autoscaler_of(spec, at),
        growing=rayresize.growing(notes),
        ungated=bool(sizes.groups) and not sizes.ours,
    )


def uncapped(spec: RayClusterSpec, meta: Meta) -> RayClusterSpec:
    """A cluster that waits, as its owner wants it, whatever we wrote into ``maxReplicas`` when it ran."""
    granted = elastic.read_counts(meta.annotations.get(GRANTED, ""))
    ceilings = elastic.read_counts(meta.annotations.get(CEILINGS, ""))
    if not granted or not (spec.enable_in_tree_autoscaling or meta.annotations.get(DRIVE, "") == "true"):
        return spec
    groups = []
    for group in spec.worker_group_specs or ():
        ours = group.group_name in ceilings and granted.get(group.group_name) == group.max_replicas
        groups.append(structs.replace(group, max_replicas=ceilings[group.group_name]) if ours else group)
    return structs.replace(spec, worker_group_specs=tuple(groups))


def _group(group: WorkerGroup, path: str, index: int, idle_s: int, beside: Vector) -> elastic.ScaledGroup:
    hosts = hosts_of(group, path)
    one = pod_request(group.template.spec, f"{path}.template.spec")
    extended = pod_request(group.template.spec, f"{path}.template.spec", extra=beside) if beside else one
    whole = highest(extended, WAIT_FOR_HEAD)
    least = count(group.min_replicas, 0, f"{path}.minReplicas")
    leaving = (group.scale_strategy.workers_to_delete if group.scale_strategy is not None else None) or ()
    return elastic.ScaledGroup(
        name=group.group_name or f"group-{index}",
        replicas=replicas_of(group, path),
        asked=count(group.replicas, least, f"{path}.replicas"),
        least=least,
        most=count(group.max_replicas, elastic.UNLIMITED, f"{path}.maxReplicas"),
        hosts=hosts,
        request=scaled(one, hosts),
        takes=scaled(whole, hosts) if whole != one else None,
        offers=offers_of(group),
        leaving=tuple(name[:253] for name in leaving[:MAX_LEAVING]),
        signalled=_signalled(group.scale_strategy),
        idle_s=max(idle_s if group.idle_timeout_seconds is None else group.idle_timeout_seconds, 0),
    )


def _signalled(strategy: ScaleStrategy | None) -> bool:
    """Whether our entry is among the gates."""
    gates = strategy.scale_gate if strategy is not None else None
    entries = gates if isinstance(gates, list) else ()
    return any(isinstance(each, dict) and each.get("name") == elastic.SIGNAL for each in entries)


def offers_of(group: WorkerGroup | HeadGroup) -> dict[str, int]:
    """{Ray's resource: ten-thousandths} of one host."""
    found = _of_container(group)
    params = {key.lstrip("-"): value for key, value in (group.ray_start_params or {}).items()}
    found |= _read({PARAMETERS[key]: value for key, value in params.items() if key in PARAMETERS})
    found |= _read(_custom(params.get("resources")))
    found |= _read(group.resources or {})
    return {name: amount for name, amount in sorted(found.items())[:MAX_OFFERS] if amount}


def _of_container(group: WorkerGroup | HeadGroup) -> dict[str, int]:
    containers = group.template.spec.containers
    own = (containers[0].resources if containers else None) or Resources()
    texts = {**(own.requests or {}), **(own.limits or {})}
    base = amounts(texts, "resources")  # It was read before: nothing here is unreadable.
    found = {}
    if "cpu" in base:
        found["CPU"] = -(-base["cpu"] // 1000) * RAY_UNIT
    if "memory" in base:
        found["memory"] = base["memory"] * RAY_UNIT
    if GPU in base:
        found["GPU"] = base[GPU] * RAY_UNIT // 1000
    return found


def _custom(text: object) -> Mapping[str, object]:
    """JSON, as a text of JSON once more or not."""
    try:
        value = msgspec.json.decode(text.strip().strip("'")) if isinstance(text, str) else None
        value = msgspec.json.decode(value) if isinstance(value, str) else value
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _read(values: Mapping[str, object]) -> dict[str, int]:
    """Numbers as Ray counts them; what is none is left out."""
    found = {}
    for name, value in values.items():
        try:
            amount = Decimal(str(value)[:32])
        except InvalidOperation:
            continue
        if amount.is_finite() and 0 <= amount < MOST:
            found[str(name)[:253]] = int(amount * RAY_UNIT)
    return found
