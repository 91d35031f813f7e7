"""Ray clusters that scale themselves: what their worker groups may become, and what one worker offers to Ray.

Ray takes the size of a worker from the first of these that names a resource: ``resources`` of the group, its
``rayStartParams``, the limits of its first container, the requests of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import structs

from muster.core.objects.meta import CEILINGS, DRAIN, DRIVE, GATE, GRANTED, NODE_WAIT, Meta, unreadable
from muster.core.objects.podspec import Resources, pod_request
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
    least_of,
    replicas_of,
    scales,
    starts_small,
)
from muster.model import elastic
from muster.model.raydemand import RAY_UNIT
from muster.model.resources import QuantityError, Vector, highest, parse_quantity, scaled

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
"""{what a node selector calls them: what Ray does}"""
ONE_CORE = ("v5litepod", "v6e")
IDLE_S = 60
"""After how many seconds without work KubeRay has a worker removed where nothing is said."""
MAX_GROUPS = 256
MAX_LEAVING = 1_000
MAX_OFFERS = 64
MOST = 2**53
"""More of a resource no worker offers."""


def elastic_of(spec: RayClusterSpec, meta: Meta, at: str) -> elastic.Elastic | None:
    """How a cluster scales itself; None for one that does not. ``at``: the path of its spec, for errors."""
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
    sizes = rayresize.Sizes() if driven else rayresize.sizes_of(notes)
    return elastic.Elastic(
        groups=tuple(rayresize.with_growth(each, raw, sizes) for each, raw in zip(groups, raws, strict=True)),
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
        growing=rayresize.growing(notes),
        ungated=bool(sizes.groups) and not sizes.ours,
    )


def as_admitted(spec: RayClusterSpec, meta: Meta, at: str) -> RayClusterSpec:
    """A cluster that waits, as it is admitted: with the ``maxReplicas`` of its owner, whatever we wrote there when it
    ran; and where its worker groups need their minimum only, with that: the rest is granted once it runs.
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
    return any(isinstance(each, dict) and each.get("name") == elastic.SIGNAL for each in entries)


def offers_of(group: WorkerGroup | HeadGroup) -> dict[str, int]:
    """{Ray's resource: ten-thousandths} of one host, whole numbers as Ray's autoscaler reads the spec; empty where it
    cannot read it: then it makes no worker.
    """
    try:
        found = _read(group)
    except (QuantityError, ValueError, msgspec.DecodeError):
        return {}
    return {name[:253]: amount * RAY_UNIT for name, amount in sorted(found.items())[:MAX_OFFERS] if 0 < amount < MOST}


def labels_of(group: WorkerGroup) -> dict[str, str]:
    """Labels of its nodes by which tasks and actors choose; those in rayStartParams do not count."""
    labels = group.labels if isinstance(group.labels, dict) else {}
    return {str(key)[:317]: str(value)[:63] for key, value in sorted(labels.items())[:MAX_OFFERS]}


def _read(group: WorkerGroup | HeadGroup) -> dict[str, int]:
    """Each of the first that names it: ``resources`` of the group, rayStartParams, limits, requests."""
    own, params = group.resources or {}, group.ray_start_params or {}
    containers = group.template.spec.containers
    sizes = (containers[0].resources if containers else None) or Resources()
    limits, requests = sizes.limits or {}, sizes.requests or {}
    custom = {} if own else _custom(params.get("resources"))
    found: dict[str, int] = {}
    for name, parameter in PARAMETERS.items():
        if name in own:
            found[name] = _whole(own[name])
        elif parameter in params:
            found[name] = int(str(params[parameter]))
    for name, kind in (("CPU", "cpu"), ("memory", "memory")):
        given = limits.get(kind, requests.get(kind))
        if name not in found and given is not None:
            found[name] = _whole(given)
    if "CPU" not in found:
        raise ValueError("Ray's autoscaler makes no worker of which it does not know the CPUs")
    if "GPU" not in found:
        gpus = (_whole(text) for each in (limits, requests) for name, text in each.items() if name.endswith("gpu"))
        found["GPU"] = next((amount for amount in gpus if amount > 0), 0)
    tpus = _whole(own["TPU"]) if "TPU" in own else custom.get("TPU")
    if tpus is None:
        given_tpus = (_whole(each[TPU]) for each in (limits, requests) if TPU in each)
        tpus = next((amount for amount in given_tpus if amount > 0), None)
    if tpus is not None:
        found["TPU"] = tpus
        found |= _slice_head(group.template.spec.node_selector or {})
    found |= {name: _whole(value) for name, value in own.items() if name not in (*PARAMETERS, "TPU")}
    return found | custom


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
    if not isinstance(value, dict) or not all(isinstance(each, int) for each in value.values()):
        raise ValueError("resources of rayStartParams are whole numbers by name")
    return {str(name): int(amount) for name, amount in value.items()}


def _whole(quantity: object) -> int:
    """A quantity of Kubernetes rounded up: ``500m`` is 1."""
    return parse_quantity(str(quantity)[:64], "memory")
