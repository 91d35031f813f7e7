"""Decisions about claims: what becomes of a plan to take quota back, and what is held for a waiting job."""

from __future__ import annotations

from typing import Literal

from muster.events.base import Decision
from muster.events.decisions import Shortage
from muster.model.keys import Ref
from muster.model.resources import Vector

ClaimOutcome = Literal["gone", "held", "paused", "moved", "changed", "unsatisfiable", "expired"]
"""Why a claim ends without an admission."""


class ClaimOpened(Decision, frozen=True, kw_only=True):
    """What others give back is held for ``ref``, which has waited longer than the age limit."""

    ref: Ref
    attempt: int
    queue: str
    request: Vector
    pods: int = 0
    preemptible: bool = True
    top: str = ""
    """The uppermost node at which it is held: the highest one that refuses it."""


class PlanStale(Decision, frozen=True, kw_only=True):
    """A proposed preemption no longer holds; nobody is suspended for it."""

    ref: Ref
    attempt: int
    reason: str
    no_nodes: bool = False
    """It would find no place on the nodes even with the victims gone."""


class PlanTried(Decision, frozen=True, kw_only=True):
    """Whether a claimant would find its places on the nodes with its victims gone; asked where gangs are placed."""

    ref: Ref
    attempt: int
    fits: bool
    shortage: Shortage | None = None
    """What it lacks now."""


class ClaimEnded(Decision, frozen=True, kw_only=True):
    """Nothing is held for ``ref`` any more, and it was not admitted."""

    ref: Ref
    outcome: ClaimOutcome


ClaimDecision = ClaimOpened | PlanStale | PlanTried | ClaimEnded
