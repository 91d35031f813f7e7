"""What the read model keeps of nodes and of the pods on them."""

from __future__ import annotations

from muster.core.readmodel.state import ReadState
from muster.core.stage import Arm
from muster.events import facts
from muster.events.base import Event
from muster.model.keys import Position


class NodeFolds:
    """One arm per event about a node or a pod."""

    def arms(self) -> dict[type[Event], Arm]:
        return {
            facts.NodeObserved: _node_observed,
            facts.NodeGone: _node_gone,
            facts.PodObserved: _pod_observed,
            facts.PodGone: _pod_gone,
        }


def _node_observed(state: ReadState, _at: Position, event: facts.NodeObserved) -> None:
    state.nodes.nodes[event.node.ref.uid] = event.node


def _node_gone(state: ReadState, _at: Position, event: facts.NodeGone) -> None:
    state.nodes.nodes.pop(event.ref.uid, None)


def _pod_observed(state: ReadState, _at: Position, event: facts.PodObserved) -> None:
    state.nodes.pod(event.pod)


def _pod_gone(state: ReadState, _at: Position, event: facts.PodGone) -> None:
    state.nodes.pods.pop(event.ref.uid, None)
