"""Values of reasons to sentences, in the terms of the quota API.

The terms of a quota API: an ElasticQuotaTree has quotas with min and max, KAI has queues with quota and limit.

From reasons to sentences: the only place that puts the values of the log into words.

A sentence names the object in the terms of the object's API, the numbers, the condition, and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, assert_never

from msgspec import Struct

from muster.core.objects.meta import RUN_TIME, rfc3339
from muster.events.claims import ClaimOpened
from muster.events.reasons import SuspensionReason
from muster.model.demand import Shortfall
from muster.model.problem import FieldProblem
from muster.model.quota import KAI_ROOT
from muster.model.resources import Vector, format_quantity, format_vector
from muster.model.text import counted, span
from muster.told.codes.values import Idles, Leaving, OtherFlavor
from muster.told.status.jobstatus import refusal_code, refused_code
from muster.told.wording import problems

# --- terms ------------------------------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """``where``: a quota or queue in the API's terms; ``least`` and ``most``: the terms for guarantee and limit."""

    where: str
    least: str
    most: str
    firm: str = "non-preemptible"
    owed: str = "min"
    """The amount up to which a queue may reclaim quota from other queues,"""
    right: str = "guarantee"
    """and the name of that right."""


def terms(path: str) -> Terms:
    """The terms of the API that a path belongs to."""
    if path.partition("/")[0] != KAI_ROOT:
        return Terms(f"quota {path}", "min", "max")
    kai = Terms(f"queue {path.rpartition('/')[2]}", "quota", "limit", owed="fair share", right="fair share")
    return kai._replace(where="the cluster", most="capacity") if path == KAI_ROOT else kai


def amounts(short: Shortfall, limit: str, by: str = "") -> str:
    """``request 8, max 64, used 61, held 8 for video/big``. ``limit``: the term; ``by``: jobs that use the quota."""
    asked, most, used = (format_quantity(amount, short.resource) for amount in (short.asked, short.limit, short.used))
    return f"request {asked}, {limit} {most}, used {used}{f' by {by}' if by else ''}{beside(short)}"


def beside(short: Shortfall) -> str:
    """Quota that is neither used nor free; empty without such quota."""
    held, kept = (format_quantity(amount, short.resource) for amount in (short.held, short.kept))
    names = ", ".join(filter(None, (short.claimant, *short.beside[:-1])))
    last = f" and {short.beside[-1]}" if short.beside else ""
    held_text = f", held {held} for {names or 'others'}{last}" if short.held else ""
    return f"{held_text}, kept {kept} for the guarantees of others" if short.kept else held_text


_KEEPS_AWAY = {
    "nodes": "the nodes have no room for its pods",
    "later": "it starts later: until {} it waits for its first type alone",
    "label": "its pods select nodes with label {}",
    "affinity": "the node affinity of its pods asks for another {}",
    "taint": "its pods do not tolerate taint {}",
}


def other_flavors(others: Iterable[OtherFlavor]) -> str:
    """Why a job does not start on other types of nodes; empty without any."""
    told = []
    for other in others:
        if other.refusal is not None:
            short, name = other.refusal, other.refusal.resource
            free = max(0, short.limit - short.used - short.held - short.kept)
            room = f"{format_quantity(free, name)} of {format_quantity(short.limit, name)} {name}"
            told.append(
                f"on {other.name}, {room} of {terms(short.path).where} is free, and it needs "
                f"{format_quantity(short.asked, name)}"
            )
        elif other.kind:
            told.append(f"on {other.name}, {_KEEPS_AWAY[other.kind].format(other.key or rfc3339(other.until))}")
    words = "; ".join(told)
    return f". {words[0].upper()}{words[1:]}" if words else ""


# --- explain ----------------------------------------------------------------------------------------------------------


class Reason(Struct, frozen=True):
    """Why an object has its state.

    ``key`` is equal for two moments that a user reads as the same state, regardless of the usage at the moment.
    """

    code: str
    """CamelCase, as in Kubernetes Events and conditions."""
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
            text = f"{head}: {amounts(refusal, term.least, f'{term.firm} jobs')}. "
            text += (
                f"It can never be admitted like this: raise the {term.least}, lower the request or make it preemptible"
                if never
                else "Wait for one of those to complete"
            )
        case "InsufficientRuntimeQuota":
            key = f"runtime:{path}:{resource}:{refusal.asked}"
            text = (
                f"Insufficient runtime {node}: {amounts(refusal, 'runtime')}. The quota is divided by "
                "weight among queues with requests: wait for its jobs to complete, or for other queues to request less"
            )
        case "ExceedsMaxQuota":
            key = f"exceeds:{path}:{resource}:{limit}"
            asked = format_quantity(refusal.asked, resource)
            way = (
                "It starts once the nodes that are ready have as much: add nodes, or lower the request"
                if term.most == "capacity"  # No user set it: it changes by itself.
                else f"It can never be admitted like this: lower the request or raise the {term.most}"
            )
            text = f"Exceeds {node}: request {asked}, {term.most} {limit}. {way}"
        case "QuotaHeld":
            key = f"held:{path}:{resource}:{limit}:{refusal.claimant}"
            text = (
                f"Insufficient {node}: {amounts(refusal, term.most)}. It is tried again once "
                f"{refusal.claimant or 'the job that it is held for'} has started or its claim has ended"
            )
        case _:
            key = f"insufficient:{path}:{resource}:{limit}" + (f":{refusal.claimant}" if refusal.claimant else "")
            text = f"Insufficient {node}: {amounts(refusal, term.most)}. Wait for running jobs to complete"
    return Reason(code, key, text)


def paused(queue: str, by: str, why: str) -> Reason:
    """The words for a paused queue."""
    author = f" by {by}" if by else ""
    return Reason(
        "Paused",
        f"paused:{queue}:{by}:{why}",
        f"Admissions are paused{author}{f': {why}' if why else ''}; `muster resume admissions` resumes them",
    )


def resting(where: str, levers: tuple[str, ...], by: str, why: str) -> str:
    """The words for paused admissions and evictions; ``where``: a quota path, empty for the whole tree."""
    author, reason, option = f" by {by}" if by else "", f": {why}" if why else "", f" --queue {where}" if where else ""
    verb = "are paused" if not where else f"of queue {where} are paused"
    again = " and ".join(f"`muster resume {lever}{option}`" for lever in levers)
    resumes = "resumes" if len(levers) == 1 else "resume"
    return f"{' and '.join(levers).capitalize()} {verb}{author}{reason}; {again} {resumes} them"


def evicted_for(why: Leaving) -> Reason:
    """The words for a job that was suspended so that another queue gets its guarantee or fair share."""
    owed, of = terms(why.queue).owed, f"its queue {why.queue}"
    if why.owing:
        of = f"quota {why.owing} above {of}"
    return Reason(
        "Reclaimed",
        f"reclaimed:{why.claimant}",
        f"Suspended to release {why.resource} in {terms(why.path).where}: job {why.claimant} was within the {owed} of "
        f"{of}, and this job ran above the {owed} of its queue. It is queued again",
    )


def preempted_for(claimant: str, queue: str, path: str, resource: str, priorities: tuple[int, int]) -> Reason:
    """The words for a job suspended for a higher priority in the same queue; ``priorities``: of the victim, of the
    claimant.
    """
    return Reason(
        "Preempted",
        f"preempted:{claimant}",
        f"Preempted by a job of higher priority in the same queue: {claimant} had priority {priorities[1]}, this job "
        f"{priorities[0]}, and {resource} was short in {terms(path).where}. It is queued again",
    )


def served_more(claimant: str, queue: str, path: str, resource: str) -> Reason:
    """The words for a job that was suspended after a checkpoint for a job with less GPU time."""
    return Reason(
        "Preempted",
        f"preempted:{claimant}",
        f"Suspended right after a checkpoint for a job that had less GPU time: {claimant} needed {resource} of "
        f"{terms(path).where} in queue {queue} (muster.dev/least-attained). It is queued again, behind "
        "jobs with less GPU time",
    )


def moved_for(why: Leaving) -> Reason:
    """The words for a job that was moved so that another has room on the nodes."""
    where = f"from {_node_names(why.before)} to {_node_names(why.after)}"
    return Reason(
        "Preempted",
        f"moved:{why.claimant}",
        f"Moved {where} to make room for {why.claimant} of queue {why.queue}: it is suspended, keeps its quota, and "
        f"starts again on the new nodes once its pods are gone",
    )


def _node_names(names: tuple[str, ...]) -> str:
    """``n1, n2 and 3 more nodes``."""
    more = f" and {counted(len(names) - 3, 'more node')}" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def cleared_for(why: Leaving) -> Reason:
    """The words for a job that was suspended so that another has room on the nodes."""
    of = f"quota {why.owing}" if why.owing else "its queue"
    rule = f"was within the {terms(why.queue).owed} of {of}, while this job ran above that of its queue"
    if why.code == "Preempted":
        rule = f"had priority {why.claimant_priority}, this job {why.priority}"
    text = f"Suspended to make room on nodes for job {why.claimant} of queue {why.queue}, which {rule}"
    return Reason(why.code, f"cleared:{why.claimant}", f"{text}. It is queued again")


def leaving(why: Leaving) -> Reason:
    """The words for a job that a decision suspends."""
    match why.code:
        case "RunningTimeout":
            if why.problem is None:
                return RUNNING_TIMEOUT
            cause = problems.line(why.problem)
            return podless(cause, why.problem.code) if why.problem.code in PODLESS else unschedulable(cause)
        case "StaleGang":
            return STALE_GANG
        case "Overuse":
            return OVERUSE
        case "Reclaimed" | "Preempted" if why.before:
            return moved_for(why)
        case "Reclaimed" | "Preempted" if why.of_nodes:
            return cleared_for(why)
        case "Reclaimed":
            return evicted_for(why)
        case "Preempted" if why.served:
            return served_more(why.claimant, why.queue, why.path, why.resource)
        case "Preempted":
            priorities = (why.priority, why.claimant_priority)
            return preempted_for(why.claimant, why.queue, why.path, why.resource, priorities)
    assert_never(why.code)


def work_lost(ran: int) -> str:
    """The cost of an eviction, as the end of a sentence; ``ran`` in ms."""
    return f". It had run for {span(ran)}: work since its last checkpoint is lost"


def taker(job: str, amount: str, queue: str, *, ahead: bool) -> str:
    """A job that took quota. ``queue``: of the taker, if another queue; ``ahead``: whether the taker was ahead in the
    queue.
    """
    how = f"of queue {queue}" if queue else "ahead of it" if ahead else "behind it, and small enough"
    return f"{job} ({amount}, {how})"


def room_made(attempt: str) -> str:
    """The last attempt to make room for a job, or its outcome, as a sentence that follows other sentences."""
    return f". {attempt[:1].upper()}{attempt[1:]}"


def in_place(text: str, place: int, length: int, queue: str) -> str:
    """A reason, and the place of the job in its queue."""
    return f"{text}; position {place} of {length} in queue {queue}"


def nearly_in_place(first: int, last: int, queue: str) -> str:
    """About the place of a job in its queue, as the end of a sentence. ``last``: 0 for all places from ``first`` on."""
    place = str(first) if first == last else f"{first} to {last}" if last else f"{first} or later"
    return f"; position {place} in queue {queue}"


def taken_meanwhile(resource: str, shown: list[str], count: int) -> str:
    """The jobs that took the quota of a waiting job meanwhile."""
    more = f", and {count - len(shown)} before them" if count > len(shown) else ""
    return f". While it waited, {resource} there went to {', '.join(shown)}{more}"


def waiting_untried(ahead: int) -> Reason:
    """The words for a job that was not evaluated yet."""
    position = "next in its queue" if ahead <= 0 else f"behind {counted(ahead, 'job')} in its queue"
    return Reason("Queued", "untried", f"Queued, {position}; it is evaluated soon")


LOG_NEARLY_FULL = Reason(
    "LogNearlyFull",
    "log_nearly_full",
    "The log is nearly full: nothing is admitted until its next generation is in force; `muster log roll` begins it",
)


BEHIND_HEAD = Reason(
    "BehindHead",
    "behind_head",
    "No job passes the head of its queue (policy Block): it is evaluated when all jobs ahead of it are admitted",
)


def waiting_for_sync(kinds: list[str]) -> Reason:
    """The words for a wait that ends when the cluster is fully known. ``kinds``: the resources still missing."""
    more = f" and {counted(len(kinds) - 3, 'more resource')}" if len(kinds) > 3 else ""
    names = ", ".join(kind.replace("_", ".") for kind in kinds[:3])
    return Reason(
        "NotSynced",
        "unsynced",
        f"Nothing is admitted until the cluster is fully known; still listing {names}{more}",
    )


def resume_failed(problem: FieldProblem | None, until: str) -> Reason:
    """The words for a workload the API server refused to resume."""
    message = problems.line(problem) if problem is not None else ""
    return Reason(
        "ResumeFailed",
        f"resume_failed:{message}",
        f"Admitted, but the API server refused to resume it: {message or 'no reason given'}. Tried again after {until}",
    )


def beyond_grant(over: Vector, granted: Vector, queue: str, back_at: int) -> Reason:
    """More of a job runs than its grant, resource by resource.

    ``back_at``: the log time at which the excess is taken back, where the tree has such a time; else 0.
    """
    back = f" While quota {queue} is above its max, the excess is taken back at {rfc3339(back_at)}" if back_at else ""
    text = (
        f"{format_vector(over)} runs beyond its grant ({format_vector(granted)}): all of it is charged, and "
        f"it is the first of its priority to be evicted. Scale it down, or suspend it and raise its request.{back}"
    )
    return Reason("BeyondGrant", f"beyond_grant {format_vector(over)}{back_at}", text.removesuffix("."))


def suspended_outside(by: str) -> Reason:
    """Another client stopped a job that ran. ``by``: the field manager, where known."""
    client = f"field manager {by}" if by else "another client"
    keeps = "it keeps its quota until its pods are gone, then it is queued again"
    text = f"Suspended by {client} after its admission; {keeps}"
    if by:
        text += (
            f". Where {by} applies a manifest again: leave suspend out of the manifest, or have it ignore the field "
            "(Argo CD: ignoreDifferences)"
        )
    return Reason("SuspendedOutside", f"suspended_outside {by}".rstrip(), text)


RUNNING_TIMEOUT = Reason(
    "RunningTimeout",
    "running_timeout",
    "Suspended again: it was admitted and did not start in time. It is queued again after a pause",
)
STALE_GANG = Reason(
    "StaleGang",
    "stale_gang",
    "Suspended: it had fewer pods than its gang needs for too long (60 s, unless label "
    "kai.scheduler/staleness-grace-period says another time, -1 for never). It is queued again",
)


OVERUSE = Reason(
    "Overuse",
    "overuse",
    "Suspended: it ran beyond what was admitted for longer than muster.dev/overuse-timeout, and its quota is above its "
    "max. It is queued again",
)


def unschedulable(cause: str) -> Reason:
    """The words for a job whose gang kube-scheduler has not placed."""
    text = f"Suspended again: kube-scheduler has not placed its gang ({cause}). It is queued again after a pause"
    return Reason("RunningTimeout", "unschedulable", text)


PODLESS = ("no_pods", "pods_refused")
"""Codes of the problems of an admitted job without pods."""


def podless(cause: str, key: str = "no_pods") -> Reason:
    """The words for an admitted job without pods. ``key``: one of PODLESS."""
    text = f"Suspended again: {cause}. Its quota is free for others, and it is queued again in its place after a pause"
    return Reason("RunningTimeout", key, text)


ENDS: dict[str, str] = {
    "DeadlineExceeded": "it ran for longer than activeDeadlineSeconds allows, and its controller stopped it",
    "BackoffLimitExceeded": "its pods failed more often than backoffLimit allows",
    "PodFailurePolicy": "a rule of its podFailurePolicy ended it at the failure of a pod",
    "MaxFailedIndexesExceeded": "more of its indexes failed than maxFailedIndexes allows",
    "FailedIndexes": "some of its indexes failed",
    "AppFailed": "its entrypoint failed",
    "SubmissionFailed": "its entrypoint could not be submitted to the Ray cluster",
    "JobDeploymentStatusTransitionGracePeriodExceeded": "KubeRay got no word of its end from the Ray cluster",
    "JobStatusCheckTimeoutExceeded": "KubeRay could not ask the Ray cluster for its state",
    "ValidationFailed": "KubeRay finds its spec invalid",
}
"""{reason of a controller for the failure of a job: the words}"""


def end_of(detail: str) -> str:
    """The controller's word for an end, with the words for it."""
    return f"{detail}: {ENDS[detail]}" if detail in ENDS else detail


def on_lost_node(node: str) -> str:
    """The words for a job with a pod on a node that is not ready."""
    return (
        f"its node {node} is not ready, and nothing ends its pods there: its quota is free once the node is back, or "
        "the node or the pods are deleted"
    )


def suspended(reason: SuspensionReason, cause: str = "") -> str:
    """Why an admitted job is suspended again for a reason of its own."""
    match reason:
        case "running_timeout":
            return TIMED_OUT
        case "no_pods":
            return podless(cause).text
        case "unschedulable":
            return unschedulable(cause).text
        case "stale_gang":
            return STALE_GANG.text
        case "overuse":
            return OVERUSE.text
    assert_never(reason)


def admitted(queue: str, request: Vector, waited: int) -> Reason:
    """The words for an admission after a wait of so many ms."""
    amount = format_vector(request)
    text = f"Admitted from queue {queue} after {span(waited)}: its quota ({amount}) is reserved and it is being started"
    return Reason("Admitted", "admitted", text)


ADMITTED = Reason("Admitted", "admitted", "Admitted: its quota is reserved and it is being started")
RUNNING = Reason("Running", "running", "Running")

TIMED_OUT = "it was admitted and did not start in time: it is suspended and queued again after a pause"


def trouble(code: str, problems_found: Sequence[str], more: int) -> Reason:
    """The words for the problems of an object, for an Event on the object. ``more``: findings beyond ``found``."""
    listed = "; ".join(problems_found) + (f"; and {more} more" if more else "")
    if code == "tree_rejected":
        text = f"Refused as a whole, the last good tree stays in force: {listed}"
        return Reason("QuotaTreeRejected", code, text)
    if code == "pools_refused":
        return Reason("NodePoolRefused", code, f"These node pools are refused, the other pools count: {listed}")
    return Reason(refused_code(code), code, listed)


# --- claims for age ---------------------------------------------------------------------------------------------------


HOUR_MS = 3_600_000


def waiting_for_claim(denial: Shortfall, promised: int) -> Reason:
    """The words for a claimant: released quota is held for the job. ``promised``: log time (ms); 0: no promise."""
    resource, path = denial.resource, denial.path
    by = f", by {rfc3339(promised)} if the declared run times are true" if promised else ""
    return Reason(
        "WaitingForClaim",
        f"claim:{path}:{resource}:{promised}",
        f"Quota that is released in {terms(path).where} is held for it: request "
        f"{format_quantity(denial.asked, resource)} {resource}. It starts once enough is released{by}",
    )


def idled(resource: str, idles: Idles) -> str:
    """The time since which quota is held for a claimant, and the idle amount, as the end of a sentence."""
    idle, most = (format_quantity(amount // HOUR_MS, resource) for amount in (idles.idle, idles.most))
    return (
        f". It is held since {rfc3339(idles.since)}. What others asked for and was idle meanwhile comes to {idle} "
        f"{resource} for an hour: at {most} the claim ends"
    )


def not_beside(declared: int, promised: int) -> str:
    """Why a job behind a claim for age does not pass, as the end of a sentence.

    ``declared``: run time (ms) of the job; ``promised``: log time (ms) by which the claim is to be served; 0: none.
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
    """Why a claim without victims is opened, and the time of the start where run times are declared."""
    if event.kind != "age":
        return "its queue is owed it, and jobs that are being suspended for others free enough for it, too"
    if not event.promised:
        return "it has waited too long"
    by = f"by the declared run times it starts by {rfc3339(event.promised)}, and jobs that end before may pass"
    return f"it has waited too long; {by}"


def admitted_beside(job: str, declared: int, promised: int) -> str:
    """Why a job was admitted beside a claim; empty without a claim. ``declared``: ms; ``promised``: log time (ms)."""
    if not job:
        return ""
    return f"; it declares {span(declared)}, and job {job}, for which quota is held, is promised by {rfc3339(promised)}"
