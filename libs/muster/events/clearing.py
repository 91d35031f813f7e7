"""Decisions about nodes that are cleared for a job: its quota has room, and no node has."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.events.base import Decision
from muster.events.decisions import Victim
from muster.events.demands import DemandDecision
from muster.model.keys import Ref
from muster.model.places import Placement, Shortage

ClearingKind = Literal["move", "reclaim", "priority"]
"""By which rule others are suspended: they have places elsewhere, their queue is above its fair share, or they have a
lower priority in the same queue.
"""


class Move(Struct, frozen=True, gc=False, omit_defaults=True):
    """A job that runs and has a place elsewhere."""

    uid: str
    before: tuple[str, ...]
    """Names of the nodes that its pods are on, each once, sorted."""
    places: tuple[Placement, ...]
    """Where it starts again: a place for each pod it has now."""

    @property
    def after(self) -> tuple[str, ...]:
        """Names of the nodes it goes to, each once, sorted."""
        return tuple(sorted({each.node for each in self.places}))


class ClearingProposed(DemandDecision, frozen=True, kw_only=True):
    """``ref`` has found no place on the nodes though its quota has room: the victims that leave it some."""

    kind: ClearingKind
    victims: tuple[Victim, ...]
    priority: int | None = None
    """Its priority, where jobs of its own queue are proposed to be suspended for that; else None."""
    placement: str = ""
    """As in QuotaReserved: how its pods are to be laid out on nodes."""


class ClearingTried(Decision, frozen=True, kw_only=True):
    """Whether ``ref`` finds its places with the victims of a proposed clearing gone, and where."""

    ref: Ref
    attempt: int
    victims: tuple[str, ...] = ()
    """uids; empty where it finds no place even with all of them gone."""
    places: tuple[Placement, ...] = ()
    """What is kept for it when they are gone."""
    shortage: Shortage | None = None
    """What it would lack even then."""
    moves: tuple[Move, ...] = ()
    """Of kind ``move``: where the victims go, in the order of ``victims``."""


class ClearingOrdered(DemandDecision, frozen=True, kw_only=True):
    """The victims are suspended so that ``ref`` has room on the nodes; no quota is held for it."""

    kind: ClearingKind
    victims: tuple[Victim, ...]
    priority: int | None = None
    """Its priority, where jobs of its own queue are suspended for that; else None."""
    moves: tuple[Move, ...] = ()
    """Of kind ``move``: where each of the victims starts again, with the quota it has."""


ClearingDecision = ClearingProposed | ClearingTried | ClearingOrdered
