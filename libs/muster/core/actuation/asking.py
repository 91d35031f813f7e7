"""A request for nodes as an order to the actuator: to be made, or to be removed."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.core.autoscaling.state import request_ref
from muster.events.base import Cause
from muster.events.growing import NodesRequested, NodesRequestWithdrawn
from muster.model.keys import Intent, Ref


class Asking(Struct, frozen=True):
    """A request to be made or removed."""

    decision: NodesRequested | NodesRequestWithdrawn
    intent: Intent

    @property
    def ref(self) -> Ref:
        return request_ref(self.decision.namespace, self.decision.name)

    @property
    def cause(self) -> Cause:
        return Cause(self.intent.seq, self.intent.item)

    @property
    def attempt(self) -> int:
        return self.decision.attempt

    @property
    def action(self) -> Literal["request_nodes", "withdraw_nodes"]:
        return "request_nodes" if isinstance(self.decision, NodesRequested) else "withdraw_nodes"
