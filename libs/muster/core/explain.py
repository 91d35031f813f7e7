"""From reasons to sentences: the one place where what the log says is put into words for people.

A sentence names the object's own terms with numbers, says what it waits for, and what would help.
"""

from __future__ import annotations

from msgspec import Struct

from muster.core.queueing.book import Denial
from muster.events.decisions import (
    AdoptionReason,
    DeferralReason,
    DequeueReason,
    EvictionOrdered,
    QuotaDenied,
    ReleaseReason,
    Victim,
)
from muster.events.effects import FailureReason
from muster.model.resources import format_quantity
from muster.model.text import span


class Reason(Struct, frozen=True):
    """Why something stands where it stands.

    ``key`` is equal for two moments that read the same to a user, whatever is in use at the moment.
    """

    code: str
    """CamelCase, as Kubernetes Events and conditions have it."""
    key: str
    text: str


def waiting_for_quota(denial: Denial | QuotaDenied, holder: str = "") -> Reason:
    """The words for a denial, in the form ``Insufficient quota(RESOURCE) in quota PATH: request R, max M, used U``.

    ``holder``: namespace/name of whom part of the quota is held for, if it is.
    """
    resource, path = denial.resource, denial.path
    asked, limit, used = (format_quantity(amount, resource) for amount in (denial.asked, denial.limit, denial.used))
    if denial.of_min:
        return _beyond_min(denial, f"request {asked}, min {limit}, used {used}")
    if denial.of_runtime:
        return Reason(
            "InsufficientRuntimeQuota",
            f"runtime:{path}:{resource}:{denial.asked}",
            f"Insufficient runtime quota({resource}) in quota {path}: request {asked}, runtime {limit}, used {used}. "
            f"What the quota may use now is divided by weight: wait for its jobs to complete or others to ask for less",
        )
    if denial.asked > denial.limit:
        return Reason(
            "ExceedsMaxQuota",
            f"exceeds:{path}:{resource}:{limit}",
            f"Exceeds quota({resource}) in quota {path}: request {asked}, max {limit}. It can never be admitted "
            f"like this: lower the request or raise the max",
        )
    if denial.held and holder:
        held = format_quantity(denial.held, resource)
        return Reason(
            "QuotaHeld",
            f"held:{path}:{resource}:{limit}:{holder}",
            f"Insufficient quota({resource}) in quota {path}: request {asked}, max {limit}, used {used}, of which "
            f"{held} are held for {holder}. Wait until it has started or its claim ends",
        )
    return Reason(
        "InsufficientQuota",
        f"insufficient:{path}:{resource}:{limit}",
        f"Insufficient quota({resource}) in quota {path}: request {asked}, max {limit}, used {used}. "
        f"Wait for running jobs to complete",
    )


def _beyond_min(denial: Denial | QuotaDenied, numbers: str) -> Reason:
    """What is not preemptible stays within the guarantee, whatever is free."""
    resource, path = denial.resource, denial.path
    never = denial.asked > denial.limit
    return Reason(
        "ExceedsMinQuota" if never else "InsufficientMinQuota",
        f"min:{path}:{resource}:{denial.limit}:{never}",
        f"{'Exceeds' if never else 'Insufficient'} min quota({resource}) in quota {path}: {numbers} by jobs that are "
        f"not preemptible. "
        + ("Raise the min, lower the request or make it preemptible" if never else "Wait for one of those to complete"),
    )


def waiting_for_claim(denial: Denial) -> Reason:
    """The words for a claimant: what leaves is held for it."""
    resource, path = denial.resource, denial.path
    return Reason(
        "WaitingForClaim",
        f"claim:{path}:{resource}",
        f"What is given back in quota {path} is held for it: request "
        f"{format_quantity(denial.asked, resource)} {resource}. It starts as soon as enough has left",
    )


def paused(queue: str, by: str, why: str) -> Reason:
    """The words for a queue somebody has paused."""
    who = f" by {by}" if by else ""
    return Reason(
        "Paused",
        f"paused:{queue}:{by}:{why}",
        f"Admissions are paused{who}{f': {why}' if why else ''}; `muster resume admissions` lets them go on",
    )


def resting(where: str, what: tuple[str, ...], by: str, why: str) -> str:
    """The words for what somebody has paused; ``where``: a quota path, empty for the whole tree."""
    who, reason, option = f" by {by}" if by else "", f": {why}" if why else "", f" --queue {where}" if where else ""
    verb = "are paused" if not where else f"of queue {where} are paused"
    again = " and ".join(f"`muster resume {each}{option}`" for each in what)
    lets = "lets" if len(what) == 1 else "let"
    return f"{' and '.join(what).capitalize()} {verb}{who}{reason}; {again} {lets} them go on"


def evicted_for(claimant: str, queue: str, path: str, resource: str) -> Reason:
    """The words for a job that was suspended to give quota back."""
    return Reason(
        "Reclaimed",
        f"reclaimed:{claimant}",
        f"Suspended to give {resource} back in quota {path}: job {claimant} stays within the min of its queue {queue}, "
        f"and this one ran above the min of its own. It is queued again in its old place",
    )


def preempted_for(claimant: str, queue: str, path: str, resource: str, priorities: tuple[int, int]) -> Reason:
    """The words for a job that was suspended for a higher priority in its own queue; ``priorities``: its, the other."""
    return Reason(
        "Preempted",
        f"preempted:{claimant}",
        f"Preempted by a job of higher priority in the same queue: {claimant} has priority {priorities[1]}, this one "
        f"{priorities[0]}, and needs {resource} of quota {path} in queue {queue}. It is queued again in its old place",
    )


def leaving_for(event: EvictionOrdered, victim: Victim) -> Reason:
    """The words for a victim of an order: which rule it falls under."""
    ref, priority = event.ref, event.priority
    if victim.priority is None or priority is None:
        return evicted_for(ref.key, event.queue, event.path, event.resource)
    return preempted_for(ref.key, event.queue, event.path, event.resource, (victim.priority, priority))


def work_lost(ran: int) -> str:
    """What an eviction costs, after the sentence about it; ``ran`` in ms."""
    return f". It had run for {span(ran)}: what it has not saved since is lost"


def taken_meanwhile(resource: str, shown: list[str], count: int) -> str:
    """Who took what a job waits for, while it waited."""
    more = f", and {count - len(shown)} before them" if count > len(shown) else ""
    return f". While it waited, {resource} there went to {', '.join(shown)}{more}"


def waiting_untried(ahead: int) -> Reason:
    """The words for a job nobody has tried yet."""
    who = "next in its queue" if ahead <= 0 else f"behind {ahead} in its queue"
    return Reason("Queued", "untried", f"Queued, {who}; about to be tried")


def waiting_for_sync(kinds: list[str]) -> Reason:
    """The words for a wait that ends when the cluster is fully known."""
    return Reason(
        "NotSynced",
        "unsynced",
        f"Nothing is admitted until the cluster is fully known; still listing {', '.join(kinds)}",
    )


def resume_failed(message: str, until: str) -> Reason:
    """The words for a workload the API server refused to resume."""
    return Reason(
        "ResumeFailed",
        f"resume_failed:{message}",
        f"Admitted, but the API server refused to resume it: {message or 'no reason given'}. Tried again after {until}",
    )


SUSPENDED_OUTSIDE = Reason(
    "SuspendedOutside",
    "suspended_outside",
    "Suspended by somebody else after its admission; it keeps its quota until its pods are gone, "
    "then it is queued again",
)
RUNNING_TIMEOUT = Reason(
    "RunningTimeout",
    "running_timeout",
    "Suspended again: it was admitted and did not come to run in time. Its quota is given back, and it is queued "
    "again after a pause",
)
ADMITTED = Reason("Admitted", "admitted", "Admitted: its quota is reserved and it is being started")
RUNNING = Reason("Running", "running", "Running")

ADOPTED: dict[AdoptionReason, str] = {
    "already_running": "it already ran when it was first seen: charged as it is, and left alone",
    "bypassed": "it was started around the queue: charged as it is, and left alone",
}
RELEASED: dict[ReleaseReason, str] = {
    "finished": "it is over and nothing of it is left",
    "gone": "it was deleted and nothing of it is left",
    "suspended_outside": "somebody suspended it and nothing of it is left; it is queued again",
    "superseded": "its spec was edited before it started; it is queued again as it is now",
    "resume_failed": "the API server refused to resume it; it is queued again after a pause",
    "evicted": "it was suspended to give quota back, and nothing of it is left; it is queued again in its old place",
    "preempted": "it was suspended for a job of higher priority in its queue, and nothing of it is left; it is queued "
    "again in its old place",
    "timed_out": "it did not come to run in time; it was suspended and is queued again after a pause",
    "no_nodes": "its gang has no place on the nodes; it is queued again after a pause",
}
NOT_RESUMED: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be resumed",
    "spec_changed": "its spec was edited after it was admitted; it is queued again as it is now",
    "superseded": "a newer decision was carried out on it meanwhile",
    "refused": "the API server refused to resume it",
}
NOT_SUSPENDED: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be suspended",
    "spec_changed": "its spec was edited before it could be suspended",
    "superseded": "a newer decision was carried out on it meanwhile",
    "refused": "the API server refused to suspend it",
}
NOT_ASKED = "the API server refused to have nodes asked for"
NOT_WITHDRAWN = "the API server refused to remove a request for nodes"
NOT_BOUND: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be bound",
    "spec_changed": "it was changed before it could be bound",
    "superseded": "somebody else has bound it to another node",
    "refused": "the API server refused to bind it",
}
DEFERRED: dict[DeferralReason, str] = {
    "nothing_evictable": "its queue is owed {0}, and nothing in quota {1} that runs above its own min may be suspended",
    "evictions_paused": "its queue is owed {0}, and somebody has paused the evictions that would free it in quota {1} "
    "(`muster resume evictions` lets them go on)",
    "too_young": "its queue is owed {0}, and what runs above its min in quota {1} has not run for its minimum yet",
    "lower_stays": "it has a higher priority than jobs that run in its queue, and those that may be suspended would "
    "not free enough {0} for it in quota {1}",
    "lower_paused": "it has a higher priority than jobs that run in its queue, and somebody has paused the evictions "
    "that would free {0} for it in quota {1} (`muster resume evictions` lets them go on)",
    "lower_too_young": "it has a higher priority than jobs that run in its queue, and they have not run for their "
    "minimum yet, so {0} in quota {1} is not taken back from them",
}
"""Why nothing is taken back for somebody, with the resource and the quota that refuses it."""
WITHHELD = {
    "reclaim_disabled": "nothing is done: work that nobody had admitted was running when this cluster was first seen, "
    "so nobody is evicted before you say so (`muster resume evictions`)",
}
CLAIM_ENDED = {
    "gone": "nothing is held for it any more: it no longer waits",
    "changed": "nothing is held for it any more: it asks for something else now",
    "expired": "nothing is held for it any more: not enough was given back in time",
    "victims_stay": "nothing is held for it any more: what should have given way could not be suspended",
}
TIMED_OUT = "it was admitted and did not come to run in time: it is suspended and queued again after a pause"
DEQUEUED: dict[DequeueReason, str] = {
    "gone": "it was deleted",
    "finished": "it is over",
    "started_outside": "it was started around the queue",
    "refused": "it can no longer be queued",
    "unbound": "no quota claims its namespace any more",
    "held": "somebody holds it back",
}
REFUSED: dict[str, str] = {
    "cannot_suspend": "CannotSuspend",
    "unbound": "NoQuota",
    "unreadable": "Unreadable",
    "no_tree": "NoQuotaTree",
    "held": "Held",
}
"""Refusal reason -> the CamelCase word of its Event."""
