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

met      the gang has its places
gone     the gang is gone
changed  the gang waits for something else now
expired  the nodes did not come in time
failed   the autoscaler, or the API server, refuses to add nodes: ``problem`` quotes the refusal
lapsed   the autoscaler has given to others what it had kept for the gang
deleted  another client deleted the request
unknown  no event of this log made the request
"""


class NodesRequested(Decision, frozen=True, kw_only=True):
    """One request for all nodes that a job or a group of gangs lacks: the actuator creates a ProvisioningRequest."""

    name: str
    """The name of the ProvisioningRequest."""
    namespace: str
    ref: Ref | None = None
    """The job; None for gangs of pods."""
    attempt: int = 0
    gangs: tuple[str, ...] = ()
    pools: tuple[PoolNodes, ...] = ()
    provisioning: str
    pod_sets: tuple[PodSet, ...]
    owners: tuple[Ref, ...] = ()
    """The owners of the ProvisioningRequest: Kubernetes deletes the request with the last owner."""
    until: int = 0
    """Log time at which the request is given up; 0: when the job stops waiting for nodes."""
    tries: int = 1
    """1 for the first request, one more after each request in a row that brought no nodes."""


class NodesRequestWithdrawn(Decision, frozen=True, kw_only=True):
    """A request for nodes has ended: the actuator deletes the ProvisioningRequest."""

    name: str
    namespace: str
    ref: Ref | None = None
    attempt: int = 0
    gangs: tuple[str, ...] = ()
    pools: tuple[PoolNodes, ...] = ()
    reason: WithdrawalReason
    problem: FieldProblem | None = None
    """The refusal by the API server or the autoscaler, for ``failed``."""
    retry_at: int = 0
    """Log time of the next request at the earliest; 0: at once."""
    templates: tuple[str, ...] = ()
    """PodTemplates of the request, deleted with the request."""


GrowthDecision = NodesRequested | NodesRequestWithdrawn


def for_whom(event: GrowthDecision) -> str:
    """Uid of the job, or name of the first gang; empty when neither is known."""
    return event.ref.uid if event.ref is not None else event.gangs[0] if event.gangs else ""
