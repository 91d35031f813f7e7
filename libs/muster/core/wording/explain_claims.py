"""The words about claims for age, and about jobs that pass them by the run time that they declare."""

from __future__ import annotations

from muster.core.codes.values import Idles
from muster.core.objects.labels import RUN_TIME
from muster.core.objects.meta import rfc3339
from muster.core.wording.explain import Reason
from muster.core.wording.terms import terms
from muster.events.claims import ClaimOpened
from muster.model.demand import Shortfall
from muster.model.resources import format_quantity
from muster.model.text import span

HOUR_MS = 3_600_000


def waiting_for_claim(denial: Shortfall, promised: int) -> Reason:
    """The words for a claimant: released quota is held for it. ``promised``: log time (ms), 0 where nothing is."""
    resource, path = denial.resource, denial.path
    by = f", by {rfc3339(promised)} if the declared run times are true" if promised else ""
    return Reason(
        "WaitingForClaim",
        f"claim:{path}:{resource}:{promised}",
        f"Quota that is released in {terms(path).where} is held for it: request "
        f"{format_quantity(denial.asked, resource)} {resource}. It starts once enough is released{by}",
    )


def idled(resource: str, found: Idles) -> str:
    """Since when quota is held for a claimant, and what that has cost the others, after the sentence about it."""
    idle, most = (format_quantity(amount // HOUR_MS, resource) for amount in (found.idle, found.most))
    return (
        f". It is held since {rfc3339(found.since)}. What others asked for and was idle meanwhile comes to {idle} "
        f"{resource} for an hour: at {most} the claim ends"
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
    """Why a claim without victims is opened, and where run times are declared when it is served."""
    if event.kind != "age":
        return "its queue is owed it, and jobs that are being suspended for others free enough for it, too"
    if not event.promised:
        return "it has waited too long"
    by = f"by the declared run times it starts by {rfc3339(event.promised)}, and jobs that end before may pass"
    return f"it has waited too long; {by}"


def beside(job: str, declared: int, promised: int) -> str:
    """Why a job was admitted beside a claim; empty where it was not. ``declared``: ms; ``promised``: log time (ms)."""
    if not job:
        return ""
    return f"; it declares {span(declared)}, and job {job}, for which quota is held, is promised by {rfc3339(promised)}"
