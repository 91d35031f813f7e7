"""How a charge follows what runs: decided by the quota accountant."""

from __future__ import annotations

from msgspec import field

from muster.events.base import Decision
from muster.model.elastic import Counts
from muster.model.keys import Ref
from muster.model.resources import Vector


class ChargeChanged(Decision, frozen=True, kw_only=True):
    """More of a charged workload may run than was charged, or less.

    From here on the charge is what may still run: the larger of the pods to be made and of the pods that are there,
    resource by resource, even over a limit. The grant of a running workload falls with the charge.
    """

    ref: Ref
    attempt: int
    queue: str
    request: Vector
    pods: int = 0
    over: Vector = field(default_factory=dict)
    """The part of ``request`` that was not granted; empty when all of it was."""
    fixed: Counts = field(default_factory=dict)
    """The granted pods by worker group of a Ray cluster with a fixed size, where the grant fell with the charge; these
    stay granted once the cluster scales itself. Empty: as before."""
