"""The status of a job as a value: its code, what every job has, and the values of the code."""

from __future__ import annotations

from msgspec import Struct

from muster.model.demand import Shortfall
from muster.model.resources import Vector
from muster.told.codes.codetable import CODES, FILE, REFUSED, HeldUp, JobCode
from muster.told.codes.values import InLine, Phase, ResumeRefused, Scaling, Short, Suspended, Values


class Charged(Struct, frozen=True):
    """What a job is charged with."""

    request: Vector
    beyond: Vector
    """The part of it that runs beyond what was granted,"""
    granted: Vector
    """and what was granted of the same resources."""
    scaling: Scaling | None = None
    """How far its Ray cluster may grow, where it scales itself and has asked or been limited."""


class JobStatus(Struct, frozen=True, kw_only=True):
    """The status of a job: what every job has, and the values of its code."""

    code: JobCode
    phase: Phase
    values: Values
    kind: str = ""
    job: str = ""
    """namespace/name"""
    queue: str = ""
    attempt: int = 0
    since: int = 0
    """Log time (ms) at which it was queued, admitted or seen running; 0 when unknown."""
    detail: str = ""
    """The kind's own word for the state of the object."""
    unknown_class: str = ""
    """The PriorityClass that it names, where none of that name exists and it decides the priority,"""
    priority: int = 0
    """which is this."""
    charge: Charged | None = None
    line: InLine = InLine()
    pods: HeldUp | None = None
    """What keeps its pods from running, or made it fail."""

    def __post_init__(self) -> None:
        wanted = CODES[self.code].values
        if type(self.values) is not wanted:
            raise TypeError(
                f"{self.code} has {type(self.values).__name__} where {FILE} says {wanted.__name__}: "
                "make both the same, there or in told/status/statuses.py"
            )

    @property
    def short(self) -> Short | None:
        """The limit that refuses it now, where one does."""
        return self.values if isinstance(self.values, Short) else None

    @property
    def until(self) -> int:
        """Log time (ms) before which it is not tried again; 0 when there is none."""
        return self.values.until if isinstance(self.values, Suspended | ResumeRefused) else 0


def refused_code(reason: str) -> JobCode:
    """The code of a refusal as the log names it. Raises KeyError for one that no stage gives."""
    return {str(each): code for each, code in REFUSED.items()}[reason]


def refusal_code(refusal: Shortfall) -> JobCode:
    """The code of a limit that refuses a job."""
    if refusal.of_min:
        return "ExceedsMinQuota" if refusal.asked > refusal.limit else "InsufficientMinQuota"
    if refusal.hopeless:
        return "ExceedsMaxQuota"
    if refusal.held >= refusal.missing:
        return "QuotaHeld"  # Without the claim it fits.
    return "InsufficientRuntimeQuota" if refusal.of_runtime else "InsufficientQuota"
