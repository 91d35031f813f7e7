"""How a charge follows what runs: decided by the quota accountant."""

from __future__ import annotations

from msgspec import field

from muster.events.base import Decision
from muster.model.keys import Ref
from muster.model.resources import Vector


class ChargeChanged(Decision, frozen=True, kw_only=True):
    """The running part of a charged workload has grown beyond the grant, or has shrunk again.

    From here on the charge is the larger of both, resource by resource, even over a limit.
    """

    ref: Ref
    attempt: int
    queue: str
    request: Vector
    pods: int = 0
    over: Vector = field(default_factory=dict)
    """The part of ``request`` that was not granted; empty when all of it was."""
