"""A record of every job: how far it has come and when, also of those that are gone, bounded by count and age."""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.codes.happenings import Happening
from muster.core.codes.pods import TroubledPod
from muster.core.codes.values import EndedAs, Leaving, Phase, Scaling
from muster.events.base import Cause
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GrowthUnit
from muster.events.reasons import AdoptionReason
from muster.model.elastic import Counts
from muster.model.keys import Ref
from muster.model.resources import Vector
from muster.model.victims import Victim
from muster.model.workload import Outcome

GONE_KEPT = 2_000
"""Jobs that are gone and still remembered: the newest."""
GONE_KEPT_MS = 14 * 24 * 3_600_000
"""How long a job that is gone is remembered, by log time."""


class Record(Struct):
    """What became of one job. Times are log times in ms, 0 where it has not happened under its present charge."""

    ref: Ref
    phase: Phase = "seen"
    since: int = 0
    """When that phase began."""
    owner: str = ""
    """As the job says itself."""
    queue: str = ""
    request: Vector | None = None
    """What it asks for, or released last."""
    admitted_at: int = 0
    adoption: AdoptionReason | None = None
    """Why it is charged without an admission."""
    running_at: int = 0
    released_at: int = 0
    """When it released the quota of an admission: a job that is queued again waits from then on, in its old place."""
    gone_at: int = 0
    outcome: Outcome = ""
    detail: str = ""
    ended: EndedAs = ""
    """The last event of the kinds that may end a job."""
    failure: TroubledPod | None = None
    """The first of its pods that failed since its admission; or the last that was broken when it went."""
    reason: str = ""
    """Of its release, or of its leaving the queue."""
    growth: Scaling = field(default_factory=Scaling)
    happenings: list[Happening] = field(default_factory=list)


def asked_in(units: tuple[GrowthUnit, ...]) -> Counts:
    """Replicas in all, group by group."""
    found: Counts = {}
    for unit in units:
        for name, count in unit.groups.items():
            found[name] = found.get(name, 0) + count * unit.times
    return dict(sorted(found.items()))


def prune(records: dict[str, Record], gone: dict[str, None], now: int) -> None:
    """Forget the jobs that went first, beyond what is kept. ``gone``: their uids, in the order in which they went."""
    while gone:
        uid = next(iter(gone))
        record = records.get(uid)
        if len(gone) <= GONE_KEPT and record is not None and now - record.gone_at <= GONE_KEPT_MS:
            return
        del gone[uid]
        records.pop(uid, None)


def fade(records: dict[str, Record], over: dict[str, None]) -> None:
    """Of jobs that are over and still exist only the newest keep what happened to them. ``over``: oldest first."""
    while len(over) > GONE_KEPT:
        oldest = next(iter(over))
        del over[oldest]
        if oldest in records:
            records[oldest].happenings = []


def leaving_for(event: EvictionOrdered, victim: Victim, generation: int, cause: Cause) -> Leaving:
    """Why a victim of an order is suspended: for a guarantee, a higher priority in its own queue, or less service."""
    served = event.kind == "service"
    move = next((each for each in event.moves if each.uid == victim.ref.uid), None)
    preempted = served or move is not None or (victim.priority is not None and event.priority is not None)
    return Leaving(
        "Preempted" if preempted else "Reclaimed",
        generation,
        cause,
        claimant=event.ref.key,
        queue=event.queue,
        path=event.path,
        resource=event.resource,
        priority=victim.priority or 0,
        claimant_priority=event.priority or 0,
        served=served,
        of_nodes=event.for_nodes,
        before=move.before if move is not None else (),
        after=move.after if move is not None else (),
    )
