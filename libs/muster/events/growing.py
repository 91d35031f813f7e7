"""Decisions of the autoscaler bridge: requested nodes, for which gangs, and the end of a request."""

from __future__ import annotations

from typing import Literal

from muster.events.base import Decision
from muster.model.keys import Ref
from muster.model.pools import PoolNodes
from muster.model.problem import FieldProblem
from muster.model.workload import PodSet

WithdrawalReason = Literal["met", "gone", "changed", "expired", "failed", "lapsed", "deleted", "unknown"]
"""Why the request for nodes is withdrawn:

met      the gang that needed them has its places
gone     the gang that needed them is gone
changed  the gang that needed them waits for something else now
expired  they did not come in time
failed   the autoscaler, or the API server, refuses to add them: ``problem`` quotes it
lapsed   what the autoscaler had kept for them is given to others
deleted  the request was deleted
unknown  nothing in this log asked for them
"""


class NodesRequested(Decision, frozen=True, kw_only=True):
    """Nodes are asked for, all that a job or a group of gangs lacks at once: the actuator makes the request."""

    name: str
    """Of the ProvisioningRequest."""
    namespace: str
    ref: Ref | None = None
    """The job; None for gangs of pods."""
    attempt: int = 0
    gangs: tuple[str, ...] = ()
    pools: tuple[PoolNodes, ...] = ()
    provisioning: str
    pod_sets: tuple[PodSet, ...]
    owners: tuple[Ref, ...] = ()
    """With the last of them the request goes as well."""
    until: int = 0
    """Log time at which it is given up; 0 where the job's own wait ends it."""
    tries: int = 1
    """How often in a row they have been asked for."""


class NodesRequestWithdrawn(Decision, frozen=True, kw_only=True):
    """Those the request for nodes is withdrawn: the actuator removes the request."""

    name: str
    namespace: str
    ref: Ref | None = None
    attempt: int = 0
    gangs: tuple[str, ...] = ()
    pools: tuple[PoolNodes, ...] = ()
    reason: WithdrawalReason
    problem: FieldProblem | None = None
    """What the API server, or the autoscaler, says of it."""
    retry_at: int = 0
    """Log time before which they are not asked for again; 0: at once."""
    templates: tuple[str, ...] = ()
    """PodTemplates that were made for it."""


GrowthDecision = NodesRequested | NodesRequestWithdrawn


def for_whom(event: GrowthDecision) -> str:
    """Uid of the job, or name of the first gang; empty when neither is known."""
    return event.ref.uid if event.ref is not None else event.gangs[0] if event.gangs else ""
