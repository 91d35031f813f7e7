"""Orders of the actuator: what is to be done about one object on the API server, and by which decision."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.events.base import Cause
from muster.events.effects import Action
from muster.events.elastic import GateSet
from muster.events.growing import NodesRequested, NodesRequestWithdrawn
from muster.model.keys import Intent, Ref


class Order(Struct, frozen=True):
    """What all of them have."""

    ref: Ref
    attempt: int
    intent: Intent

    @property
    def action(self) -> Action:
        raise NotImplementedError

    @property
    def cause(self) -> Cause:
        """The decision that it carries out."""
        return Cause(self.intent.seq, self.intent.item)


class Outstanding(Order, frozen=True):
    """One admission or eviction to be carried out."""

    basis: str | None
    """Digest of the decision's input; None for a write that does not depend on the spec."""
    queued_at: int
    at: int
    """Log time of the decision, ms since the epoch."""
    action: Action = "resume"
    placed: bool = False
    """Its pods have places that are held for them: they are to say that we place them."""
    pod_group: str = ""
    """Name of the PodGroup that shows it, where it is of a KAI queue."""
    together: int = 0
    """How many of its pods kube-scheduler is to place together; 0: it is not asked to."""
    evicts: bool = False
    """It is suspended for others: PodDisruptionBudgets are asked first."""


class Bind(Order, frozen=True):
    """One pod to be bound."""

    node: str
    devices: tuple[int, ...] = ()
    """The shared GPU devices it takes."""
    groups: tuple[str, ...] = ()
    """The reservation groups of the devices."""
    share: int = 0
    """Thousandths of each of them."""
    action: Literal["bind"] = "bind"


class Unbind(Order, frozen=True):
    """One pod that is not to be bound to a node any more: whether it was is to be found out."""

    node: str
    cause: Cause
    """The decision that had placed it."""
    action: Literal["bind"] = "bind"


class Asking(Order, frozen=True):
    """A request for nodes to be made, or to be removed."""

    decision: NodesRequested | NodesRequestWithdrawn

    @property
    def action(self) -> Literal["request_nodes", "withdraw_nodes"]:
        return "request_nodes" if isinstance(self.decision, NodesRequested) else "withdraw_nodes"


class Freeing(Order, frozen=True):
    """One pod to be deleted that keeps an unused device."""

    action: Literal["free_gpu"] = "free_gpu"


class Gating(Order, frozen=True):
    """``maxReplicas`` to be written."""

    decision: GateSet
    action: Literal["gate"] = "gate"


class Removing(Order, frozen=True):
    """One worker, by its pod, to be deleted that its operator has not."""

    cluster: Ref
    group: str
    owner: str
    """uid of the charged workload"""
    action: Literal["remove_worker"] = "remove_worker"
