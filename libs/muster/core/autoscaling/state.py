"""What the autoscaler bridge keeps: who lacks which nodes, what is asked for, and how the autoscaler has answered."""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.seen import Seen
from muster.core.stage import StageState
from muster.events.base import Cause
from muster.events.growing import NodesRequested, WithdrawalReason
from muster.model.keys import Ref
from muster.model.pools import Growth


class NodesNeeded(Struct, frozen=True):
    """Somebody lacks nodes that could be added."""

    cause: Cause
    """What told so first."""
    growth: Growth
    namespace: str
    ref: Ref | None = None
    """The job; None for gangs of pods."""
    attempt: int = 0
    owners: tuple[Ref, ...] = ()
    until: int = 0
    """Once it is asked for: log time at which it is given up; 0 where the wait of the job ends it."""


class NodesAsked(Struct):
    """Nodes that are asked for."""

    name: str
    need: NodesNeeded
    cause: Cause
    """The request."""
    templates: tuple[str, ...]
    tries: int
    ending: WithdrawalReason | None = None
    """Why nobody needs them any more."""
    message: str = ""


class NodesRest(Struct):
    """Nodes were asked for in vain: so many times, and not again before then."""

    times: int
    until: int


class Sighted(Struct, frozen=True):
    """A ProvisioningRequest that exists."""

    ref: Ref
    cause: Cause
    templates: tuple[str, ...]


class BridgeState(StageState):
    """By uid of the job, or by the gang that stands for its group."""

    needs: dict[str, NodesNeeded] = field(default_factory=dict)
    asked: dict[str, NodesAsked] = field(default_factory=dict)
    rests: dict[str, NodesRest] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """namespace/name of a request that is open -> whose"""
    reserved: dict[str, int] = field(default_factory=dict)
    """uid of a job -> the attempt whose quota is reserved and that has not been let in"""
    members: dict[str, dict[str, None]] = field(default_factory=dict)
    """Gang -> its pods that have no node"""
    gang_of: dict[str, str] = field(default_factory=dict)
    """uid of a pod that has no node -> its gang"""
    pods_seen: Seen = field(default_factory=Seen)
    sighted: dict[str, Sighted] = field(default_factory=dict)
    """By uid."""
    sighted_seen: Seen = field(default_factory=Seen)
    removed: dict[str, None] = field(default_factory=dict)
    """namespace/name of requests that are withdrawn, and may still exist"""


def templates_of(event: NodesRequested) -> tuple[str, ...]:
    """Names of the PodTemplates of a request, in the order of its pod sets."""
    return tuple(f"{event.name}-{index}" for index in range(len(event.pod_sets)))


def request_ref(namespace: str, name: str) -> Ref:
    """How a request is named before anybody knows its uid."""
    return Ref("ProvisioningRequest", namespace, name, name)
