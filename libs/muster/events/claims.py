"""Decisions about claims: the results of a plan to take quota back, and the quota held for a waiting job."""

from __future__ import annotations

from typing import Literal

from muster.events.base import Decision
from muster.events.demands import DemandDecision
from muster.events.reasons import ClaimKind
from muster.model.keys import Ref

ClaimOutcome = Literal["gone", "held", "paused", "moved", "changed", "unsatisfiable", "expired", "idle"]
"""Why a claim ends without an admission."""

PlanObjection = Literal[
    "not_waiting",
    "fits",
    "held_for_age",
    "no_victims",
    "victim_protected",
    "victim_left",
    "not_preempting",
    "not_lower",
    "not_served_more",
    "below_min",
    "gives_too_much",
    "not_enough",
    "beyond_guarantee",
    "beyond_share",
    "unbalanced",
    "too_many_victims",
]
"""Why a proposed preemption is not carried out:

not_waiting       the claimant no longer waits as it did
fits              it fits without an eviction
held_for_age      what is freed there is held for a job that later work has passed (``holder``)
no_victims        the plan names no victim
victim_protected  a victim may no longer be evicted
victim_left       a victim has left
not_preempting    jobs of its queue are not preempted for it
not_lower         a victim in its queue has no lower priority
not_served_more   a victim has had no more service than the claimant, or keeps no checkpoints
below_min         the queue of a victim is within its guarantee, or the victim makes no room that is lacking
gives_too_much    a queue would lose more than it uses above its share
not_enough        it would not fit once the victims are evicted
beyond_guarantee  it is beyond the guarantee of its queue
beyond_share      it is beyond the fair share of its queue
unbalanced        its queue would be further above its share than the queue of a victim
too_many_victims  fewer victims are enough
"""


class ClaimOpened(DemandDecision, frozen=True, kw_only=True):
    """Quota released by others is held for ``ref``, and no job is suspended for this claim.

    ``age``: too much later work has passed the job. ``guarantee``: the job is within a guarantee, and the quota
    leaving for others is enough for this job too. ``priority``: the quota is free, and was held for the age of a job of
    lower priority.
    """

    kind: ClaimKind = "age"
    top: str = ""
    """The highest node of the tree that refuses the job: quota is held up to this node; empty for the whole path."""
    promised: int = 0
    """Log time (ms) at which enough quota is free, by the declared run times of running jobs; 0: too few declare one.

    A job that declares to leave before this time may pass the claimant.
    """
    idles_ms: int = 0
    """With ``age``: how long the claimed amounts may be idle; then the claim ends."""


class PlanStale(Decision, frozen=True, kw_only=True):
    """A proposed plan no longer holds: no job is suspended for the claimant."""

    ref: Ref
    attempt: int
    reason: PlanObjection
    holder: str = ""
    """With reason ``held_for_age``: namespace/name of the job for whose age the quota is held."""


class ClaimEnded(Decision, frozen=True, kw_only=True):
    """Nothing is held for ``ref`` any more, and ``ref`` was not admitted."""

    ref: Ref
    outcome: ClaimOutcome


StayReason = Literal["overdue", "runs_again", "not_ended", "node_lost"]
"""Why a claim does not wait for a victim any more:

overdue     it was suspended long ago, and something of it is left
runs_again  it was suspended, and another client has started it again
not_ended   it was expected to end by itself, and runs on
node_lost   a pod of it is on a node that is not ready, so the end of the pod is not seen
"""


class VictimStays(Decision, frozen=True, kw_only=True):
    """No claim waits for the victim ``ref`` any more: other victims may be chosen. Freed quota stays held."""

    ref: Ref
    attempt: int
    reason: StayReason


ClaimDecision = ClaimOpened | PlanStale | ClaimEnded | VictimStays
