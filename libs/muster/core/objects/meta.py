"""The parts that Kubernetes objects share: metadata, conditions, and labels that quota knows.

Conditions, as the status of most objects has them: one shape for every reader.

Labels on workloads that quota knows: which quota it belongs to, and whether it may be preempted.

Both families count, the first before the second: ``quota.scheduling.alibabacloud.com/`` and
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
    """The same with its cause; without its times."""

    reason: str = ""
    message: str = ""


def is_true(conditions: tuple[Condition, ...] | None, kind: str) -> bool:
    """Whether there is a condition of that type and it is true."""
    return any(each.type == kind and each.status == "True" for each in conditions or ())


# --- labels -----------------------------------------------------------------------------------------------------------


_FAMILIES = ("quota.scheduling.alibabacloud.com", "quota.scheduling.koordinator.sh")
_NAMES = tuple(f"{family}/name" for family in _FAMILIES)
QUOTA_NAME = _NAMES[0]
"""Label that names a quota."""
_PREEMPTIBLE = tuple(f"{family}/preemptible" for family in _FAMILIES)
KAI_QUEUE = "kai.scheduler/queue"
"""Label that names a queue of KAI Scheduler."""
KAI_PRIORITY = "priorityClassName"
"""Label on a workload of such a queue: its PriorityClass, before what its pods say."""
KAI_PREEMPTIBILITY = "kai.scheduler/preemptibility"
KAI_PREEMPTION_DELAY = "kai.scheduler/preemption-delay"
"""Label or annotation: how long work waits before others may be suspended for it."""
KAI_STALENESS = "kai.scheduler/staleness-grace-period"
"""Label or annotation: how long a gang may run with less than its minimum; negative: for ever."""
RAY_NODE, RAY_CLUSTER, RAY_GROUP = "ray.io/is-ray-node", "ray.io/cluster", "ray.io/group"
RAY_NODE_TYPE, RAY_HEAD, RAY_WORKER = "ray.io/node-type", "head", "worker"
"""Labels that KubeRay gives its pods, and the values of the last one."""
RAY_PRIORITY = "ray.io/priority-class-name"
"""Label on what KubeRay runs: the PriorityClass of its gang, before what its pods say."""
RECLAIM_GRACE = "muster.dev/reclaim-grace"
"""How long the job waits for the quota it is owed before others are evicted for it."""
RUN_TIME = "muster.dev/run-time"
"""How long the job runs at most, as its owner declares: from when its quota is reserved until it has left."""
TIMES = (KAI_PREEMPTION_DELAY, KAI_STALENESS, RECLAIM_GRACE, RUN_TIME)
KAI_OF_PODS = (KAI_QUEUE, KAI_PRIORITY, KAI_PREEMPTIBILITY)
"""Labels that count on a pod template where the workload has none."""
KEPT = (*_NAMES, *_PREEMPTIBLE, KAI_QUEUE, KAI_PRIORITY, KAI_PREEMPTIBILITY)
"""The labels that are kept of a workload."""
KAI = "kai:"
"""In front of the queue that a workload asks for: its name, and after a slash the quota it names as well."""


def quota_name(labels: Mapping[str, str]) -> str:
    """The bare name of the quota a workload asks for, or KAI and a queue; empty when its namespace decides."""
    if not labels:
        return ""
    named = next(filter(None, map(labels.get, _NAMES)), "")
    queue = labels.get(KAI_QUEUE, "")
    if not queue:
        return named
    return f"{KAI}{queue}/{named}" if named else KAI + queue


def queue_and_quota(named: str) -> tuple[str, str]:
    """(the queue of KAI Scheduler, the quota) that ``quota_name`` found, empty where there is none."""
    if not named.startswith(KAI):
        return "", named
    queue, _, quota = named[len(KAI) :].partition("/")
    return queue, quota


def is_ray_head(labels: Mapping[str, str]) -> bool:
    """Whether these are the labels of the head of a Ray cluster."""
    return labels.get(RAY_NODE_TYPE) == RAY_HEAD


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Whether a workload may be suspended to release quota; true unless a label says ``false``."""
    return not labels or "false" not in map(labels.get, _PREEMPTIBLE)


# --- meta -------------------------------------------------------------------------------------------------------------


PREFIX = "muster.dev"
INTENT = f"{PREFIX}/intent"
QUEUED_AT = f"{PREFIX}/queued-at"
DEQUEUED_AT = f"{PREFIX}/dequeued-at"
CHECKPOINTED_AT = f"{PREFIX}/checkpointed-at"
"""When a job saved its work last, as it says itself: RFC 3339."""
ENQUEUE_STAMPS = ("kube-queue/job-enqueue-timestamp", "koord-queue/job-enqueue-timestamp")
DEQUEUE_STAMPS = ("kube-queue/job-dequeue-timestamp", "koord-queue/job-dequeue-timestamp")
SUSPEND = "scheduling.x-k8s.io/suspend"
"""Suspends workloads of operators that know no field for it; of its values, only ``true`` does."""
GANG = f"{PREFIX}/gang"
"""On pods of a workload that was placed before it was resumed: its name."""
SCHEDULING_GROUP = f"{PREFIX}/scheduling-group"
"""On pods of a workload that kube-scheduler places: the PodGroup of Kubernetes itself that their spec is to name."""
ATTEMPT = f"{PREFIX}/attempt"
"""On such a PodGroup: the attempt of the job that it was made for."""
GPU_DEVICE = f"{PREFIX}/gpu-device"
"""On a pod that takes shares of GPUs: which of the shared devices of its node, as we count them, with commas."""
GPU_GROUPS = f"{PREFIX}/gpu-groups"
"""On such a pod: the group that shares each of these devices, in the same order."""
GPU_UUIDS = f"{PREFIX}/gpu-uuids"
"""On such a pod: the devices as the driver knows them, in the same order."""
GPU_PORTION = f"{PREFIX}/gpu-portion"
"""On such a pod: how much of each device is its own."""
GRANTED = f"{PREFIX}/granted"
"""On a Ray cluster that scales itself: the replicas that are granted to each worker group, as ``big=0,small=2``."""
CEILINGS = f"{PREFIX}/max-replicas"
"""On such a cluster: the most replicas of each worker group that its owner wants."""
GATE = f"{PREFIX}/gate"
"""On such a cluster: the decision by which ``maxReplicas`` was written last."""
DRIVE = f"{PREFIX}/drive-replicas"
"""On a Ray cluster without an autoscaler: ``true`` has Muster write ``replicas`` by its waiting tasks."""
DRAIN = f"{PREFIX}/drain"
NODE_WAIT = f"{PREFIX}/node-wait"
"""On a Ray cluster that scales itself: spans of its owner's choice, see ``model.elastic``."""
START = f"{PREFIX}/start"
"""On such a cluster: ``minimum`` has it admitted with its minReplicas; the rest is granted as it fits."""
IPPR = "ray.io/ippr"
"""On a Ray cluster: how large Ray's autoscaler may make its pods in place (from Ray 2.60 on), as JSON."""
OWN_IPPR = f"{PREFIX}/ippr"
"""On such a cluster: what its owner wrote there."""
RESIZE = f"{PREFIX}/resize"
"""On such a cluster: how large its pods may be made now, as ``small/cpu=4000m,small/memory=8589934592``."""
SHOWN = f"{PREFIX}/shown"
"""Fingerprint of our last write on an object."""
OWNER = f"{PREFIX}/owner"
"""Label or annotation on a job: the user or the team that it belongs to."""
MADE_FOR = f"{PREFIX}/made-for"
"""On a PodGroup that we made: what asked for it."""
PRIORITY = f"{PREFIX}/priority"
HOLD = f"{PREFIX}/hold"
CHANGED_BY = f"{PREFIX}/changed-by"
CHANGE_REASON = f"{PREFIX}/change-reason"
MAX_REASON = 500

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Numbers as wide as Kubernetes has them: JSON itself has no limit, and what is kept must be stored again."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAMESPACE = re.compile(_LABEL)
_UID = re.compile(r"[!-~]{1,128}")
MAX_NAME = 253
MAX_NAMESPACE = 63


def is_name(text: str) -> bool:
    """Whether the API server takes a text as the name of an object."""
    return len(text) <= MAX_NAME and _SUBDOMAIN.fullmatch(text) is not None


def is_namespace(text: str) -> bool:
    """Whether the API server takes a text as the name of a namespace."""
    return len(text) <= MAX_NAMESPACE and _NAMESPACE.fullmatch(text) is not None


def version_of(text: str) -> int | None:
    """A resourceVersion as an integer, None when it is none: plain digits, no more than an etcd revision has."""
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


class Meta(Struct, frozen=True, rename="camel"):
    """metadata, as far as Muster reads it."""

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

    @property
    def rv(self) -> int:
        """ResourceVersion as an integer; raises UnreadableError when it is not one."""
        version = version_of(self.resource_version)
        if version is None:
            raise unreadable("metadata.resourceVersion", "not_an_integer", value=shorten(self.resource_version, 64))
        return version

    @property
    def created(self) -> int:
        """creationTimestamp, ms since the epoch; raises UnreadableError when it is not a time, 0 when there is none."""
        if not self.creation_timestamp:
            return 0
        created = parse_time(self.creation_timestamp)
        if not created:
            raise unreadable("metadata.creationTimestamp", "not_a_time", value=shorten(self.creation_timestamp, 64))
        return created

    @property
    def controller(self) -> Owner:
        """The owner that controls it; an empty one when there is none."""
        return next((owner for owner in self.owner_references if owner.controller), Owner())

    def ref(self, kind: str) -> Ref:
        """Which object this is; raises UnreadableError for an identity no API server gives."""
        if not is_name(self.name):
            raise unreadable("metadata.name", "not_a_name", value=shorten(self.name, 64))
        if self.namespace and not is_namespace(self.namespace):
            raise unreadable("metadata.namespace", "not_a_namespace", value=shorten(self.namespace, 64))
        if not _UID.fullmatch(self.uid):
            raise unreadable("metadata.uid", "not_a_uid", value=shorten(self.uid, 64))
        return Ref(kind, self.namespace, self.name, self.uid)


def wishes(annotations: dict[str, str]) -> Wishes:
    """What people ask for the object. Raises UnreadableError for a priority that is no 32-bit integer."""
    text, priority = annotations.get(PRIORITY, ""), None
    if text:
        if not re.fullmatch(r"-?[0-9]{1,10}", text) or not -(2**31) <= int(text) < 2**31:
            raise unreadable(f"metadata.annotations[{PRIORITY}]", "not_int32", value=shorten(text, 64))
        priority = int(text)
    hold = annotations.get(HOLD, "false") != "false"
    by, reason = (clean(annotations.get(key, "")[:200]) for key in (CHANGED_BY, CHANGE_REASON))
    # A user that starts a job without an admission says so here, and asks for nothing.
    if priority is None and not hold and not by:
        return NO_WISHES
    return Wishes(priority=priority, hold=hold, by=by, reason=reason)


def decode(raw: bytes, shape: type[Any]) -> Any:
    """The object as ``shape``; raises UnreadableError naming the path of the first field that does not fit."""
    try:
        return _decoder(shape).decode(raw)
    except RecursionError as err:
        raise unreadable("object", "nested_too_deeply") from err
    except ValueError as err:  # a byte that is no UTF-8 inside a text is not a DecodeError
        raise UnreadableError(not_decoded(str(err))) from err


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(shape: type[Any]) -> msgspec.json.Decoder[Any]:
    found = _decoders.get(shape)
    if found is None:
        found = _decoders[shape] = msgspec.json.Decoder(shape)
    return found


def not_decoded(message: str) -> FieldProblem:
    """What a decoder says, in its own words, and of which field.

    msgspec's ``Expected `int`, got `str` - at `$.spec.replicas``` becomes ``expected int, got str`` of
    ``spec.replicas``.
    """
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message, re.DOTALL)
    where, said = (
        (match[2] or "object", match[1][:1].lower() + match[1][1:]) if match is not None else ("object", message)
    )
    return problem(where.replace("`", ""), "not_decoded", said=said.replace("`", "")[:MAX_REASON])


LATEST_MS = 253_370_764_800_000
"""The year 9999: a time from then on is no time, so that whatever is added to one can still be written."""

_GO_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.\d+)? \+0000 UTC( m=.*)?")


def parse_time(text: str) -> int:
    """A timestamp as ms since the epoch, 0 when it cannot be read.

    Reads RFC 3339 and the text Go prints for a time, with or without its monotonic part
    (``2025-01-10 01:36:24.298639916 +0000 UTC m=+132100.25``), as the kube-queue annotations hold it.
    """
    if not text or len(text) > 80:
        return 0
    match = _GO_TIME.fullmatch(text)
    if match:
        text = f"{match[1]}T{match[2]}{(match[3] or '')[:7]}+00:00"
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
    """``2025-01-10 01:36:24.298 +0000 UTC``: how Go prints a time, as the kube-queue annotations hold it."""
    seconds, rest = divmod(ms, 1000)
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    fraction = f".{rest:03d}".rstrip("0").rstrip(".")
    return f"{stamp}{fraction} +0000 UTC"


def first_stamp(annotations: dict[str, str], *keys: str) -> int:
    """The first readable timestamp among the annotations, ms since the epoch; 0 when there is none."""
    return next((ms for key in keys if (ms := parse_time(annotations.get(key, "")))), 0)


def digest(value: object) -> str:
    """A short stable fingerprint of a struct's content."""
    return hashlib.blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=8).hexdigest()
