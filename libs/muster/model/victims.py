"""The victims of a plan: whole workloads, and workers of Ray clusters."""

from __future__ import annotations

from msgspec import Struct

from muster.model.elastic import Counts
from muster.model.keys import Ref
from muster.model.resources import Vector


class Victim(Struct, frozen=True, gc=False, omit_defaults=True):
    """A workload to be suspended, or left to end by itself, and the released quota."""

    ref: Ref
    attempt: int
    queue: str
    request: Vector
    pods: int = 0
    priority: int | None = None
    """Its priority, where it is of the claimant's own queue and leaves for a higher one; else None."""
    ends_by: int = 0
    """It is not suspended: it is expected to end by itself before that would free its quota, and the claimant waits for
    its end until this log time (ms). 0: it is suspended.
    """
    moves: bool = False
    """It starts again on other nodes, with the quota it has: it releases none."""


class PartialVictim(Struct, frozen=True, gc=False, omit_defaults=True):
    """A Ray cluster that releases some workers and goes on with the others."""

    ref: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    queue: str
    request: Vector
    """The quota that it releases."""
    taken: Counts
    """Replicas, by worker group."""
    left: Counts
    """What these groups are granted afterwards; never below their minReplicas."""
    pods: int = 0
    priority: int | None = None
    """Its own, where it leaves for a higher one of its queue."""
