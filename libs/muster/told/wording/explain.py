"""Values of reasons to sentences, in the terms of the quota API.

The terms of a quota API: an ElasticQuotaTree has quotas with min and max, KAI has queues with quota and limit.

From reasons to sentences: the only place that puts the values of the log into words.

A sentence names the object in the terms of the object's API, the numbers, the condition, and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from muster.core.objects.meta import RUN_TIME, rfc3339
from muster.events.claims import ClaimOpened
from muster.events.reasons import ClaimKind
from muster.model.demand import Shortfall
from muster.model.language import listed, say, say_many, upper
from muster.model.problem import FieldProblem
from muster.model.quota import KAI_ROOT
from muster.model.resources import Vector, format_quantity, format_vector
from muster.model.text import counted, span
from muster.told.codes.values import Idles, OtherFlavor
from muster.told.status.jobstatus import refusal_code, refused_code
from muster.told.wording import problems

# --- terms ------------------------------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """``where``: a quota or queue in the API's terms; ``least`` and ``most``: the terms for guarantee and limit."""

    where: str
    least: str
    most: str
    owed: str
    """The amount up to which a queue may reclaim quota from other queues,"""
    right: str
    """and the name of that right."""


def terms(path: str) -> Terms:
    """The terms of the API that a path belongs to."""
    if path.partition("/")[0] != KAI_ROOT:
        return Terms(say("quota {path}", path=path), "min", "max", owed="min", right=say("guarantee"))
    kai = Terms(
        say("queue {queue}", queue=path.rpartition("/")[2]),
        "quota",
        "limit",
        owed=say("fair share"),
        right=say("fair share"),
    )
    return kai._replace(where=say("the cluster"), most=say("capacity")) if path == KAI_ROOT else kai


def amounts(short: Shortfall, limit: str, by: str = "") -> str:
    """``request 8, max 64, used 61, held 8 for video/big``. ``limit``: the term; ``by``: jobs that use the quota."""
    asked, most, used = (format_quantity(amount, short.resource) for amount in (short.asked, short.limit, short.used))
    return say(
        "request {asked}, {limit} {most}, used {used}{by}{beside}",
        asked=asked,
        limit=limit,
        most=most,
        used=used,
        by=say(" by {by}", by=by) if by else "",
        beside=beside(short),
    )


def beside(short: Shortfall) -> str:
    """Quota that is neither used nor free; empty without such quota."""
    held, kept = (format_quantity(amount, short.resource) for amount in (short.held, short.kept))
    names = listed(filter(None, (short.claimant, *short.beside[:-1])))
    last = say(" and {beside}", beside=short.beside[-1]) if short.beside else ""
    held_text = (
        say(", held {held} for {names}{last}", held=held, names=names or say("others"), last=last) if short.held else ""
    )
    return (
        say("{held_text}, kept {kept} for the guarantees of others", held_text=held_text, kept=kept)
        if short.kept
        else held_text
    )


KEEPS_AWAY = {
    "nodes": "the nodes have no room for its pods",
    "later": "it starts later: until {key} it waits for its first type alone",
    "label": "its pods select nodes with label {key}",
    "affinity": "the node affinity of its pods asks for another {key}",
    "taint": "its pods do not tolerate taint {key}",
}


def other_flavors(others: Iterable[OtherFlavor]) -> str:
    """Why a job does not start on other types of nodes; empty without any."""
    told = []
    for other in others:
        names = say(" and ").join(other.names)
        if other.refusal is not None:
            short, name = other.refusal, other.refusal.resource
            free = max(0, short.limit - short.used - short.held - short.kept)
            room = say(
                "{free} of {limit} {name}",
                free=format_quantity(free, name),
                limit=format_quantity(short.limit, name),
                name=name,
            )
            told.append(
                say(
                    "on {name}, {room} of {where} is free, and it needs {asked}",
                    name=names,
                    room=room,
                    where=terms(short.path).where,
                    asked=format_quantity(short.asked, name),
                )
            )
        elif other.kind:
            key = other.key or rfc3339(other.until)
            told.append(say("on {name}, {why}", name=names, why=say(KEEPS_AWAY[other.kind], key=key)))
    words = say("; ").join(told)
    return say(". ") + upper(words) if words else ""


# --- explain ----------------------------------------------------------------------------------------------------------


class Reason(Struct, frozen=True):
    """Why an object has its state.

    ``key`` is equal for two moments that a user reads as the same state, regardless of the usage at the moment.
    """

    code: str
    """CamelCase, as in Kubernetes Events and conditions."""
    key: str
    text: str


def _firm(term: Terms, node: str, *, never: bool) -> str:
    """The denial of a job that is not preemptible. ``never``: the request alone is over the limit."""
    if term.least == "quota":
        if never:
            return say("Exceeds {node} for non-preemptible jobs", node=node)
        return say("Insufficient {node} for non-preemptible jobs", node=node)
    if never:
        return say("Exceeds {least} {node}", least=term.least, node=node)
    return say("Insufficient {least} {node}", least=term.least, node=node)


def waiting_for_quota(refusal: Shortfall) -> Reason:
    """The words for a denial, in the form ``Insufficient quota(RESOURCE) in quota PATH: request R, max M, used U``."""
    path, resource, term = refusal.path, refusal.resource, terms(refusal.path)
    limit, node = (
        format_quantity(refusal.limit, resource),
        say("quota({resource}) in {where}", resource=resource, where=term.where),
    )
    code = refusal_code(refusal)
    match code:
        case "ExceedsMinQuota" | "InsufficientMinQuota":
            never = code == "ExceedsMinQuota"
            key = f"min:{path}:{resource}:{refusal.limit}:{never}"
            if never:
                way = say(
                    "It can never be admitted like this: raise the {least}, lower the request or make it preemptible",
                    least=term.least,
                )
            else:
                way = say("Wait for one of those to complete")
            used = amounts(refusal, term.least, say("non-preemptible jobs"))
            text = say("{head}: {amounts}. {way}", head=_firm(term, node, never=never), amounts=used, way=way)
        case "InsufficientRuntimeQuota":
            key = f"runtime:{path}:{resource}:{refusal.asked}"
            text = say(
                "Insufficient runtime {node}: {amounts}. The quota is divided by weight among queues with "
                "requests: wait for its jobs to complete, or for other queues to request less",
                node=node,
                amounts=amounts(refusal, say("runtime")),
            )
        case "ExceedsMaxQuota":
            key = f"exceeds:{path}:{resource}:{limit}"
            asked = format_quantity(refusal.asked, resource)
            way = (
                say("It starts once the nodes that are ready have as much: add nodes, or lower the request")
                if path == KAI_ROOT  # No user set it: it changes by itself.
                else say("It can never be admitted like this: lower the request or raise the {most}", most=term.most)
            )
            text = say(
                "Exceeds {node}: request {asked}, {most} {limit}. {way}",
                node=node,
                asked=asked,
                most=term.most,
                limit=limit,
                way=way,
            )
        case "QuotaHeld":
            key = f"held:{path}:{resource}:{limit}:{refusal.claimant}"
            text = say(
                "Insufficient {node}: {amounts}. It is tried again once {claimant} has started or its claim has ended",
                node=node,
                amounts=amounts(refusal, term.most),
                claimant=refusal.claimant or say("the job that it is held for"),
            )
        case _:
            key = f"insufficient:{path}:{resource}:{limit}" + (f":{refusal.claimant}" if refusal.claimant else "")
            text = say(
                "Insufficient {node}: {amounts}. Wait for running jobs to complete",
                node=node,
                amounts=amounts(refusal, term.most),
            )
    return Reason(code, key, text)


def paused(queue: str, by: str, why: str) -> Reason:
    """The words for a paused queue."""
    author = say(" by {by}", by=by) if by else ""
    return Reason(
        "Paused",
        f"paused:{queue}:{by}:{why}",
        say(
            "Admissions are paused{author}{why}; `muster resume admissions` resumes them",
            author=author,
            why=say(": {why}", why=why) if why else "",
        ),
    )


LEVERS = {"admissions": "admissions", "evictions": "evictions"}


def resting(where: str, levers: tuple[str, ...], by: str, why: str) -> str:
    """The words for paused admissions and evictions; ``where``: a quota path, empty for the whole tree."""
    author, option = say(" by {by}", by=by) if by else "", f" --queue {where}" if where else ""
    again = say(" and ").join(f"`muster resume {lever}{option}`" for lever in levers)
    return say_many(
        len(levers),
        "{levers}{of} are paused{author}{reason}; {again} resumes them",
        "{levers}{of} are paused{author}{reason}; {again} resume them",
        levers=upper(say(" and ").join(say(LEVERS[lever]) for lever in levers)),
        of=say(" of queue {where}", where=where) if where else "",
        author=author,
        reason=say(": {why}", why=why) if why else "",
        again=again,
    )


def taker(job: str, amount: str, queue: str, *, ahead: bool) -> str:
    """A job that took quota. ``queue``: of the taker, if another queue; ``ahead``: whether the taker was ahead in the
    queue.
    """
    how = (
        say("of queue {queue}", queue=queue)
        if queue
        else say("ahead of it")
        if ahead
        else say("behind it, and small enough")
    )
    return say("{job} ({amount}, {how})", job=job, amount=amount, how=how)


def room_made(attempt: str) -> str:
    """The last attempt to make room for a job, or its outcome, as a sentence that follows other sentences."""
    return say(". ") + upper(attempt)


def place(position: int, length: int, ahead: Sequence[str]) -> str:
    """The position of a job in the queue, from 1, and the first of the jobs ahead."""
    if position <= 1:
        return say("position 1 of {length}, no job is ahead", length=length)
    number = position - 1
    more = say(" and {hidden} more", hidden=number - len(ahead)) if number > len(ahead) else ""
    return say(
        "position {position} of {length}, {ahead} ahead: {names}{more}",
        position=position,
        length=length,
        ahead=number,
        names=listed(ahead),
        more=more,
    )


def in_place(text: str, place: int, length: int, queue: str) -> str:
    """A reason, and the place of the job in its queue."""
    return say(
        "{text}; position {place} of {length} in queue {queue}", text=text, place=place, length=length, queue=queue
    )


def nearly_in_place(first: int, last: int, queue: str) -> str:
    """About the place of a job in its queue, as the end of a sentence. ``last``: 0 for all places from ``first`` on."""
    place = (
        str(first)
        if first == last
        else say("{first} to {last}", first=first, last=last)
        if last
        else say("{first} or later", first=first)
    )
    return say("; position {place} in queue {queue}", place=place, queue=queue)


def taken_meanwhile(resource: str, shown: list[str], count: int) -> str:
    """The jobs that took the quota of a waiting job meanwhile."""
    more = say(", and {hidden} before them", hidden=count - len(shown)) if count > len(shown) else ""
    return say(
        ". While it waited, {resource} there went to {shown}{more}",
        resource=resource,
        shown=listed(shown),
        more=more,
    )


def waiting_untried(ahead: int) -> Reason:
    """The words for a job that was not evaluated yet."""
    position = (
        say("next in its queue") if ahead <= 0 else say("behind {ahead} in its queue", ahead=counted(ahead, "job"))
    )
    return Reason("Queued", "untried", say("Queued, {position}; it is evaluated soon", position=position))


def log_nearly_full() -> Reason:
    """The words for a cell without room in its log."""
    text = say(
        "The log is nearly full: nothing is admitted until its next generation is in force; `muster log roll` begins it"
    )
    return Reason("LogNearlyFull", "log_nearly_full", text)


def behind_head() -> Reason:
    """The words for a job behind the head of a queue with policy Block."""
    text = say(
        "No job passes the head of its queue (policy Block): it is evaluated when all jobs ahead of it are admitted"
    )
    return Reason("BehindHead", "behind_head", text)


def waiting_for_sync(kinds: list[str]) -> Reason:
    """The words for a wait that ends when the cluster is fully known. ``kinds``: the resources still missing."""
    more = say(" and {more}", more=counted(len(kinds) - 3, "more resource")) if len(kinds) > 3 else ""
    names = listed(kind.replace("_", ".") for kind in kinds[:3])
    return Reason(
        "NotSynced",
        "unsynced",
        say(
            "Nothing is admitted until the cluster is fully known; still listing {names}{more}", names=names, more=more
        ),
    )


def resume_failed(problem: FieldProblem | None, until: str) -> Reason:
    """The words for a workload the API server refused to resume."""
    message = problems.line(problem) if problem is not None else ""
    return Reason(
        "ResumeFailed",
        f"resume_failed:{message}",
        say(
            "Admitted, but the API server refused to resume it: {message}. Tried again after {until}",
            message=message or say("no reason given"),
            until=until,
        ),
    )


def beyond_grant(over: Vector, granted: Vector, queue: str, back_at: int) -> Reason:
    """More of a job runs than its grant, resource by resource.

    ``back_at``: the log time at which the excess is taken back, where the tree has such a time; else 0.
    """
    back = (
        say(
            " While quota {queue} is above its max, the excess is taken back at {back_at}",
            queue=queue,
            back_at=rfc3339(back_at),
        )
        if back_at
        else ""
    )
    text = say(
        "{over} runs beyond its grant ({granted}): all of it is charged, and it is the first of its priority to "
        "be evicted. Scale it down, or suspend it and raise its request.{back}",
        over=format_vector(over),
        granted=format_vector(granted),
        back=back,
    )
    return Reason("BeyondGrant", f"beyond_grant {format_vector(over)}{back_at}", text.removesuffix("."))


OUTCOMES = {"succeeded": "succeeded", "failed": "failed", "invalid": "invalid"}


def outcome(name: str, otherwise: str) -> str:
    """The outcome of a job in a word. ``otherwise``: the word without an outcome."""
    return say(OUTCOMES[name]) if name in OUTCOMES else otherwise


ENDS: dict[str, str] = {
    "DeadlineExceeded": "it ran for longer than activeDeadlineSeconds allows, and its controller stopped it",
    "BackoffLimitExceeded": "its pods failed more often than backoffLimit allows",
    "PodFailurePolicy": "a rule of its podFailurePolicy ended it at the failure of a pod",
    "MaxFailedIndexesExceeded": "more of its indexes failed than maxFailedIndexes allows",
    "FailedIndexes": "some of its indexes failed",
    "FailedJobs": "a Job of the JobSet failed, and its failurePolicy restarts none",
    "ReachedMaxRestarts": "its Jobs failed more often than maxRestarts of its failurePolicy allows",
    "FailJobSetFailurePolicyAction": "a rule of its failurePolicy ended it at the failure of a Job",
    "MPIJobEvicted": "its launcher was evicted",
    "SUBMISSION_FAILED": "its driver could not be submitted",
    "PreRunningDeadlineExceeded": "it did not run within preRunningDeadlineSeconds, and its controller stopped it",
    "AppFailed": "its entrypoint failed",
    "SubmissionFailed": "its entrypoint could not be submitted to the Ray cluster",
    "JobDeploymentStatusTransitionGracePeriodExceeded": "KubeRay got no word of its end from the Ray cluster",
    "JobStatusCheckTimeoutExceeded": "KubeRay could not ask the Ray cluster for its state",
    "ValidationFailed": "KubeRay finds its spec invalid",
}
"""{reason of a controller for the failure of a job: the words}"""


def end_of(detail: str) -> str:
    """The controller's word for an end, with the words for it."""
    return say("{detail}: {ends}", detail=detail, ends=say(ENDS[detail])) if detail in ENDS else detail


def on_lost_node(node: str) -> str:
    """The words for a job with a pod on a node that is not ready."""
    return say(
        "its node {node} is not ready, and nothing ends its pods there: its quota is free once the node is back, "
        "or the node or the pods are deleted",
        node=node,
    )


def admitted(queue: str, request: Vector, waited: int) -> Reason:
    """The words for an admission after a wait of so many ms."""
    amount = format_vector(request)
    text = say(
        "Admitted from queue {queue} after {waited}: its quota ({amount}) is reserved and it is being started",
        queue=queue,
        waited=span(waited),
        amount=amount,
    )
    return Reason("Admitted", "admitted", text)


def being_started() -> Reason:
    """The words for a job that is admitted and does not run yet."""
    return Reason("Admitted", "admitted", say("Admitted: its quota is reserved and it is being started"))


def running() -> Reason:
    """The words for a job that runs."""
    return Reason("Running", "running", say("Running"))


def trouble(code: str, problems_found: Sequence[str], more: int) -> Reason:
    """The words for the problems of an object, for an Event on the object. ``more``: findings beyond ``found``."""
    listed = say("; ").join(problems_found) + (say("; and {more} more", more=more) if more else "")
    if code == "tree_rejected":
        text = say("Refused as a whole, the last good tree stays in force: {listed}", listed=listed)
        return Reason("QuotaTreeRejected", code, text)
    if code == "pools_refused":
        return Reason(
            "NodePoolRefused", code, say("These node pools are refused, the other pools count: {listed}", listed=listed)
        )
    return Reason(refused_code(code), code, listed)


# --- claims for age ---------------------------------------------------------------------------------------------------


HOUR_MS = 3_600_000


def waiting_for_claim(denial: Shortfall, promised: int) -> Reason:
    """The words for a claimant: released quota is held for the job. ``promised``: log time (ms); 0: no promise."""
    resource, path = denial.resource, denial.path
    by = say(", by {promised} if the declared run times are true", promised=rfc3339(promised)) if promised else ""
    return Reason(
        "WaitingForClaim",
        f"claim:{path}:{resource}:{promised}",
        say(
            "Quota that is released in {where} is held for it: request {asked} {resource}. It starts once enough "
            "is released{by}",
            where=terms(path).where,
            asked=format_quantity(denial.asked, resource),
            resource=resource,
            by=by,
        ),
    )


def idled(resource: str, idles: Idles) -> str:
    """The time since which quota is held for a claimant, and the idle amount, as the end of a sentence."""
    idle, most = (format_quantity(amount // HOUR_MS, resource) for amount in (idles.idle, idles.most))
    return say(
        ". It is held since {since}. What others asked for and was idle meanwhile comes to {idle} {resource} for "
        "an hour: at {most} the claim ends",
        since=rfc3339(idles.since),
        idle=idle,
        resource=resource,
        most=most,
    )


def not_beside(declared: int, promised: int) -> str:
    """Why a job behind a claim for age does not pass, as the end of a sentence.

    ``declared``: run time (ms) of the job; ``promised``: log time (ms) by which the claim is to be served; 0: none.
    """
    if promised and declared:
        more = say(
            "It declares {declared}, and that job is promised to start by {promised}",
            declared=span(declared),
            promised=rfc3339(promised),
        )
    elif promised:
        more = say(
            "That job is promised to start by {promised}: jobs that end before ({label}) may pass",
            promised=rfc3339(promised),
            label=RUN_TIME,
        )
    elif declared:
        more = say(
            "It declares {declared}, but the declared run times promise that job no start: no job may pass",
            declared=span(declared),
        )
    else:
        return ""
    return say(". {more}", more=more)


def held_by(kind: ClaimKind) -> str:
    """Why quota is held for a job by a claim without victims."""
    if kind == "priority":
        return say("it is free, and was held for the age of a job of lower priority")
    if kind != "age":
        return say("its queue is owed it, and jobs that are being suspended for others free enough for it, too")
    return say("too much later work has passed it")


def opened(event: ClaimOpened) -> str:
    """Why a claim without victims is opened, and the time of the start where run times are declared."""
    if event.kind != "age" or not event.promised:
        return held_by(event.kind)
    by = say(
        "by the declared run times it starts by {promised}, and jobs that end before may pass",
        promised=rfc3339(event.promised),
    )
    return say("too much later work has passed it; {by}", by=by)


def admitted_beside(job: str, declared: int, promised: int) -> str:
    """Why a job was admitted beside a claim; empty without a claim. ``declared``: ms; ``promised``: log time (ms)."""
    if not job:
        return ""
    return say(
        "; it declares {declared}, and job {job}, for which quota is held, is promised by {promised}",
        declared=span(declared),
        job=job,
        promised=rfc3339(promised),
    )
