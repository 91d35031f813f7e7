"""Node pools: nodes that may be added, the new nodes that a gang needs, and the reasons why no pool helps."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.model.placing import Taint
from muster.model.problem import FieldProblem
from muster.model.resources import Vector
from muster.model.workload import PodSet

PoolRefusalReason = Literal["full", "unsuitable", "needs_pods", "not_served", "in_vain"]
"""Why a node pool cannot help a gang:

full        it may not have as many nodes as the gang needs of it
unsuitable  its nodes would not take what the gang lacks, however many there were
needs_pods  nodes are added there for pods that exist, and a job that waits has none
not_served  nodes are asked for by an object of a kind that the cluster does not serve
in_vain     it was asked for nodes and they did not come: it is asked again after a pause
"""


class NodePool(Struct, frozen=True, gc=False, omit_defaults=True):
    """Nodes of one shape, up to a number in the cluster."""

    name: str
    most: int = 0
    """How many nodes it may have in all."""
    allocatable: Vector = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    """Its nodes, and no others, have all of these."""
    taints: tuple[Taint, ...] = ()
    provisioning: str = ""
    """Class of the ProvisioningRequests by which its nodes are asked for; empty: pods that lack a node are enough."""
    wait_ms: int = 900_000
    """How long nodes may take to come."""
    refusal: FieldProblem | None = None
    """Why it does not count; the rest is empty then."""


class PoolNodes(Struct, frozen=True, gc=False):
    """Nodes of one pool."""

    pool: str
    nodes: int


class Growth(Struct, frozen=True, gc=False, omit_defaults=True):
    """With these nodes more a gang, or a group of gangs, would have its places."""

    pools: tuple[PoolNodes, ...]
    pod_sets: tuple[PodSet, ...] = ()
    """Its pods that would run on them."""
    provisioning: str = ""
    """Class by which they are asked for; empty: by the condition of its pods."""
    wait_ms: int = 0
    gangs: tuple[str, ...] = ()
    """The gangs that start together; empty for a job."""

    @property
    def key(self) -> str:
        """The gang that names the whole group."""
        return self.gangs[0] if self.gangs else ""


class PoolRefusal(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a node pool cannot help."""

    pool: str
    why: PoolRefusalReason
    most: int = 0
    has: int = 0
    promised: int = 0
    """Nodes that others have been promised, and that have not all come."""
    needs: int = 0
    """How many more the gang needs of it."""
    obstacle: str = ""
    """Code of the rule that keeps its pods off such nodes."""
    detail: str = ""
    unsupported: FieldProblem | None = None
    """The demand of its pods that cannot be judged, where that is the obstacle."""
    until: int = 0
    """Log time until which it is not asked again."""
