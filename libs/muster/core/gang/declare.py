"""Declarations of gangs by pods: through the API of Kubernetes (``spec.schedulingGroup`` and the PodGroup of
``scheduling.k8s.io``), or through labels.

The shape of these objects is known here only. Versions differ little: where a field has moved or a condition was
renamed, both forms are read. A PodGroup with the policy ``gang`` sets how many pods must have a place together; with
``basic``, pods start singly.

A pod names its gang. The minimum, the policy, the group of gangs and the timeout come from the PodGroup with the name,
or else from the pod. An unreadable name or minimum is refused. Any other unreadable value counts as absent, with a
complaint, so that a typing error shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from muster.core.objects.meta import (
    ATTEMPT,
    MADE_FOR,
    SHOWN,
    Int32,
    Meta,
    decode,
    digest,
    is_name,
    is_namespace,
    parse_time,
    unsealed,
)
from muster.model.gang import NATIVE, PodGroup, Verdict
from muster.model.problem import FieldProblem, problem
from muster.model.text import clean, shorten
from muster.model.workload import PodState

# --- native -----------------------------------------------------------------------------------------------------------


CONDITIONS = ("PodGroupScheduled", "PodGroupInitiallyScheduled")
"""The condition for places of a gang set by kube-scheduler: the name in 1.36, and the name in 1.37."""
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
    """A PodGroup of Kubernetes. Raises UnreadableError naming the field."""
    group: _NativeGroup = decode(raw, _NativeGroup)
    policy = (group.spec or _Spec()).scheduling_policy or _Policy()
    return PodGroup(
        ref=group.metadata.ref(NATIVE),
        rv=group.metadata.rv,
        created=group.metadata.created,
        minimum=(policy.gang.min_count or 0) if policy.gang is not None else 0,
        alone=policy.gang is None,
        owner_uid=group.metadata.controller.uid[:128],
        attempt=_attempt(group.metadata.annotations.get(ATTEMPT, "")),
        verdict=_verdict((group.status or _Status()).conditions or ()),
    )


def _attempt(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _verdict(conditions: tuple[_Said, ...]) -> Verdict | None:
    """The verdict in the condition; None before the first try of kube-scheduler."""
    for condition in conditions:
        if condition.type in CONDITIONS and condition.status in ("True", "False"):
            message = shorten(clean(condition.message), MAX_MESSAGE)
            since = parse_time(condition.last_transition_time)
            return Verdict(condition.status == "True", shorten(clean(condition.reason), 64), message, since)
    return None


# --- declare ----------------------------------------------------------------------------------------------------------


SIGS = "pod-group.scheduling.sigs.k8s.io"
X_K8S = "scheduling.x-k8s.io/pod-group"
KOORDINATOR = "gang.scheduling.koordinator.sh"
NAME_LABELS = (SIGS, f"{SIGS}/name", X_K8S)
"""Labels that name a gang. The first label present counts; the annotation comes last."""
NAME_ANNOTATION = f"{KOORDINATOR}/name"
MIN_LABEL, MIN_ANNOTATION = f"{SIGS}/min-available", f"{KOORDINATOR}/min-available"
GROUPS = (f"{SIGS}/groups", f"{KOORDINATOR}/groups")
POLICY, POLICY_ANNOTATION = f"{SIGS}/match-policy", f"{KOORDINATOR}/match-policy"
WAITING_TIME = f"{KOORDINATOR}/waiting-time"

DEFAULT_TIMEOUT_MS = 600_000
MAX_GANGS = 64
"""The most gangs of a group."""
MAX_LABEL = 63

MatchPolicy = Literal["once-satisfied", "only-waiting", "waiting-and-running", "waiting-running-succeed"]
"""What counts towards the minimum of a gang besides pods that wait with a place:

once-satisfied           nothing; but once it was reached, later pods are ordinary ones
only-waiting             nothing: a pod that is replaced needs a full new set
waiting-and-running      pods that run
waiting-running-succeed  pods that run, and pods that have succeeded
"""
DEFAULT_POLICY: MatchPolicy = "once-satisfied"
POLICIES: dict[str, MatchPolicy] = {policy: policy for policy in get_args(MatchPolicy)}

Way = Literal["labels", "annotations", "pod_group", "native"]


class Declared(Struct, frozen=True, kw_only=True):
    """The declaration of a gang by a pod and its PodGroup."""

    gang: str
    """namespace/name."""
    way: Way
    minimum: int = 0
    """0 where no pod has a minimum: such a gang is not tried. Also 0 without a refusal where pods start singly."""
    policy: MatchPolicy = DEFAULT_POLICY
    group: tuple[str, ...] = ()
    """The gangs that start together, sorted, with this gang."""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    refusal: FieldProblem | None = None
    """The reason why the pods are no gang, with the key; None without a reason."""
    complaints: tuple[FieldProblem, ...] = ()
    """Values not understood and taken as absent."""


# --- reading ----------------------------------------------------------------------------------------------------


class _PodGroupSpec(Struct, frozen=True, rename="camel"):
    min_member: Int32 | None = None
    schedule_timeout_seconds: Int32 | None = None


class _PodGroup(Struct, frozen=True, rename="camel"):
    metadata: Meta
    spec: _PodGroupSpec | None = None
    status: dict[str, Any] | None = None


KEPT = (*GROUPS, POLICY, POLICY_ANNOTATION, WAITING_TIME)
"""Annotations of a PodGroup about its gang."""
MARKS = (NAME_ANNOTATION, MIN_ANNOTATION, *KEPT)
"""Annotations of a pod about its gang."""


def read_pod_group(raw: bytes, kind: str = "PodGroup") -> PodGroup:
    """A PodGroup object. ``kind`` separates the PodGroups of the two API groups. Raises UnreadableError naming the
    field.
    """
    group: _PodGroup = decode(raw, _PodGroup)
    spec = group.spec or _PodGroupSpec()
    return PodGroup(
        ref=group.metadata.ref(kind),
        rv=group.metadata.rv,
        created=group.metadata.created,
        minimum=spec.min_member or 0,
        timeout_s=spec.schedule_timeout_seconds or 0,
        annotations={key: group.metadata.annotations[key] for key in KEPT if key in group.metadata.annotations},
        made=MADE_FOR in group.metadata.annotations,
        shown=unsealed(group.metadata.annotations.get(SHOWN, ""), status_content(group.status or {})),
    )


_OURS = ("phase", "running", "succeeded", "failed", "scheduled", "occupiedBy")


def status_content(status: Mapping[str, object]) -> str:
    """Digest of the fields of a PodGroup's status that Muster writes."""
    return digest([status.get(key) for key in _OURS])


def counting(groups: Iterable[PodGroup], *, native: bool = False) -> PodGroup | None:
    """The valid PodGroup among the PodGroups of a name; None without a PodGroup.

    ``native``: for pods with ``spec.schedulingGroup``, only a PodGroup of Kubernetes is valid. Otherwise each other API
    group may have a PodGroup: the group in the documents of ACK (``scheduling.sigs.k8s.io``) comes first. Two PodGroups
    of an API group are the old and the new object of the name, seen in the wrong order: the older is valid until gone.
    """
    those = (group for group in groups if group.native == native)
    return min(those, key=lambda group: (group.ref.kind, group.created, group.ref.uid), default=None)


def name_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[str, str, Way] | None:
    """(name, key, way) of the gang a pod means; None for a pod of no gang."""
    for key in NAME_LABELS:
        if labels.get(key):
            return labels[key], key, "labels"
    name = annotations.get(NAME_ANNOTATION, "")
    return (name, NAME_ANNOTATION, "annotations") if name else None


def declared_by(pod: PodState, pod_group: PodGroup | None = None) -> Declared | None:
    """The declaration of a pod with its valid PodGroup; the spec of the pod comes before its marks."""
    if pod.group:
        return _native(pod.ref.namespace, pod.group, pod_group)
    return declare(pod.ref.namespace, pod.labels, pod.marks, pod_group)


def _native(namespace: str, name: str, pod_group: PodGroup | None) -> Declared:
    """Running pods count towards the minimum, as in kube-scheduler."""
    gang, refusal = f"{namespace}/{shorten(clean(name), 300)}", None
    if pod_group is None:
        refusal = problem("spec.schedulingGroup", "pod_group_missing", gang=gang)
    elif not pod_group.alone and pod_group.minimum < 1:
        where = "spec.schedulingPolicy.gang.minCount"
        refusal = problem(where, "pod_group_too_small", gang=gang, value=pod_group.minimum)
    minimum = max(pod_group.minimum, 0) if pod_group is not None else 0
    return Declared(
        gang=gang, way="native", minimum=minimum, policy="waiting-and-running", group=(gang,), refusal=refusal
    )


def declare(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], pod_group: PodGroup | None = None
) -> Declared | None:
    """The declaration in labels and annotations of a pod, with the PodGroup of the name in the namespace, if any."""
    named = name_of(labels, annotations)
    if named is None:
        return None
    name, key, way = named
    gang = f"{namespace}/{shorten(clean(name), 300)}"
    if not is_name(name) or (way == "labels" and len(name) > MAX_LABEL):
        return Declared(
            gang=gang, way=way, group=(gang,), refusal=problem(key, "not_a_gang_name", value=shorten(name, 64))
        )
    complaints: list[FieldProblem] = []
    if pod_group is not None:
        way = "pod_group"
        minimum, refusal = pod_group.minimum, None
        if minimum < 1:
            refusal = problem("spec.minMember", "pod_group_too_small", gang=gang, value=minimum)
    else:
        minimum, refusal = _minimum(labels, annotations, gang)
    return Declared(
        gang=gang,
        way=way,
        minimum=max(minimum, 0),
        policy=_policy(way, labels, annotations, pod_group, complaints),
        group=_group(gang, annotations, pod_group, complaints),
        timeout_ms=_timeout(annotations, pod_group, complaints),
        refusal=refusal,
        complaints=tuple(complaints),
    )


def _minimum(labels: Mapping[str, str], annotations: Mapping[str, str], gang: str) -> tuple[int, FieldProblem | None]:
    for key, texts in ((MIN_LABEL, labels), (MIN_ANNOTATION, annotations)):
        if key in texts:
            text = texts[key]
            if re.fullmatch(r"[0-9]{1,10}", text) and 1 <= int(text) < 2**31:
                return int(text), None
            return 0, problem(key, "not_a_gang_minimum", value=shorten(text, 64))
    return 0, problem("", "gang_minimum_missing", gang=gang, key=MIN_LABEL)


def _policy(
    way: Way,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    pod_group: PodGroup | None,
    complaints: list[FieldProblem],
) -> MatchPolicy:
    places: list[tuple[str, Mapping[str, str]]] = [(POLICY, labels), (POLICY, annotations)]
    if pod_group is not None:
        places = [(POLICY, pod_group.annotations), (POLICY_ANNOTATION, pod_group.annotations), *places]
    places.append((POLICY_ANNOTATION, annotations))
    for key, texts in places:
        if key not in texts:
            continue
        policy = POLICIES.get(texts[key])
        if policy is None:
            given, choices = shorten(texts[key], 64), tuple(POLICIES)
            complaints.append(problem(key, "match_policy_unknown", value=given, choices=choices, used=DEFAULT_POLICY))
            return DEFAULT_POLICY
        if way == "annotations" and policy != DEFAULT_POLICY:
            complaints.append(problem(key, "match_policy_ignored", value=policy, used=DEFAULT_POLICY))
            return DEFAULT_POLICY
        return policy
    return DEFAULT_POLICY


def _group(
    gang: str, annotations: Mapping[str, str], pod_group: PodGroup | None, complaints: list[FieldProblem]
) -> tuple[str, ...]:
    sources = [annotations] if pod_group is None else [pod_group.annotations, annotations]
    for texts in sources:
        for key in GROUPS:
            if texts.get(key):
                gangs, wrong = _gangs(texts[key], key)
                if wrong is None and gangs and gang not in gangs:
                    wrong = problem(key, "gangs_without_itself", gang=gang)
                if wrong is not None:
                    complaints.append(problem("", "gang_starts_alone", wrong, gang=gang))
                return (gang,) if wrong is not None or not gangs else gangs
    return (gang,)


def _gangs(text: str, key: str) -> tuple[tuple[str, ...], FieldProblem | None]:
    """(gangs in a JSON list, sorted, without doubles; the problem, or None)."""
    try:
        listed = msgspec.json.decode(text, type=list[str])
    except (ValueError, RecursionError):
        return (), problem(key, "gangs_no_list", value=shorten(text, 64))
    if len(listed) > MAX_GANGS:
        return (), problem(key, "many_gangs", count=len(listed), most=MAX_GANGS)
    for listed_gang in listed:
        namespace, _, name = listed_gang.partition("/")
        if not is_namespace(namespace) or not is_name(name):
            return (), problem(key, "not_a_gang", value=shorten(listed_gang, 64))
    return tuple(sorted(dict.fromkeys(listed))), None


def _timeout(annotations: Mapping[str, str], pod_group: PodGroup | None, complaints: list[FieldProblem]) -> int:
    if pod_group is not None and pod_group.timeout_s > 0:
        return pod_group.timeout_s * 1000
    if pod_group is not None and pod_group.timeout_s < 0:
        complaints.append(problem("spec.scheduleTimeoutSeconds", "timeout_no_time", value=pod_group.timeout_s))
    for texts in (annotations,) if pod_group is None else (pod_group.annotations, annotations):
        if WAITING_TIME in texts:
            waiting = duration_ms(texts[WAITING_TIME])
            if waiting:
                return waiting
            complaints.append(problem(WAITING_TIME, "waiting_no_time", value=shorten(texts[WAITING_TIME], 64)))
    return DEFAULT_TIMEOUT_MS


_UNITS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PART = re.compile(r"([0-9]{1,9})(ms|h|m|s)")


def duration_ms(text: str) -> int:
    """A duration in Go syntax in whole units, as ms: ``1h``, ``1m30s``, ``500ms``; 0 for any other text."""
    parts = _PART.findall(text[:64])
    if "".join(number + unit for number, unit in parts) != text or not parts:
        return 0
    return min(sum(int(number) * _UNITS[unit] for number, unit in parts), 2**40)


# --- a gang from its pods ---------------------------------------------------------------------------------------


class GangCounts(Struct, frozen=True):
    """Pods of a gang: placed and not bound, running, succeeded; and whether the minimum was reached before."""

    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    satisfied: bool = False


def satisfied(policy: MatchPolicy, minimum: int, counts: GangCounts) -> bool:
    """Whether the placed pods of a gang may start now."""
    return missing(policy, minimum, counts) <= 0


def missing(policy: MatchPolicy, minimum: int, counts: GangCounts) -> int:
    """The number of further pods to place before the placed pods may start; 0 or less without need."""
    match policy:
        case "once-satisfied":
            return 0 if counts.satisfied else minimum - counts.waiting
        case "only-waiting":
            return minimum - counts.waiting
        case "waiting-and-running":
            return minimum - counts.waiting - counts.running
        case "waiting-running-succeed":
            return minimum - counts.waiting - counts.running - counts.succeeded


def priority_clash(gang: str, pods: Iterable[tuple[str, int]]) -> tuple[int, FieldProblem | None]:
    """(priority of a gang, problem): the common priority of all pods (name, priority), or the lowest with the problem.

    The problem names the first pod by name with another priority than the most frequent.
    """
    listed = sorted(pods)
    if not listed:
        return 0, None
    tally: dict[int, int] = {}
    for _, priority in listed:
        tally[priority] = tally.get(priority, 0) + 1
    lowest = min(tally)
    if len(tally) == 1:
        return lowest, None
    common = min(tally, key=lambda level: (-tally[level], level))
    name, priority = next(pod for pod in listed if pod[1] != common)
    return lowest, problem("", "priorities_differ", gang=gang, pod=name, value=priority, common=common)


def incomplete(declared: Mapping[str, Declared], gang: str) -> FieldProblem | None:
    """The obstacle for the group of a gang: a gang missing, refused, or with another group; None
    without an obstacle.
    """
    group = declared[gang].group
    for member in group:
        other = declared.get(member)
        if other is None:
            return problem("", "gang_of_group_missing", gang=member)
        if other.refusal is not None:
            return problem("", "gang_of_group_refused", other.refusal, gang=member)
        if other.group != group:
            return problem("", "gang_of_other_group", gang=member, gangs=other.group)
    return None
