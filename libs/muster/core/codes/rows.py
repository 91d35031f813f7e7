"""What readers ask of a code: the form of a row of ``core.status.codes``."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.core.codes.values import Phase, Plain, Values
from muster.events.refusals import RefusalReason

NOTHING = "Nothing."
"""The way out of what needs none."""

Tone = Literal["good", "waits", "act", "plain"]
"""How a code looks: it has quota; it waits, and nothing has to be done; something has to be done; none of these."""

Lasts = Literal["moment", "while", "final"]
"""How long a code lasts: until the next stage has answered; until others change something; until its owner, or the
owner of the quota, changes something."""

Holders = Literal["none", "all", "firm"]
"""Which charges keep a job waiting: none; all at the quota that refuses it; those that are not preemptible."""

Told = Literal["never", "while", "after"]
"""When a Kubernetes Event on the job has this reason: while the job has the code; once it is queued again."""


class Code(Struct, frozen=True, kw_only=True):
    """One row. ``phases``: those in which a job may have the code."""

    phases: tuple[Phase, ...] = ("waiting",)
    tone: Tone = "waits"
    lasts: Lasts = "while"
    event: Told = "never"
    values: type[Values] = Plain
    means: str
    do: str = NOTHING
    turn: bool = False
    """It ends when other jobs end, so that a start can be projected."""
    holders: Holders = "none"
    started: bool = False
    """Its pods may exist."""
    refuses: RefusalReason | None = None
    """The reason in the log that keeps it out of the queue."""
    kai: str = ""
    """The reason that KAI Scheduler has for it."""
