"""The status of a job, as ``muster why`` and ``position`` show it: the status in words, and the holders of its quota.

A view: it decides nothing about standings, see ``core.status``, and has no sentences, see ``core.wording``.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.codes.codes import JobCode
from muster.core.readmodel.state import ReadState
from muster.core.status.job import job_status, wanting
from muster.core.status.jobstatus import JobStatus
from muster.core.wording import jobs
from muster.model.resources import format_quantity, format_vector


class ShownHolder(Struct, frozen=True):
    """A job whose quota another one waits for."""

    job: str
    amount: str
    text: str


class ShownWanting(Struct, frozen=True):
    """What a waiting job waits for, in numbers of now: at which quota, and what must be released there."""

    quota: str
    resource: str
    request: str
    limit: str
    used: str
    free: str
    missing: str
    holders: list[ShownHolder] = field(default_factory=list)
    """The largest first."""
    held_by: int = 0
    """How many hold some of it in all."""


class Standing(Struct, frozen=True):
    """The status of a job. ``code`` is one word for programs, ``text`` one or more sentences for people."""

    code: JobCode
    text: str
    queue: str = ""
    position: int = 0
    length: int = 0
    charged: str = ""
    wanting: ShownWanting | None = None


def standing_of(state: ReadState, uid: str, now: int, *, acting: bool = True, more: str = "") -> Standing:
    """The status of a job. ``now``: ms since the epoch; ``more``: what follows on what refuses it.

    ``acting``: false where admissions are not carried out.
    """
    status = job_status(state, uid, acting=acting)
    return Standing(
        code=status.code,
        text=jobs.text(status, now, more=more),
        queue=status.queue if status.charge is not None or status.phase == "waiting" else "",
        position=status.line.position,
        length=status.line.length,
        charged=format_vector(status.charge.request) if status.charge is not None else "",
        wanting=_wanting(state, status, now),
    )


def _wanting(state: ReadState, status: JobStatus, now: int) -> ShownWanting | None:
    found = wanting(state, status)
    if found is None:
        return None
    name = found.refusal.resource
    return ShownWanting(
        quota=found.refusal.path,
        resource=name,
        request=format_quantity(found.refusal.asked, name),
        limit=format_quantity(found.refusal.limit, name),
        used=format_quantity(found.refusal.used, name),
        free=format_quantity(found.free, name),
        missing=format_quantity(found.missing, name),
        holders=[
            ShownHolder(each.job, format_quantity(each.amount, name), jobs.holds(each, now)) for each in found.holders
        ],
        held_by=found.held_by,
    )
