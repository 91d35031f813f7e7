"""The status of a job as a value: the code, the fields of every job, and the values of the code."""

from __future__ import annotations

from msgspec import Struct

from muster.model.demand import Shortfall
from muster.model.resources import Vector
from muster.told.codes.codetable import CODES, FILE, REFUSED, HeldUp, JobCode
from muster.told.codes.values import InLine, Phase, ResumeRefused, Scaling, Short, Suspended, Values


class Charged(Struct, frozen=True):
    """The charge of a job."""

    request: Vector
    beyond: Vector
    """The part of the charge that runs beyond the granted amounts,"""
    granted: Vector
    """and the granted amounts of the same resources."""
    scaling: Scaling | None = None
    """How far the job's Ray cluster may grow, for a cluster that scales itself and has asked or been limited."""
    back_at: int = 0
    """Log time (ms) from which the excess is taken back while the quota is above its max; 0: never."""


class JobStatus(Struct, frozen=True, kw_only=True):
    """The status of a job: the fields of every job, and the values of the code."""

    code: JobCode
    phase: Phase
    values: Values
    kind: str = ""
    job: str = ""
    """namespace/name"""
    queue: str = ""
    attempt: int = 0
    since: int = 0
    """Log time (ms) at which the job was queued, admitted or seen running; 0 when unknown."""
    detail: str = ""
    """The kind's own word for the state of the object."""
    unknown_class: str = ""
    """The PriorityClass that the job names, where no such class exists and the name decides the priority,"""
    priority: int = 0
    """which is this priority."""
    charge: Charged | None = None
    line: InLine = InLine()
    lost: str = ""
    """A node of the running job that is not ready."""
    pods: HeldUp | None = None
    """The worst code that keeps the pods of the job from running, or made the job fail."""

    def __post_init__(self) -> None:
        wanted = CODES[self.code].values
        if type(self.values) is not wanted:
            raise TypeError(
                f"{self.code} has {type(self.values).__name__} where {FILE} says {wanted.__name__}: "
                "make both the same, there or in told/status/statuses.py"
            )

    @property
    def short(self) -> Short | None:
        """The limit that refuses the job now, if a limit does."""
        return self.values if isinstance(self.values, Short) else None

    @property
    def until(self) -> int:
        """Log time (ms) before which the job is not tried again; 0 when no time is set."""
        return self.values.until if isinstance(self.values, Suspended | ResumeRefused) else 0


def refused_code(reason: str) -> JobCode:
    """The code of a refusal as the log names it. Raises KeyError for a reason that no stage gives."""
    return {str(type_): code for type_, code in REFUSED.items()}[reason]


def refusal_code(refusal: Shortfall) -> JobCode:
    """The code of a limit that refuses a job."""
    if refusal.of_min:
        return "ExceedsMinQuota" if refusal.asked > refusal.limit else "InsufficientMinQuota"
    if refusal.hopeless:
        return "ExceedsMaxQuota"
    if refusal.held >= refusal.missing:
        return "QuotaHeld"  # Without the claim it fits.
    return "InsufficientRuntimeQuota" if refusal.of_runtime else "InsufficientQuota"
