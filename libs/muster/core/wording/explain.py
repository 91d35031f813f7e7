"""From reasons to sentences: the one place where what the log says is put into words for people.

A sentence names the object's own terms with numbers, says what it waits for, and what would help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from muster.core.codes.values import Leaving
from muster.core.status.jobstatus import refusal_code, refused_code
from muster.core.wording import problems
from muster.core.wording.terms import amounts, terms
from muster.events.claims import ClaimOutcome, PlanObjection, StayReason
from muster.events.decisions import (
    AdoptionReason,
    DeferralReason,
    DequeueReason,
    ReleaseReason,
)
from muster.events.effects import FailureReason
from muster.model.demand import Shortfall
from muster.model.resources import Vector, format_quantity, format_vector
from muster.model.text import counted, span


class Reason(Struct, frozen=True):
    """Why something stands where it stands.

    ``key`` is equal for two moments that read the same to a user, whatever is in use at the moment.
    """

    code: str
    """CamelCase, as Kubernetes Events and conditions have it."""
    key: str
    text: str


def waiting_for_quota(refusal: Shortfall) -> Reason:
    """The words for a denial, in the form ``Insufficient quota(RESOURCE) in quota PATH: request R, max M, used U``."""
    path, resource, term = refusal.path, refusal.resource, terms(refusal.path)
    limit, node = format_quantity(refusal.limit, resource), f"quota({resource}) in {term.where}"
    code = refusal_code(refusal)
    match code:
        case "ExceedsMinQuota" | "InsufficientMinQuota":
            never = code == "ExceedsMinQuota"
            key = f"min:{path}:{resource}:{refusal.limit}:{never}"
            head = (
                f"{'Exceeds' if never else 'Insufficient'} {term.least} {node}"
                if term.least != "quota"
                else (f"{'Exceeds' if never else 'Insufficient'} {node} for non-preemptible jobs")
            )
            text = f"{head}: {amounts(refusal, term.least, f'jobs that are {term.firm}')}. "
            text += (
                f"It can never be admitted like this: raise the {term.least}, lower the request or make it preemptible"
                if never
                else "Wait for one of those to complete"
            )
        case "InsufficientRuntimeQuota":
            key = f"runtime:{path}:{resource}:{refusal.asked}"
            text = (
                f"Insufficient runtime {node}: {amounts(refusal, 'runtime')}. What the quota may use now is divided by "
                "weight: wait for its jobs to complete or others to ask for less"
            )
        case "ExceedsMaxQuota":
            key = f"exceeds:{path}:{resource}:{limit}"
            asked = format_quantity(refusal.asked, resource)
            way = (
                f"lower the request or raise the {term.most}"
                if term.most != "capacity"
                else ("lower the request or add nodes")
            )
            text = f"Exceeds {node}: request {asked}, {term.most} {limit}. It can never be admitted like this: {way}"
        case "QuotaHeld":
            key = f"held:{path}:{resource}:{limit}:{refusal.claimant}"
            text = (
                f"Insufficient {node}: {amounts(refusal, term.most)}. It is tried again when that claim ends, or "
                "when running jobs complete after that job has started"
            )
        case _:
            key = f"insufficient:{path}:{resource}:{limit}" + (f":{refusal.claimant}" if refusal.claimant else "")
            text = f"Insufficient {node}: {amounts(refusal, term.most)}. Wait for running jobs to complete"
    return Reason(code, key, text)


def kept_for_owners(refusal: Shortfall) -> Reason:
    """The words for a job that would borrow what is kept for owners: it may run longer than the tree lends freely."""
    resource, path, term = refusal.resource, refusal.path, terms(refusal.path)
    return Reason(
        "QuotaKept",
        f"kept:{path}:{resource}:{refusal.asked}",
        f"Quota({resource}) in {term.where} is kept for other queues: {amounts(refusal, term.most)}, which they wanted "
        "lately: it is lent only to jobs that are expected to end soon (muster.dev/borrow-freely). Wait for more to "
        "become free, or for its own queue to fall below its guarantee",
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
    """The words for a job that was suspended so that another queue gets what it is owed."""
    owed = terms(queue).owed
    return Reason(
        "Reclaimed",
        f"reclaimed:{claimant}",
        f"Suspended to release {resource} in {terms(path).where}: job {claimant} stays within the {owed} of its queue "
        f"{queue}, and this one ran above the {owed} of its own. It is queued again in its old place",
    )


def preempted_for(claimant: str, queue: str, path: str, resource: str, priorities: tuple[int, int]) -> Reason:
    """The words for a job that was suspended for a higher priority in its own queue; ``priorities``: its, the other."""
    return Reason(
        "Preempted",
        f"preempted:{claimant}",
        f"Preempted by a job of higher priority in the same queue: {claimant} has priority {priorities[1]}, this one "
        f"{priorities[0]}, and needs {resource} of quota {path} in queue {queue}. It is queued again in its old place",
    )


def served_more(claimant: str, queue: str, path: str, resource: str) -> Reason:
    """The words for a job that was suspended after a checkpoint for one that has had less GPU time."""
    return Reason(
        "Preempted",
        f"preempted:{claimant}",
        f"Suspended right after a checkpoint for a job that has had less GPU time: {claimant} needs {resource} of "
        f"quota {path} in queue {queue} (muster.dev/least-attained). It is queued again, behind jobs with less",
    )


def moved_for(why: Leaving) -> Reason:
    """The words for a job that was moved so that another has room on the nodes."""
    where = f"from {_nodes(why.before)} to {_nodes(why.after)}"
    return Reason(
        "Preempted",
        f"moved:{why.claimant}",
        f"Moved {where} to make room for {why.claimant} of queue {why.queue}: it is suspended, keeps its quota, and "
        f"starts again there when its pods are gone",
    )


def _nodes(names: tuple[str, ...]) -> str:
    """``n1, n2 and 3 more nodes``."""
    more = f" and {counted(len(names) - 3, 'more node')}" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def cleared_for(why: Leaving) -> Reason:
    """The words for a job that was suspended so that another has room on the nodes."""
    rule = f"stays within the {terms(why.queue).owed} of its queue, and this one ran above that of its own"
    if why.code == "Preempted":
        rule = f"has priority {why.claimant_priority}, this one {why.priority}"
    said = f"Suspended to make room on nodes for job {why.claimant} of queue {why.queue}, which {rule}"
    return Reason(why.code, f"cleared:{why.claimant}", f"{said}. It is queued again in its old place")


def leaving(why: Leaving) -> Reason:
    """The words for a job that a decision suspends."""
    if why.code == "RunningTimeout":
        return unschedulable(problems.line(why.problem)) if why.problem is not None else RUNNING_TIMEOUT
    if why.code == "StaleGang":
        return STALE_GANG
    if why.before:
        return moved_for(why)
    if why.of_nodes:
        return cleared_for(why)
    if why.code == "Reclaimed":
        return evicted_for(why.claimant, why.queue, why.path, why.resource)
    if why.served:
        return served_more(why.claimant, why.queue, why.path, why.resource)
    return preempted_for(why.claimant, why.queue, why.path, why.resource, (why.priority, why.claimant_priority))


def work_lost(ran: int) -> str:
    """What an eviction costs, after the sentence about it; ``ran`` in ms."""
    return f". It had run for {span(ran)}: what it has not saved since is lost"


def taker(job: str, amount: str, queue: str, *, ahead: bool) -> str:
    """A job that took what another one waits for. ``queue``: its own, where it is another; ``ahead`` of it or not."""
    how = f"of queue {queue}" if queue else "ahead of it" if ahead else "behind it, and small enough"
    return f"{job} ({amount}, {how})"


def room_made(what: str) -> str:
    """What was tried last to make room for a job, and what became of that."""
    return f". To make room for it: {what}"


def in_place(text: str, place: int, length: int, queue: str) -> str:
    """A reason, and the place of the job in its queue."""
    return f"{text}; position {place} of {length} in queue {queue}"


def taken_meanwhile(resource: str, shown: list[str], count: int) -> str:
    """Which jobs took what a job waits for, while it waited."""
    more = f", and {count - len(shown)} before them" if count > len(shown) else ""
    return f". While it waited, {resource} there went to {', '.join(shown)}{more}"


def waiting_untried(ahead: int) -> Reason:
    """The words for a job nobody has tried yet."""
    who = "next in its queue" if ahead <= 0 else f"behind {ahead} in its queue"
    return Reason("Queued", "untried", f"Queued, {who}; about to be tried")


LOG_NEARLY_FULL = Reason(
    "LogNearlyFull",
    "log_nearly_full",
    "The log is nearly full: nothing is admitted until its next generation is in force; `muster log roll` begins it",
)


BEHIND_HEAD = Reason(
    "BehindHead",
    "behind_head",
    "Nobody passes the head of its queue (policy Block): it is tried when all before it have their places",
)


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


def beyond_grant(over: Vector, granted: Vector) -> Reason:
    """What runs of a job is more than it was granted, resource by resource."""
    text = (
        f"{format_vector(over)} runs beyond what it was granted ({format_vector(granted)}): all of it is charged, and "
        "it is the first of its priority to give back. Scale it down, or suspend it and raise its request"
    )
    return Reason("BeyondGrant", f"beyond_grant {format_vector(over)}", text)


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
STALE_GANG = Reason(
    "StaleGang",
    "stale_gang",
    "Suspended: it had fewer pods than its gang needs for too long (60 s, unless label "
    "kai.scheduler/staleness-grace-period says another time, -1 for never). It is queued again in its old place",
)


def unschedulable(said: str) -> Reason:
    """The words for a job whose gang kube-scheduler has not placed."""
    text = (
        f"Suspended again: kube-scheduler has not placed its gang ({said}). Its quota is given back, and it is "
        "queued again after a pause"
    )
    return Reason("RunningTimeout", "unschedulable", text)


def suspended(reason: Literal["running_timeout", "stale_gang", "unschedulable"], said: str = "") -> str:
    """Why an admitted job is suspended again, for nobody else."""
    if reason == "unschedulable":
        return unschedulable(said).text
    return STALE_GANG.text if reason == "stale_gang" else TIMED_OUT


def admitted(queue: str, request: Vector, waited: int) -> Reason:
    """The words for an admission after a wait of so many ms."""
    what = format_vector(request)
    text = f"Admitted from queue {queue} after {span(waited)}: its quota ({what}) is reserved and it is being started"
    return Reason("Admitted", "admitted", text)


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
    "held": "it was held back before it was admitted",
    "paused": "the admissions of its queue were paused before it was admitted; it is queued again in its old place",
    "resume_failed": "the API server refused to resume it; it is queued again after a pause",
    "evicted": "it was suspended to give quota back, and nothing of it is left; it is queued again in its old place",
    "preempted": "it was suspended for a job of higher priority in its queue, or for one that has had less GPU time, "
    "and nothing of it is left; it is queued again",
    "timed_out": "it did not come to run in time; it was suspended and is queued again after a pause",
    "stale": "it had too few pods of its gang and was suspended; it is queued again in its old place",
    "moved": "it was suspended so that another has room on the nodes, and nothing of it is left there; its quota is "
    "reserved for it again, and it starts where it has its new place",
    "no_nodes": "its gang has no place on the nodes; it is queued again when they have room for it",
}
NOT_RESUMED: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be resumed",
    "spec_changed": "its spec was edited after it was admitted; it is queued again as it is now",
    "superseded": "a newer decision was carried out on it meanwhile",
    "refused": "the API server refused to resume it",
    "withdrawn": "a newer decision withdrew that",
}
NOT_SUSPENDED: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be suspended",
    "spec_changed": "its spec was edited before it could be suspended",
    "superseded": "a newer decision was carried out on it meanwhile",
    "refused": "the API server refused to suspend it",
    "withdrawn": "a newer decision withdrew that",
}
NOT_ASKED = "the API server refused to have nodes asked for"
NOT_WITHDRAWN = "the API server refused to remove a request for nodes"
GPU_KEPT = "the API server refused to delete the pod that keeps a GPU nobody shares any more"
NOT_BOUND: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be bound",
    "spec_changed": "it was changed before it could be bound",
    "superseded": "somebody else has bound it to another node",
    "refused": "the API server refused to bind it",
    "withdrawn": "it had lost its node before it was bound; it waits for another",
}
DEFERRED: dict[DeferralReason, str] = {
    "nothing_evictable": "its queue is owed {0}, and no borrower in {1} can be evicted",
    "no_place": "evictions would free {0} in {1}, and no set of them leaves room for the job on the nodes",
    "nodes_stay": "its quota has room, and no evictions were found that leave room for it on the nodes",
    "search_ended": "evictions would free {0} in {1}; the search for a set that leaves room on the nodes ended",
    "evictions_paused": "its queue is owed {0}, and the evictions that would free it in {1} are paused "
    "(`muster resume evictions` lets them go on)",
    "too_young": "its queue is owed {0}, and no borrower in {1} has run for its minimum yet",
    "grace": "its queue is owed {0} in {1}, and no job is evicted for it before its reclaim grace is over",
    "lower_stays": "it has a higher priority than jobs that run in its queue, and those that can be evicted would not "
    "free enough {0} for it in {1}",
    "lower_paused": "it has a higher priority than jobs that run in its queue, and the evictions that would free {0} "
    "for it in {1} are paused (`muster resume evictions` lets them go on)",
    "lower_too_young": "it has a higher priority than jobs that run in its queue, and they have not run for their "
    "minimum yet, so {0} in {1} is not taken back from them",
}
"""Why nothing is evicted for a job, with the resource and where it is refused."""
WITHHELD = {
    "reclaim_disabled": "nothing is done: work that nobody had admitted was running when this cluster was first seen, "
    "so nobody is evicted before you say so (`muster resume evictions`)",
}
STALE: dict[PlanObjection, str] = {
    "not_waiting": "it no longer waits as it did",
    "fits": "it fits without taking anything back",
    "held_for_age": "what is freed there is held for {}, which has waited longer",
    "no_victims": "no job is named that could give way",
    "victim_protected": "a victim may not be suspended any more",
    "victim_left": "a victim has left meanwhile",
    "not_preempting": "no job of its own queue gives way to it",
    "not_lower": "a victim of its own queue has no lower priority",
    "not_served_more": "a victim has had no more GPU time than it, or keeps no checkpoints",
    "below_min": "the queue of a victim would fall below its min",
    "gives_too_much": "a queue would give more than it has above its share",
    "not_enough": "it would not fit even with the victims gone",
    "beyond_guarantee": "it is beyond the guarantee of its queue",
    "beyond_share": "it is beyond the fair share of its queue",
    "unbalanced": "its queue would be further above its share than one that gives",
    "too_many_victims": "it needs fewer victims",
    "no_nodes": "it would find no place on the nodes even with the victims gone",
}
"""Why a proposed preemption is not carried out, with the job that holds what it would take."""
CLAIM_ENDED: dict[ClaimOutcome, str] = {
    "gone": "nothing is held for it any more: it no longer waits",
    "held": "nothing is held for it any more: it is held back (`muster release` lets it queue again)",
    "paused": "nothing is held for it any more: admissions of its queue are paused",
    "moved": "nothing is held for it any more: it belongs to another queue now",
    "changed": "nothing is held for it any more: it was edited, and is queued anew",
    "unsatisfiable": "nothing is held for it any more: it asks for more than its quota may give now",
    "expired": "nothing is held for it any more: not enough was given back in time",
}
STAYS: dict[StayReason, str] = {
    "overdue": "it was suspended an hour ago and has not left: no job waits for it any more, others may give way; "
    "`kubectl describe` its pods: a finalizer or a node that is gone may keep them",
    "runs_again": "it was suspended and has been started again: no job waits for it, others may give way instead",
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


def trouble(code: str, found: Sequence[str], more: int) -> Reason:
    """The words for what is wrong with an object, for an Event on it. ``more``: findings beyond those found."""
    listed = "; ".join(found) + (f"; and {more} more" if more else "")
    if code == "tree_rejected":
        text = f"Refused as a whole, the last good tree stays in force: {listed}"
        return Reason("QuotaTreeRejected", code, text)
    if code == "pools_refused":
        return Reason("NodePoolRefused", code, f"Node pools that do not count, the others do: {listed}")
    return Reason(refused_code(code), code, listed)
