"""Why a pod does not run: its status as one closed code with a few numbers. No free text but the scheduler's causes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from muster.core.objects.conditions import ExplainedCondition
from muster.core.objects.meta import Int32
from muster.core.objects.podspec import Quantity
from muster.model.podtrouble import NodesRefuse, PodCode, PodTrouble
from muster.model.text import clean, shorten

MAX_CAUSES = 8
MAX_WORD = 64
MAX_WORDS = 160
MAX_IMAGE = 256

WAITING: dict[str, PodCode] = {
    "ErrImagePull": "ImagePullBackOff",
    "ImagePullBackOff": "ImagePullBackOff",
    "InvalidImageName": "ImagePullBackOff",
    "ErrImageNeverPull": "ImagePullBackOff",
    "ImageInspectError": "ImagePullBackOff",
    "RegistryUnavailable": "ImagePullBackOff",
    "SignatureValidationFailed": "ImagePullBackOff",
    "CrashLoopBackOff": "CrashLoopBackOff",
    "CreateContainerConfigError": "ContainerNotCreated",
    "CreateContainerError": "ContainerNotCreated",
    "RunContainerError": "ContainerNotCreated",
    "PreCreateHookError": "ContainerNotCreated",
    "PreStartHookError": "ContainerNotCreated",
    "PostStartHookError": "ContainerNotCreated",
}
"""Why a container waits, as the kubelet words it -> our code. A container that is being created is no trouble."""

FAILED: dict[str, PodCode] = {
    "Evicted": "Evicted",
    "Preempting": "Evicted",
    "TerminationByKubelet": "Evicted",
    "DeadlineExceeded": "DeadlineExceeded",
    "NodeLost": "NodeLost",
    "NodeShutdown": "NodeLost",
    "Shutdown": "NodeLost",
    "Terminated": "NodeLost",
}
"""Why a pod failed as a whole, as ``status.reason`` says."""

_AVAILABLE = re.compile(r"0/(\d+) nodes\b")
_CAUSE = re.compile(r"^(\d+) (.+)$", re.DOTALL)


class ContainerWaits(Struct, frozen=True):
    reason: str = ""


class ContainerEnded(Struct, frozen=True, rename="camel"):
    reason: str = ""
    exit_code: Int32 = 0


class ContainerState(Struct, frozen=True):
    waiting: ContainerWaits | None = None
    terminated: ContainerEnded | None = None


class ContainerStatus(Struct, frozen=True, rename="camel"):
    name: str = ""
    image: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    allocated_resources: dict[str, Quantity] | None = None
    """What the kubelet has set aside for it; behind its spec while it is being resized in place."""


class PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    conditions: tuple[ExplainedCondition, ...] | None = None
    resize: str = ""
    """Servers before 1.33 say here how far a resize is."""


NO_STATE = ContainerState()
OOM = "OOMKilled"


def trouble_of(status: PodStatus | None) -> PodTrouble | None:
    """Why a pod does not run, or failed; None for one that runs, succeeded, or is on its way."""
    if status is None or status.phase == "Succeeded":
        return None
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    if status.phase == "Failed":
        code = FAILED.get(status.reason)
        if code is not None:
            return PodTrouble(code)
        return next(_ended(containers), PodTrouble("PodFailed", word=shorten(clean(status.reason), MAX_WORD)))
    for each in status.conditions or ():
        if each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable":
            nodes, refused = refusals(each.message)
            return PodTrouble("Unschedulable", nodes=nodes, refused=refused)
    return next(_broken(containers), None) or _initializing(status)


def _ended(containers: Iterable[ContainerStatus]) -> Iterator[PodTrouble]:
    """Containers that failed; one that ran out of memory goes first."""
    found = [(each, (each.state or NO_STATE).terminated) for each in containers]
    bad = [(each, end) for each, end in found if end is not None and (end.exit_code or end.reason == OOM)]
    for each, end in sorted(bad, key=lambda pair: pair[1].reason != OOM):
        yield _exited(each, end, "ContainerFailed")


def _exited(each: ContainerStatus, end: ContainerEnded, otherwise: PodCode) -> PodTrouble:
    code: PodCode = "OOMKilled" if end.reason == OOM else otherwise
    return PodTrouble(code, container=shorten(clean(each.name), MAX_WORD), exit_code=end.exit_code)


def _broken(containers: tuple[ContainerStatus, ...]) -> Iterator[PodTrouble]:
    for each in containers:
        waiting, before = (each.state or NO_STATE).waiting, (each.last_state or NO_STATE).terminated
        code = WAITING.get(waiting.reason) if waiting is not None else None
        if waiting is None or code is None:
            continue
        if code == "CrashLoopBackOff" and before is not None:
            yield _exited(each, before, code)
        else:
            word = "" if waiting.reason == code else waiting.reason
            image = shorten(clean(each.image), MAX_IMAGE) if code == "ImagePullBackOff" else ""
            yield PodTrouble(code, word=word, container=shorten(clean(each.name), MAX_WORD), image=image)
    yield from _ended(containers)


def _initializing(status: PodStatus) -> PodTrouble | None:
    """Its first init container that has not ended."""
    if status.phase == "Pending":
        for each in status.init_container_statuses or ():
            if (each.state or NO_STATE).terminated is None:
                return PodTrouble("InitWaiting", container=shorten(clean(each.name), MAX_WORD))
    return None


def refusals(message: str) -> tuple[int, tuple[NodesRefuse, ...]]:
    """``0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint {a: b}.`` as numbers."""
    head, _, rest = clean(message).partition(": ")
    found = _AVAILABLE.match(head)
    if found is None:
        return 0, (NodesRefuse(0, shorten(clean(message), MAX_WORDS)),) if message else ()
    listed = rest.partition(". ")[0].removesuffix(".")
    causes = [_CAUSE.match(each.strip()) for each in re.split(r", (?=\d+ )", listed)]
    kept = [NodesRefuse(int(each[1][:9]), shorten(each[2], MAX_WORDS)) for each in causes if each is not None]
    return int(found[1][:9]), tuple(sorted(kept, key=lambda each: each.text)[:MAX_CAUSES])
