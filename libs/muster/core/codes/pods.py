"""Why pods of a job do not run: one row for each code of a pod, and what is said of all pods of a job.

Words are in ``core.wording.pods``.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.model.closed import total
from muster.model.podtrouble import PodCode, PodTrouble

Stops = Literal["waits", "breaks"]
"""What a code does to its pod: it waits and may run yet without an act; it has failed, or fails until someone acts."""

POD_CODES: dict[PodCode, Stops] = {
    "OOMKilled": "breaks",
    "Evicted": "breaks",
    "NodeLost": "breaks",
    "DeadlineExceeded": "breaks",
    "ContainerFailed": "breaks",
    "PodFailed": "breaks",
    "CrashLoopBackOff": "breaks",
    "ImagePullBackOff": "breaks",
    "ContainerNotCreated": "breaks",
    "Unschedulable": "waits",
    "InitWaiting": "waits",
}
"""In this order: of several codes at the pods of one job the first is the one that is shown."""

total(POD_CODES, PodCode, "libs/muster/core/codes/pods.py (POD_CODES)")
RANK: dict[PodCode, int] = {code: index for index, code in enumerate(POD_CODES)}


def worse(code: PodCode, than: PodCode | None) -> bool:
    """Whether a code is shown before another one."""
    return than is None or RANK[code] < RANK[than]


class TroubledPod(Struct, frozen=True):
    """A pod that does not run, or has failed."""

    name: str
    trouble: PodTrouble
    since: int
    """Log time (ms) from which on it has had this code."""
    over: bool = False
    group: str = ""
    """The worker group of a Ray cluster that it is of."""


class HeldUp(Struct, frozen=True):
    """What keeps the pods of a job from running, or made it fail: the worst of it."""

    first: TroubledPod
    """The pod that has had it for the longest time."""
    pods: int = 1
    """How many have the same code."""

    @property
    def code(self) -> PodCode:
        return self.first.trouble.code
