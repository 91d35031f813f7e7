"""The words about claims for age, and about jobs that pass them by the run time that they declare."""

from __future__ import annotations

from muster.core.objects.labels import RUN_TIME
from muster.core.objects.meta import rfc3339
from muster.core.wording.explain import Reason
from muster.events.claims import ClaimOpened
from muster.model.demand import Shortfall
from muster.model.resources import format_quantity
from muster.model.text import span


def waiting_for_claim(denial: Shortfall, promised: int) -> Reason:
    """The words for a claimant: what leaves is held for it. ``promised``: log time (ms), 0 where nothing is."""
    resource, path = denial.resource, denial.path
    by = f", by {rfc3339(promised)} if the declared run times are true" if promised else ""
    return Reason(
        "WaitingForClaim",
        f"claim:{path}:{resource}:{promised}",
        f"What is given back in quota {path} is held for it: request "
        f"{format_quantity(denial.asked, resource)} {resource}. It starts as soon as enough has left{by}",
    )


def not_beside(declared: int, promised: int) -> str:
    """Why a job that waits behind a claim for age does not pass, after the sentence about it. ``declared``: its run
    time (ms); ``promised``: log time (ms) by which that claim is to be served; 0 where there is none.
    """
    if promised and declared:
        more = f"It declares {span(declared)}, and that job is promised to start by {rfc3339(promised)}"
    elif promised:
        more = f"That job is promised to start by {rfc3339(promised)}: jobs that end before ({RUN_TIME}) may pass"
    elif declared:
        more = f"It declares {span(declared)}, but the declared run times promise that job no start: no job may pass"
    else:
        return ""
    return f". {more}"


def opened(event: ClaimOpened) -> str:
    """What follows on what is held: by when, if anything says so."""
    if not event.promised:
        return ""
    return f"; by the declared run times it starts by {rfc3339(event.promised)}, and who has left by then may pass"


def beside(job: str, declared: int, promised: int) -> str:
    """Why somebody was let in beside a claim; empty where it was not. ``declared``: ms; ``promised``: log time (ms)."""
    if not job:
        return ""
    return f"; it declares {span(declared)}, and job {job}, for which this is held, is promised by {rfc3339(promised)}"
