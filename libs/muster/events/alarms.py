"""Reports of the watchdog of Ray clusters that scale themselves, decided by the autoscaler bridge."""

from __future__ import annotations

from typing import Literal, assert_never

from msgspec import field

from muster.events.base import Decision
from muster.model.elastic import Counts
from muster.model.keys import Ref
from muster.model.raydemand import RayShape

AlarmReason = Literal[
    "no_head",
    "unauthorized",
    "unreadable",
    "unreachable",
    "stalled",
    "no_nodes",
    "not_growing",
    "not_resizing",
    "not_shrinking",
    "no_group",
    "not_ready",
]
"""What is wrong with a Ray cluster:

no_head        it has no live head pod
unauthorized   its head wants a token that Muster does not have
unreadable     its head answers with something that cannot be read
unreachable    its head pod runs, and its ports do not answer
stalled        its autoscaler makes no tick, while there is something to do
no_nodes       workers that its autoscaler asked for find no node
not_growing    replicas are granted and wanted, and its autoscaler does not ask for them
not_resizing   pods may grow in place and are wanted larger, and stay as they are
not_shrinking  workers are idle for longer than their timeout, and its autoscaler does not remove them
no_group       something waits that no worker of any group could hold
not_ready      it was admitted, and has not become ready
"""


def stops_grants(reason: AlarmReason) -> bool:
    """Whether a cluster would use no further grant while this is wrong."""
    match reason:
        case "no_head" | "unauthorized" | "unreadable" | "unreachable" | "stalled" | "not_growing":
            return True
        case "no_nodes" | "not_resizing" | "not_shrinking" | "no_group" | "not_ready":
            return False
    assert_never(reason)


class AlarmRaised(Decision, frozen=True, kw_only=True):
    """A fault of a Ray cluster has lasted too long; the alarm replaces an earlier alarm of the cluster.

    While an alarm stops grants (``stops_grants``), the cluster is granted nothing more, and unused grants are released.
    """

    ref: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    cluster: Ref
    reason: AlarmReason
    since: int
    """Log time (ms) of the begin of the trouble."""
    groups: Counts = field(default_factory=dict)
    """Replicas that are not asked for, not removed, or without nodes, by worker group."""
    until: int = 0
    """With ``not_growing``: no growth before this log time (ms). With ``no_nodes``: no growth in ``groups`` before
    then, where another group would do.
    """
    tries: int = 1
    """Alarms, or tries of growth, in a row."""
    lacks: tuple[RayShape, ...] = ()
    """Requests that no worker of any group could hold (``no_group``), one for each shape."""
    fixed: bool = False
    """The cluster has a fixed size: there is nothing to grant, and nothing is taken back."""


class AlarmCleared(Decision, frozen=True, kw_only=True):
    """The trouble of a Ray cluster has ended."""

    ref: Ref
    attempt: int
    cluster: Ref


AlarmDecision = AlarmRaised | AlarmCleared
