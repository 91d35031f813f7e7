"""Queue (scheduling.run.ai/v2), the cluster-scoped queue of KAI Scheduler: numbers as written, not judged."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Struct, field

from muster.core.objects.meta import MAX_NAME, PREFIX, ExplainedCondition, Int32, Meta, decode, digest
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.strategies import PLACEMENT
from muster.model.text import clean

KIND = "Queue.scheduling.run.ai"
"""Kind of these objects in the log; another API has a kind Queue too."""
RESOURCES = {"cpu": "cpu", "gpu": "nvidia.com/gpu", "memory": "memory"}
"""name in spec.resources -> resource in requests of pods"""
POD_GROUP_NAME = "pod-group-name"
"""Annotation of a pod: the PodGroup of KAI Scheduler that shows the pod's workload."""
USAGE = ("usage-window", "usage-half-life", "usage-weight")
"""Annotations of a queue without a parent, without their prefix: the weight of recent usage."""
MAX_DIGITS = 40
NO_STATUS = msgspec.Raw(b"{}")


def pod_group_name(ref: Ref) -> str:
    """The name of the PodGroup of a workload, ``pg-NAME-UID`` as in KAI Scheduler; a long name is cut."""
    tail = f"-{ref.uid}"
    return f"pg-{ref.name[: MAX_NAME - 3 - len(tail)]}{tail}"


class RawAmounts(Struct, frozen=True, rename="camel"):
    quota: Decimal | None = None
    limit: Decimal | None = None
    over_quota_weight: Decimal | None = None


class RawResources(Struct, frozen=True):
    cpu: RawAmounts | None = None
    gpu: RawAmounts | None = None
    memory: RawAmounts | None = None


class RawQueueSpec(Struct, frozen=True, rename="camel"):
    display_name: str = ""
    parent_queue: str = ""
    priority: Int32 | None = None
    resources: RawResources | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class KaiStatus(Struct, frozen=True, rename="camel"):
    """The status written by muster."""

    child_queues: tuple[str, ...] = ()
    allocated: dict[str, str] = field(default_factory=dict)
    allocated_non_preemptible: dict[str, str] = field(default_factory=dict)
    requested: dict[str, str] = field(default_factory=dict)
    conditions: tuple[ExplainedCondition, ...] = ()


class _RawStatus(Struct, frozen=True, rename="camel"):
    """A status written by any client."""

    child_queues: tuple[str, ...] | None = None
    allocated: dict[str, str | int] | None = None
    allocated_non_preemptible: dict[str, str | int] | None = None
    requested: dict[str, str | int] | None = None
    conditions: tuple[ExplainedCondition, ...] | None = None


class RawQueue(Struct, frozen=True):
    metadata: Meta
    spec: RawQueueSpec = field(default_factory=RawQueueSpec)
    status: msgspec.Raw = NO_STATUS


def unknown_fields(body: Mapping[str, Any]) -> list[str]:
    """Paths of the fields unknown to the API of Queue; an API server drops these fields."""
    spec = body.get("spec")
    paths = [str(key) for key in body if key not in ("apiVersion", "kind", "metadata", "spec", "status")]
    if not isinstance(spec, Mapping):
        return paths
    paths += [f"spec.{key}" for key in spec if key not in RawQueueSpec.__struct_encode_fields__]
    resources = spec.get("resources")
    if isinstance(resources, Mapping):
        paths += [f"spec.resources.{key}" for key in resources if key not in RawResources.__struct_encode_fields__]
        for name, amounts in resources.items():
            odd = amounts.keys() - set(RawAmounts.__struct_encode_fields__) if isinstance(amounts, Mapping) else ()
            paths += [f"spec.resources.{name}.{key}" for key in sorted(odd)]
    return paths


def shown_status(status: KaiStatus) -> str:
    """Digest of a status, to compare two statuses."""
    return digest(status)


def _shown(raw: bytes) -> str:
    """Digest of an object's status; empty for a missing status, or a status of another shape."""
    try:
        status = msgspec.json.decode(raw, type=_RawStatus)
    except msgspec.DecodeError:
        return ""
    if status.conditions is None:
        return ""
    return shown_status(
        KaiStatus(
            status.child_queues or (),
            _texts(status.allocated),
            _texts(status.allocated_non_preemptible),
            _texts(status.requested),
            status.conditions,
        )
    )


def _texts(amounts: dict[str, str | int] | None) -> dict[str, str]:
    return {name: str(amount) for name, amount in (amounts or {}).items()}


def read_kai_queue(raw: bytes) -> KaiQueue:
    """The queue as written. Raises UnreadableError for an object that is no Queue."""
    queue: RawQueue = decode(raw, RawQueue)
    spec, annotations = queue.spec, queue.metadata.annotations
    given = {name: getattr(spec.resources, name) or RawAmounts() for name in RESOURCES} if spec.resources else {}
    return KaiQueue(
        ref=queue.metadata.ref(KIND),
        rv=queue.metadata.rv,
        created=queue.metadata.created,
        parent=spec.parent_queue[:300],
        priority=spec.priority,
        title=clean(spec.display_name[:300]),
        quota={RESOURCES[name]: _text(amounts.quota) for name, amounts in given.items()},
        limit={RESOURCES[name]: _text(amounts.limit) for name, amounts in given.items()},
        weight={RESOURCES[name]: _text(amounts.over_quota_weight) for name, amounts in given.items()},
        preempt_min_runtime=(spec.preempt_min_runtime or "")[:40],
        reclaim_min_runtime=(spec.reclaim_min_runtime or "")[:40],
        rules={name: annotations[f"{PREFIX}/{name}"][:300] for name in USAGE if f"{PREFIX}/{name}" in annotations},
        placement=annotations.get(PLACEMENT, "")[:64],
        shown=_shown(bytes(queue.status)),
    )


def _text(number: Decimal | None) -> str:
    """The number without an exponent, up to the length of users' numbers; a missing number is 0."""
    if number is None:
        return "0"
    text = format(number, "f") if number.is_finite() and abs(number.adjusted()) < MAX_DIGITS else str(number)
    return text[: 2 * MAX_DIGITS]
