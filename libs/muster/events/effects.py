"""Effects: what became of a decision on the API server. Written by the actuator, folded by every stage."""

from __future__ import annotations

from typing import Literal

from muster.events.base import Cause, Event
from muster.model.keys import Ref
from muster.model.problem import FieldProblem

FailureReason = Literal["gone", "spec_changed", "superseded", "refused", "withdrawn"]
"""Why a decision could not be carried out, for good:

gone          the object (this uid) no longer exists
spec_changed  the spec is not the one that was decided on
superseded    a newer decision of ours has been carried out on it; a pod is bound to another node
refused       the API server will not take the write (invalid, or a policy denies it); ``problem`` quotes it
withdrawn     a pod that is to lose its node again has not been bound to it, and will not be
"""


Action = Literal[
    "resume", "suspend", "bind", "request_nodes", "withdraw_nodes", "free_gpu", "gate", "remove_worker", "read_refusal"
]
"""What was to be done: an admission resumes, an eviction suspends, a placed pod (the ref) is bound to its node; a
ProvisioningRequest (the ref, with its name for a uid) is made or removed; a pod (the ref) that
keeps an unused GPU device is deleted; ``maxReplicas`` of a RayCluster (the ref) is set to the granted number; the
Events of a job that lacks pods are read."""


class EffectApplied(Event, frozen=True, kw_only=True):
    """The decision is carried out; ``rv`` is the resourceVersion with the effect."""

    cause: Cause
    ref: Ref
    attempt: int
    rv: int = 0
    action: Action = "resume"
    problem: FieldProblem | None = None
    """``read_refusal``: the refusal of the job's pods, in the words of the refuser (``said``); None: no Event tells."""


class EffectFailed(Event, frozen=True, kw_only=True):
    """The decision cannot be carried out."""

    cause: Cause
    ref: Ref
    attempt: int
    reason: FailureReason
    problem: FieldProblem | None = None
    """The reason as a code with values; one value is the answer of the API server (``said``)."""
    action: Action = "resume"


Effect = EffectApplied | EffectFailed
