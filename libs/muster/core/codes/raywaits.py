"""What waits in a Ray cluster, piece by piece, and what becomes of each piece in each worker group."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.core.codes.pods import TroubledPod
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.model.raydemand import RayShape, RayTrouble

Fate = Literal["too_small", "other_labels", "no_nodes", "refused", "asked", "coming", "at_most", "elsewhere"]
"""Of a piece in one worker group:

too_small     one worker does not offer enough
other_labels  its nodes do not have the labels
no_nodes      workers that are granted find no node
refused       quota refuses more replicas
asked         more replicas are asked for, and not answered yet
coming        replicas are granted, and not all of them have joined
at_most       its owner allows no more replicas
elsewhere     nothing is asked of it: another group, or a worker with room, comes first
"""


class GroupFate(Struct, frozen=True):
    """What becomes of a piece in one worker group."""

    group: str
    fate: Fate
    count: int = 0
    """Pods without a node, or replicas that are asked for, granted or allowed."""
    joined: int = 0
    """How many of the granted replicas have joined."""
    resource: str = ""
    """Of ``too_small``: Ray's name of the resource that it lacks."""
    asked: int = 0
    offers: int = 0
    """How much of it one worker offers, as ``asked`` in ten-thousandths."""
    short: Shortfall | None = None
    pod: TroubledPod | None = None


class RayPiece(Struct, frozen=True):
    """What waits together: tasks and actors of one shape, a placement group, or what is asked for explicitly."""

    kind: Literal["alone", "placement_group", "explicit"]
    shapes: tuple[RayShape, ...]
    fates: tuple[GroupFate, ...]
    name: str = ""
    strategy: str = ""


class RayWaits(Struct, frozen=True):
    """All that waits in one cluster, as its head said last."""

    cluster: Ref
    read_at: int
    pieces: tuple[RayPiece, ...]
    trouble: RayTrouble | None = None
    """Why this may be old."""
