"""Gangs as Kubernetes itself has them: ``spec.schedulingGroup`` of a pod, and the PodGroup of ``scheduling.k8s.io``.

The one place that knows the shape of these objects. Versions differ little: where a field has moved or a condition was
renamed both are read. A PodGroup with the policy ``gang`` says how many pods must have a place together; with ``basic``
each of its pods starts by itself.
"""

from __future__ import annotations

from msgspec import Struct

from muster.core.objects.meta import ATTEMPT, Int32, Meta, decode, parse_time
from muster.model.gang import NATIVE, PodGroup, Verdict
from muster.model.text import clean, shorten

CONDITIONS = ("PodGroupScheduled", "PodGroupInitiallyScheduled")
"""The condition by which kube-scheduler says whether a gang has places: as 1.36 names it, as 1.37 does."""
MAX_MESSAGE = 1000


class _Gang(Struct, frozen=True, rename="camel"):
    min_count: Int32 | None = None


class _Policy(Struct, frozen=True):
    gang: _Gang | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    scheduling_policy: _Policy | None = None


class _Said(Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class _Status(Struct, frozen=True):
    conditions: tuple[_Said, ...] | None = None


class _NativeGroup(Struct, frozen=True):
    metadata: Meta
    spec: _Spec | None = None
    status: _Status | None = None


def read_native_group(raw: bytes) -> PodGroup:
    """A PodGroup of Kubernetes itself. Raises UnreadableError naming the field."""
    found: _NativeGroup = decode(raw, _NativeGroup)
    policy = (found.spec or _Spec()).scheduling_policy or _Policy()
    return PodGroup(
        ref=found.metadata.ref(NATIVE),
        rv=found.metadata.rv,
        created=found.metadata.created,
        minimum=(policy.gang.min_count or 0) if policy.gang is not None else 0,
        alone=policy.gang is None,
        owner_uid=found.metadata.controller.uid[:128],
        attempt=_attempt(found.metadata.annotations.get(ATTEMPT, "")),
        verdict=_verdict((found.status or _Status()).conditions or ()),
    )


def _attempt(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _verdict(conditions: tuple[_Said, ...]) -> Verdict | None:
    """What the condition says; None while kube-scheduler has not tried."""
    for each in conditions:
        if each.type in CONDITIONS and each.status in ("True", "False"):
            message = shorten(clean(each.message), MAX_MESSAGE)
            since = parse_time(each.last_transition_time)
            return Verdict(each.status == "True", shorten(clean(each.reason), 64), message, since)
    return None
