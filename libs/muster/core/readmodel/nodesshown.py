"""The nodes of the cluster and the pods on them, as they were observed last: what readers ask of nodes."""

from __future__ import annotations

from msgspec import Struct, field

from muster.model.keys import Ref
from muster.model.resources import Vector
from muster.model.workload import NodeState, PodState


class PodOnNode(Struct, frozen=True, gc=False):
    """A pod that has a node and is not over."""

    ref: Ref
    node: str
    owner: str
    """uid of its owner: a job, or an object that a job runs through."""
    request: Vector
    devices: tuple[int, ...] = ()
    """The shared GPU devices that it was given."""


class NodesShown(Struct):
    """Nodes by uid, and by uid the pods that hold something of one."""

    nodes: dict[str, NodeState] = field(default_factory=dict)
    pods: dict[str, PodOnNode] = field(default_factory=dict)

    def pod(self, pod: PodState) -> None:
        """A pod looks like this."""
        uid = pod.ref.uid
        if pod.node and not pod.over:
            self.pods[uid] = PodOnNode(pod.ref, pod.node, pod.owner_uid, pod.request, pod.devices)
        else:
            self.pods.pop(uid, None)
