"""How pods say that they belong to a gang: spec.schedulingGroup, labels, a PodGroup, or koordinator's annotations.

Which gang a pod means is its name; how many pods that takes, how they are counted, with which other gangs they start
and how long one attempt may last comes from the PodGroup of that name, else from the pod itself. What makes a gang
(its name, its minimum) is refused when it cannot be read; everything else then counts as not said, and is complained
about, so that a typing error shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from muster.core.objects.meta import MADE_FOR, SHOWN, Int32, Meta, decode, is_name, is_namespace
from muster.model.gang import PodGroup
from muster.model.text import clean, shorten
from muster.model.workload import PodState

SIGS = "pod-group.scheduling.sigs.k8s.io"
X_K8S = "scheduling.x-k8s.io/pod-group"
KOORDINATOR = "gang.scheduling.koordinator.sh"
NAME_LABELS = (SIGS, f"{SIGS}/name", X_K8S)
"""Labels that name a gang, the first one that is there counts; the annotation comes after all of them."""
NAME_ANNOTATION = f"{KOORDINATOR}/name"
MIN_LABEL, MIN_ANNOTATION = f"{SIGS}/min-available", f"{KOORDINATOR}/min-available"
GROUPS = (f"{SIGS}/groups", f"{KOORDINATOR}/groups")
POLICY, POLICY_ANNOTATION = f"{SIGS}/match-policy", f"{KOORDINATOR}/match-policy"
WAITING_TIME = f"{KOORDINATOR}/waiting-time"

DEFAULT_TIMEOUT_MS = 600_000
MAX_GANGS = 64
"""Gangs that one group may have."""
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
    """What a pod and its PodGroup say about the gang it belongs to."""

    gang: str
    """namespace/name."""
    way: Way
    minimum: int = 0
    """0 when nobody says: such a gang is not tried. Also where its pods start one by one, and nothing is refused."""
    policy: MatchPolicy = DEFAULT_POLICY
    group: tuple[str, ...] = ()
    """The gangs that start together, sorted, itself among them."""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    refusal: str = ""
    """Why it cannot be a gang, naming the key; empty when it can."""
    complaints: tuple[str, ...] = ()
    """What was not understood and counts as not said."""


# --- reading ----------------------------------------------------------------------------------------------------


class _PodGroupSpec(Struct, frozen=True, rename="camel"):
    min_member: Int32 | None = None
    schedule_timeout_seconds: Int32 | None = None


class _PodGroup(Struct, frozen=True, rename="camel"):
    metadata: Meta
    spec: _PodGroupSpec | None = None


KEPT = (*GROUPS, POLICY, POLICY_ANNOTATION, WAITING_TIME)
"""Annotations of a PodGroup that say something about its gang."""
MARKS = (NAME_ANNOTATION, MIN_ANNOTATION, *KEPT)
"""Annotations of a pod that do."""


def read_pod_group(raw: bytes, kind: str = "PodGroup") -> PodGroup:
    """A PodGroup object. ``kind`` tells those of the two API groups apart. Raises UnreadableError naming the field."""
    found: _PodGroup = decode(raw, _PodGroup)
    spec = found.spec or _PodGroupSpec()
    return PodGroup(
        ref=found.metadata.ref(kind),
        rv=found.metadata.rv,
        created=found.metadata.created,
        minimum=spec.min_member or 0,
        timeout_s=spec.schedule_timeout_seconds or 0,
        annotations={key: found.metadata.annotations[key] for key in KEPT if key in found.metadata.annotations},
        made=MADE_FOR in found.metadata.annotations,
        shown=found.metadata.annotations.get(SHOWN, "")[:64],
    )


def counting(found: Iterable[PodGroup], *, native: bool = False) -> PodGroup | None:
    """Which of the PodGroups of one name counts; None when there is none.

    ``native``: for pods whose spec names it, which is that of Kubernetes itself and no other. Else there may be one in
    each of the other API groups: the one that the documents of ACK describe (``scheduling.sigs.k8s.io``) comes
    first. Two of one group are the old and the new object of a name, met in the wrong order: the older one counts
    until it is seen to be gone.
    """
    those = (each for each in found if each.native == native)
    return min(those, key=lambda each: (each.ref.kind, each.created, each.ref.uid), default=None)


def name_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[str, str, Way] | None:
    """(name, key, way) of the gang a pod means; None for a pod of no gang."""
    for key in NAME_LABELS:
        if labels.get(key):
            return labels[key], key, "labels"
    name = annotations.get(NAME_ANNOTATION, "")
    return (name, NAME_ANNOTATION, "annotations") if name else None


def declared_by(pod: PodState, pod_group: PodGroup | None = None) -> Declared | None:
    """What a pod says of its gang, together with the PodGroup that counts for it; its spec beats its marks."""
    if pod.group:
        return _native(pod.ref.namespace, pod.group, pod_group)
    return declare(pod.ref.namespace, pod.labels, pod.marks, pod_group)


def _native(namespace: str, name: str, pod_group: PodGroup | None) -> Declared:
    """Pods that run count towards the minimum, as kube-scheduler counts them."""
    gang, refusal = f"{namespace}/{shorten(clean(name), 300)}", ""
    if pod_group is None:
        refusal = f"spec.schedulingGroup: PodGroup {gang} of scheduling.k8s.io does not exist; create it"
    elif not pod_group.alone and pod_group.minimum < 1:
        refusal = f"spec.schedulingPolicy.gang.minCount of PodGroup {gang}: {pod_group.minimum} is not 1 or more"
    minimum = max(pod_group.minimum, 0) if pod_group is not None else 0
    return Declared(
        gang=gang, way="native", minimum=minimum, policy="waiting-and-running", group=(gang,), refusal=refusal
    )


def declare(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], pod_group: PodGroup | None = None
) -> Declared | None:
    """What a pod says of its gang, together with the PodGroup of that name in its namespace, if there is one."""
    named = name_of(labels, annotations)
    if named is None:
        return None
    name, key, way = named
    gang = f"{namespace}/{shorten(clean(name), 300)}"
    if not is_name(name) or (way == "labels" and len(name) > MAX_LABEL):
        return Declared(gang=gang, way=way, group=(gang,), refusal=f"{key}: {_shown(name)} {_NOT_A_NAME}")
    complaints: list[str] = []
    if pod_group is not None:
        way = "pod_group"
        minimum, refusal = pod_group.minimum, ""
        if minimum < 1:
            refusal = f"spec.minMember of PodGroup {gang}: {minimum} is not 1 or more"
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


_NOT_A_NAME = "is not a name of small letters, digits, - and ., at most 63 characters as a label"


def _minimum(labels: Mapping[str, str], annotations: Mapping[str, str], gang: str) -> tuple[int, str]:
    for key, texts in ((MIN_LABEL, labels), (MIN_ANNOTATION, annotations)):
        if key in texts:
            text = texts[key]
            if re.fullmatch(r"[0-9]{1,10}", text) and 1 <= int(text) < 2**31:
                return int(text), ""
            return 0, f"{key}: {_shown(text)} is not a count of 1 or more"
    return 0, f"nothing says how many pods gang {gang} takes: set {MIN_LABEL}, or create a PodGroup of that name"


def _policy(
    way: Way,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    pod_group: PodGroup | None,
    complaints: list[str],
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
            complaints.append(f"{key}: {_shown(texts[key])} is none of {', '.join(POLICIES)}; {DEFAULT_POLICY} is used")
            return DEFAULT_POLICY
        if way == "annotations" and policy != DEFAULT_POLICY:
            complaints.append(f"{key}: gangs declared by annotations know {DEFAULT_POLICY} only; {policy} is ignored")
            return DEFAULT_POLICY
        return policy
    return DEFAULT_POLICY


def _group(
    gang: str, annotations: Mapping[str, str], pod_group: PodGroup | None, complaints: list[str]
) -> tuple[str, ...]:
    sources = [annotations] if pod_group is None else [pod_group.annotations, annotations]
    for texts in sources:
        for key in GROUPS:
            if texts.get(key):
                found, problem = _gangs(texts[key])
                if not problem and found and gang not in found:
                    problem = f"does not name gang {gang} itself"
                if problem:
                    complaints.append(f"{key}: {problem}; gang {gang} starts on its own")
                return (gang,) if problem or not found else found
    return (gang,)


def _gangs(text: str) -> tuple[tuple[str, ...], str]:
    """The gangs a JSON list names, sorted, each once; and what is wrong with it."""
    try:
        listed = msgspec.json.decode(text, type=list[str])
    except (ValueError, RecursionError):
        return (), f'{_shown(text)} is not a JSON list such as ["namespace/gang-a", "namespace/gang-b"]'
    if len(listed) > MAX_GANGS:
        return (), f"names {len(listed)} gangs, more than {MAX_GANGS}"
    for each in listed:
        namespace, _, name = each.partition("/")
        if not is_namespace(namespace) or not is_name(name):
            return (), f"{_shown(each)} is not namespace/name"
    return tuple(sorted(dict.fromkeys(listed))), ""


def _timeout(annotations: Mapping[str, str], pod_group: PodGroup | None, complaints: list[str]) -> int:
    if pod_group is not None and pod_group.timeout_s > 0:
        return pod_group.timeout_s * 1000
    if pod_group is not None and pod_group.timeout_s < 0:
        complaints.append(f"spec.scheduleTimeoutSeconds: {pod_group.timeout_s} is not a time; 600 s are used")
    for texts in (annotations,) if pod_group is None else (pod_group.annotations, annotations):
        if WAITING_TIME in texts:
            waiting = duration_ms(texts[WAITING_TIME])
            if waiting:
                return waiting
            shown = _shown(texts[WAITING_TIME])
            complaints.append(f"{WAITING_TIME}: {shown} is not a time such as 30s or 1m30s; 600 s are used")
    return DEFAULT_TIMEOUT_MS


_UNITS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PART = re.compile(r"([0-9]{1,9})(ms|h|m|s)")


def duration_ms(text: str) -> int:
    """A duration as Go writes one, in whole units: ``1h``, ``1m30s``, ``500ms``; 0 when it is none, or not positive."""
    parts = _PART.findall(text[:64])
    if "".join(number + unit for number, unit in parts) != text or not parts:
        return 0
    return min(sum(int(number) * _UNITS[unit] for number, unit in parts), 2**40)


def _shown(text: str) -> str:
    return repr(shorten(text, 64))


# --- a gang from its pods ---------------------------------------------------------------------------------------


class GangCounts(Struct, frozen=True):
    """Pods of one gang: with a place and not bound, running, succeeded; and whether its minimum was reached before."""

    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    satisfied: bool = False


def satisfied(policy: MatchPolicy, minimum: int, counts: GangCounts) -> bool:
    """Whether the pods of a gang that wait with a place may start now."""
    return missing(policy, minimum, counts) <= 0


def missing(policy: MatchPolicy, minimum: int, counts: GangCounts) -> int:
    """How many more pods need a place before those that have one may start; 0 or less when none."""
    match policy:
        case "once-satisfied":
            return 0 if counts.satisfied else minimum - counts.waiting
        case "only-waiting":
            return minimum - counts.waiting
        case "waiting-and-running":
            return minimum - counts.waiting - counts.running
        case "waiting-running-succeed":
            return minimum - counts.waiting - counts.running - counts.succeeded


def priority_clash(gang: str, pods: Iterable[tuple[str, int]]) -> tuple[int, str]:
    """(the priority of a gang, why it is refused): all of its pods (name, priority) have one, or the lowest counts.

    The odd one out is the first by name that differs from the priority most of them have.
    """
    listed = sorted(pods)
    if not listed:
        return 0, ""
    tally: dict[int, int] = {}
    for _, priority in listed:
        tally[priority] = tally.get(priority, 0) + 1
    lowest = min(tally)
    if len(tally) == 1:
        return lowest, ""
    common = min(tally, key=lambda each: (-tally[each], each))
    name, priority = next(pod for pod in listed if pod[1] != common)
    return lowest, (
        f"pods of gang {gang} must have one priority: {name} has {priority}, others have {common}; "
        f"give all of them the same priorityClassName"
    )


def incomplete(declared: Mapping[str, Declared], gang: str) -> str:
    """Why the group of a gang cannot be tried: a gang of it is missing, refused, or names another group; or empty."""
    group = declared[gang].group
    for each in group:
        other = declared.get(each)
        if other is None:
            return f"gang {each} of its group does not exist"
        if other.refusal:
            return f"gang {each} of its group is refused: {other.refusal}"
        if other.group != group:
            return f"gang {each} names another group: {', '.join(other.group)}"
    return ""
