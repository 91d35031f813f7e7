"""The parts common to Kubernetes objects: metadata, conditions, and the labels of quota.

Conditions have one shape for every reader. Labels on workloads name the quota, and whether the workload may be
preempted. Two families of labels count, the first before the second: ``quota.scheduling.alibabacloud.com/`` and
``quota.scheduling.koordinator.sh/``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Struct, field

from muster.model.keys import Ref
from muster.model.problem import FieldProblem, ProblemError, Value, problem
from muster.model.problemcodes import ProblemCode
from muster.model.text import clean, shorten
from muster.model.workload import NO_WISHES, Wishes

# --- conditions -------------------------------------------------------------------------------------------------------


class Condition(Struct, frozen=True):
    """One entry of status.conditions."""

    type: str = ""
    status: str = ""


class ExplainedCondition(Condition, frozen=True):
    """A condition with its cause, without its times."""

    reason: str = ""
    message: str = ""


def is_true(conditions: tuple[Condition, ...] | None, kind: str) -> bool:
    """Whether a condition of the type exists and is true."""
    return any(condition.type == kind and condition.status == "True" for condition in conditions or ())


# --- labels -----------------------------------------------------------------------------------------------------------


_FAMILIES = ("quota.scheduling.alibabacloud.com", "quota.scheduling.koordinator.sh")
_NAMES = tuple(f"{family}/name" for family in _FAMILIES)
QUOTA_NAME = _NAMES[0]
"""Label with the name of a quota."""
PREEMPTIBLE = tuple(f"{family}/preemptible" for family in _FAMILIES)
"""Labels that say whether a job may be evicted."""
KAI_QUEUE = "kai.scheduler/queue"
"""Label with the name of a queue of KAI Scheduler."""
KAI_PRIORITY = "priorityClassName"
"""Label on a workload of such a queue: the PriorityClass, before the PriorityClass of the pods."""
KAI_PREEMPTIBILITY = "kai.scheduler/preemptibility"
KAI_PREEMPTION_DELAY = "kai.scheduler/preemption-delay"
"""Label or annotation: time a job waits before other jobs may be suspended for the job."""
KAI_STALENESS = "kai.scheduler/staleness-grace-period"
"""Label or annotation: time a gang may run with less than its minimum; negative: for ever."""
RAY_NODE, RAY_CLUSTER, RAY_GROUP = "ray.io/is-ray-node", "ray.io/cluster", "ray.io/group"
RAY_NODE_TYPE, RAY_HEAD, RAY_WORKER = "ray.io/node-type", "head", "worker"
"""Labels that KubeRay writes on pods, and the values of the last label."""
RAY_PRIORITY = "ray.io/priority-class-name"
"""Label on objects run by KubeRay: the PriorityClass of the gang, before the PriorityClass of the pods."""
RECLAIM_GRACE = "muster.dev/reclaim-grace"
"""Time the job waits for its guaranteed quota before other jobs are evicted for the job."""
RUN_TIME = "muster.dev/run-time"
"""Longest run time of the job, declared by the owner: from the reservation of quota until the job has left."""
FLAVORS = "muster.dev/flavors"
"""On a job, as label or annotation, and as attribute of a queue: the flavors that may be used, in order: ``h100,a100``.
On a quota tree: the flavors that exist.
"""
FLAVOR_WAIT = "muster.dev/flavor-wait"
"""On a job, as label or annotation: time from the queueing for which the job waits for the first of its flavors."""
ON_FLAVORS = "muster.dev/on-flavors"
"""On an admitted job: what Muster added to its pod templates for the nodes of its flavors, as JSON by pod set."""
TIMES = (KAI_PREEMPTION_DELAY, KAI_STALENESS, RECLAIM_GRACE, RUN_TIME, FLAVOR_WAIT)
KAI_OF_PODS = (KAI_QUEUE, KAI_PRIORITY, KAI_PREEMPTIBILITY)
"""Labels that count on a pod template where the workload has none."""
KEPT = (*_NAMES, *PREEMPTIBLE, KAI_QUEUE, KAI_PRIORITY, KAI_PREEMPTIBILITY)
"""The labels kept of a workload."""
GANG_SWITCH = "ray.io/scheduler-name"
"""Label or annotation of a Ray job: its scheduler, and so a gang."""
KAI = "kai:"
"""Prefix of a requested queue of KAI Scheduler: the name of the queue, and after a slash the named quota."""


def quota_name(labels: Mapping[str, str]) -> str:
    """The bare name of the requested quota, or ``KAI`` and a queue; empty when the namespace decides."""
    if not labels:
        return ""
    named = next(filter(None, map(labels.get, _NAMES)), "")
    queue = labels.get(KAI_QUEUE, "")
    if not queue:
        return named
    return f"{KAI}{queue}/{named}" if named else KAI + queue


def queue_and_quota(named: str) -> tuple[str, str]:
    """(queue of KAI Scheduler, quota) in a result of ``quota_name``; empty where missing."""
    if not named.startswith(KAI):
        return "", named
    queue, _, quota = named[len(KAI) :].partition("/")
    return queue, quota


def is_ray_head(labels: Mapping[str, str]) -> bool:
    """Whether the labels are the labels of a Ray head."""
    return labels.get(RAY_NODE_TYPE) == RAY_HEAD


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Whether a workload may be suspended to release quota; true unless a label says ``false``."""
    return not labels or "false" not in map(labels.get, PREEMPTIBLE)


# --- meta -------------------------------------------------------------------------------------------------------------


PREFIX = "muster.dev"
INTENT = f"{PREFIX}/intent"
QUEUED_AT = f"{PREFIX}/queued-at"
DEQUEUED_AT = f"{PREFIX}/dequeued-at"
CHECKPOINTED_AT = f"{PREFIX}/checkpointed-at"
"""Time of the job's last checkpoint, reported by the job: RFC 3339."""
ENQUEUE_STAMPS = ("kube-queue/job-enqueue-timestamp", "koord-queue/job-enqueue-timestamp")
DEQUEUE_STAMPS = ("kube-queue/job-dequeue-timestamp", "koord-queue/job-dequeue-timestamp")
SUSPEND = "scheduling.x-k8s.io/suspend"
"""Suspends workloads whose operators have no field for suspension; only the value ``true`` suspends."""
GANG = f"{PREFIX}/gang"
"""On pods of a workload placed before the resume: the name of the workload."""
SCHEDULING_GROUP = f"{PREFIX}/scheduling-group"
"""On pods placed by kube-scheduler: the native PodGroup for the spec of the pod."""
ATTEMPT = f"{PREFIX}/attempt"
"""On a native PodGroup: the attempt of the PodGroup's job."""
GPU_DEVICE = f"{PREFIX}/gpu-device"
"""On a pod with shares of GPUs: the shared devices of the node, numbered by muster, separated by commas."""
GPU_GROUPS = f"{PREFIX}/gpu-groups"
"""On such a pod: the sharing group of each device, in the same order."""
GPU_UUIDS = f"{PREFIX}/gpu-uuids"
"""On such a pod: the UUIDs of the devices in the driver, in the same order."""
GPU_PORTION = f"{PREFIX}/gpu-portion"
"""On such a pod: the pod's part of each device."""
GRANTED = f"{PREFIX}/granted"
"""On a self-scaling Ray cluster: the granted replicas of each worker group, as ``big=0,small=2``."""
CEILINGS = f"{PREFIX}/max-replicas"
"""On such a cluster: the owner's largest replicas of each worker group."""
GATE = f"{PREFIX}/gate"
"""On such a cluster: the decision behind the last write of ``maxReplicas``."""
DRIVE = f"{PREFIX}/drive-replicas"
"""On a Ray cluster without an autoscaler: ``true`` lets Muster write ``replicas`` by the waiting tasks."""
DRAIN = f"{PREFIX}/drain"
NODE_WAIT = f"{PREFIX}/node-wait"
"""On a self-scaling Ray cluster: time spans chosen by the owner, see ``model.elastic``."""
START = f"{PREFIX}/start"
"""On such a cluster: with ``minimum`` the cluster is admitted with minReplicas; the rest is granted as the rest
fits."""
IPPR = "ray.io/ippr"
"""On a Ray cluster: the largest sizes of pods resized in place by Ray's autoscaler (from Ray 2.60 on), as JSON."""
OWN_IPPR = f"{PREFIX}/ippr"
"""On such a cluster: the owner's own value of ``ray.io/ippr``."""
RESIZE = f"{PREFIX}/resize"
"""On such a cluster: the allowed sizes of the pods now, as ``small/cpu=4000m,small/memory=8589934592``."""
SHOWN = f"{PREFIX}/shown"
"""Fingerprint of our last write on an object."""
OWNER = f"{PREFIX}/owner"
"""Label or annotation on a job: the user or the team that owns the job."""
MADE_FOR = f"{PREFIX}/made-for"
"""On a PodGroup made by muster: the requester of the PodGroup."""
PRIORITY = f"{PREFIX}/priority"
HOLD = f"{PREFIX}/hold"
CHANGED_BY = f"{PREFIX}/changed-by"
CHANGE_REASON = f"{PREFIX}/change-reason"
MAX_REASON = 500

STAMPS = (QUEUED_AT, *ENQUEUE_STAMPS, DEQUEUED_AT, *DEQUEUE_STAMPS, CHECKPOINTED_AT)
"""Annotations with a moment."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    HOLD: ("true", "false"),
    DRIVE: ("true", "false"),
    SUSPEND: ("true", "false"),
    START: ("minimum",),
}
"""Annotations with one of these values."""

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Numbers of Kubernetes' width: JSON has no limit, and muster has to store kept numbers again."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAMESPACE = re.compile(_LABEL)
_UID = re.compile(r"[!-~]{1,128}")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
MAX_NAME = 253
MAX_NAMESPACE = 63


def is_name(text: str) -> bool:
    """Whether the API server takes a text as the name of an object."""
    return len(text) <= MAX_NAME and _SUBDOMAIN.fullmatch(text) is not None


def is_namespace(text: str) -> bool:
    """Whether the API server takes a text as the name of a namespace."""
    return len(text) <= MAX_NAMESPACE and _NAMESPACE.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Whether the API server takes a text as the value of a label."""
    return _LABEL_VALUE.fullmatch(text) is not None


def version_of(text: str) -> int | None:
    """A resourceVersion as an integer; None for any other text: plain digits, at most an etcd revision."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    number = int(text)
    return number if number < 2**63 else None


class UnreadableError(ProblemError):
    """An object cannot be used as input."""


def unreadable(
    path: str, code: ProblemCode, because: FieldProblem | None = None, /, **values: Value
) -> UnreadableError:
    """The error for one broken rule."""
    return UnreadableError(problem(path, code, because, **values))


class Owner(Struct, frozen=True, rename="camel"):
    """One entry of metadata.ownerReferences."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Managed(Struct, frozen=True, rename={"fields_v1": "fieldsV1"}):
    """An entry of metadata.managedFields."""

    manager: str = ""
    time: str = ""
    fields_v1: dict[str, Any] = field(default_factory=dict)


def _managed(raw: bytes) -> list[Managed]:
    try:
        return msgspec.json.decode(raw, type=list[Managed])
    except msgspec.MsgspecError:
        return []


def _has(fields: Any, steps: list[str]) -> bool:
    for step in steps:
        fields = fields.get(step) if isinstance(fields, dict) else None
    return fields is not None


class Meta(Struct, frozen=True, rename="camel"):
    """The metadata fields read by Muster."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    generation: Int64 = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: msgspec.Raw = msgspec.Raw()

    def writer_of(self, path: str) -> str:
        """The field manager that wrote a field (``spec.suspend``) last: a name of 64 characters, or empty."""
        if not self.managed_fields:
            return ""
        steps = [f"f:{step}" for step in path.split(".")]
        written = [entry for entry in _managed(self.managed_fields) if _has(entry.fields_v1, steps)]
        return clean(max(written, key=lambda entry: entry.time).manager[:64]) if written else ""

    @property
    def rv(self) -> int:
        """ResourceVersion as an integer; raises UnreadableError for any other text."""
        version = version_of(self.resource_version)
        if version is None:
            raise unreadable("metadata.resourceVersion", "not_an_integer", value=shorten(self.resource_version, 64))
        return version

    @property
    def created(self) -> int:
        """creationTimestamp, ms since the epoch, 0 when missing; raises UnreadableError for an invalid time."""
        if not self.creation_timestamp:
            return 0
        created = parse_time(self.creation_timestamp)
        if not created:
            raise unreadable("metadata.creationTimestamp", "not_a_time", value=shorten(self.creation_timestamp, 64))
        return created

    @property
    def controller(self) -> Owner:
        """The controlling owner; an empty owner when the object has no controller."""
        return next((owner for owner in self.owner_references if owner.controller), Owner())

    def ref(self, kind: str) -> Ref:
        """The identity of the object; raises UnreadableError for an identity not possible on an API server."""
        if not is_name(self.name):
            raise unreadable("metadata.name", "not_a_name", value=shorten(self.name, 64))
        if self.namespace and not is_namespace(self.namespace):
            raise unreadable("metadata.namespace", "not_a_namespace", value=shorten(self.namespace, 64))
        if not _UID.fullmatch(self.uid):
            raise unreadable("metadata.uid", "not_a_uid", value=shorten(self.uid, 64))
        return Ref(kind, self.namespace, self.name, self.uid)


def wishes(annotations: dict[str, str]) -> Wishes:
    """The users' wishes for the object. Raises UnreadableError for a priority outside of 32-bit integers."""
    text, priority = annotations.get(PRIORITY, ""), None
    if text:
        if not re.fullmatch(r"-?[0-9]{1,10}", text) or not -(2**31) <= int(text) < 2**31:
            raise unreadable(f"metadata.annotations[{PRIORITY}]", "not_int32", value=shorten(text, 64))
        priority = int(text)
    hold = annotations.get(HOLD, "false") != "false"
    by, reason = (clean(annotations.get(key, "")[:200]) for key in (CHANGED_BY, CHANGE_REASON))
    # A user that starts a job without an admission is recorded here, and has no wish.
    if priority is None and not hold and not by:
        return NO_WISHES
    return Wishes(priority=priority, hold=hold, by=by, reason=reason)


def decode(raw: bytes, shape: type[Any]) -> Any:
    """The object as ``shape``; raises UnreadableError naming the path of the first wrong field."""
    try:
        return _decoder(shape).decode(raw)
    except RecursionError as err:
        raise unreadable("object", "nested_too_deeply") from err
    except ValueError as err:  # a byte that is no UTF-8 inside a text is not a DecodeError
        raise UnreadableError(not_decoded(str(err))) from err


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(shape: type[Any]) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    return decoder


def not_decoded(message: str) -> FieldProblem:
    """The message of a decoder, with the path of the field.

    msgspec's ``Expected `int`, got `str` - at `$.spec.replicas``` becomes ``expected int, got str`` of
    ``spec.replicas``.
    """
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message, re.DOTALL)
    where, message_text = (
        (match[2] or "object", match[1][:1].lower() + match[1][1:]) if match is not None else ("object", message)
    )
    return problem(where.replace("`", ""), "not_decoded", said=message_text.replace("`", "")[:MAX_REASON])


LATEST_MS = 253_370_764_800_000
"""The year 9999: later times are no times, so that the sum of a time and a span can still be written."""

_GO_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.\d+)? ([+-]\d\d)(\d\d)( [A-Za-z0-9+-]{1,10})?( m=[+-][0-9.]+)?"
)


def parse_time(text: str) -> int:
    """A timestamp as ms since the epoch, 0 for an unreadable text.

    Reads RFC 3339 and the text Go prints for a time in any zone, with or without the name of the zone and the
    monotonic part (``2025-01-10 09:36:24.298639916 +0800 CST m=+132100.25``), as in the kube-queue annotations.
    """
    text = text.strip()
    if not text or len(text) > 80:
        return 0
    text = f"{text[:-1]}Z" if text.endswith("z") else text  # RFC 3339 allows small letters.
    match = _GO_TIME.fullmatch(text)
    if match:
        text = f"{match[1]}T{match[2]}{(match[3] or '')[:7]}{match[4]}:{match[5]}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - _EPOCH
    ms = (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000
    return ms if 0 < ms < LATEST_MS else 0


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(ms: int) -> str:
    """``2025-01-10T01:36:24.298Z``; whole seconds without a fraction."""
    seconds, rest = divmod(ms, 1000)
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp}.{rest:03d}Z" if rest else f"{stamp}Z"


def go_time(ms: int) -> str:
    """``2025-01-10 01:36:24.298 +0000 UTC``: a time as Go prints, for the kube-queue annotations."""
    seconds, rest = divmod(ms, 1000)
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    fraction = f".{rest:03d}".rstrip("0").rstrip(".")
    return f"{stamp}{fraction} +0000 UTC"


def not_understood(annotations: Mapping[str, str]) -> dict[str, str]:
    """The moments and choices among the annotations with a value that no reader understands, cut to 40 characters."""
    odd = {key: annotations[key] for key in STAMPS if annotations.get(key) and not parse_time(annotations[key])}
    odd |= {key: annotations[key] for key, among in CHOICES.items() if annotations.get(key, among[0]) not in among}
    return {key: text[:40] for key, text in odd.items()}


def first_stamp(annotations: dict[str, str], *keys: str) -> int:
    """The first readable timestamp among the annotations, ms since the epoch; 0 when there is none."""
    return next((ms for key in keys if (ms := parse_time(annotations.get(key, "")))), 0)


def sealed(shown: str, content: str) -> str:
    """Value of annotation SHOWN: the fingerprint of the desired state, and the digest of the written fields."""
    return f"{shown}.{content}"


def unsealed(seal: str, content: str) -> str:
    """The fingerprint in a value of ``sealed``; empty where another client has changed the object since."""
    shown, _, written = seal[:64].partition(".")
    return shown if not written or written == content else ""


def digest(value: object) -> str:
    """A short stable fingerprint of a struct's content."""
    return hashlib.blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=8).hexdigest()
