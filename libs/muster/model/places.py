"""Where the pods of a gang go, or why they have no place on the nodes."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.model.problem import FieldProblem

ObstacleCode = Literal[
    "insufficient",
    "too_small",
    "unschedulable",
    "taint",
    "not_ready",
    "node_affinity",
    "volume",
    "ports",
    "spread",
    "spread_label",
    "affinity",
    "anti_affinity",
    "existing_anti_affinity",
    "unsupported",
]
"""What keeps a pod off a node: too little left of a resource, or too little in all, or the rule that forbids it."""


class Placement(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where members of one pod set go: ``count`` pods on ``node``."""

    pod_set: str
    node: str
    count: int
    devices: tuple[int, ...] = ()
    """The shared GPU devices of each, one pod after the other, where they take shares."""
    groups: tuple[str, ...] = ()
    """The group that shares each of these devices."""


class Obstacle(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why ``nodes`` nodes would not take one more pod."""

    code: ObstacleCode
    nodes: int
    detail: str = ""
    """The resource or the taint it is about."""


class Shortage(Struct, frozen=True, gc=False, omit_defaults=True):
    """The reason why a gang has no place: of a set ``fitted`` pods would find a node, and the next pod none."""

    pod_set: str
    fitted: int
    count: int
    nodes: int
    """Nodes there are."""
    obstacles: tuple[Obstacle, ...] = ()
    """Sorted. A node short of several resources counts for each; any other node counts once."""
    within: FieldProblem | None = None
    """Where its pods are to be within one domain: how far the best one goes."""
    unsupported: FieldProblem | None = None
    """The demand of the pods that cannot be judged, where that is the obstacle."""
    kept_for: str = ""
    """The gang, namespace/name, that has claimed nodes; without that there would be a place."""


class Move(Struct, frozen=True, gc=False, omit_defaults=True):
    """A running job with a place elsewhere."""

    uid: str
    before: tuple[str, ...]
    """Names of the nodes that its pods are on, each once, sorted."""
    places: tuple[Placement, ...]
    """Where it starts again: a place for each pod it has now."""

    @property
    def after(self) -> tuple[str, ...]:
        """Names of the new nodes, each name once, sorted."""
        return tuple(sorted({place.node for place in self.places}))
