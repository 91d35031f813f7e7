"""The words of each code of a job: the meaning and the way out, and the sentences of codes without values.

Also why a job leaves: evictions, moves, and suspensions for a reason of the job's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, assert_never

from muster.events.reasons import SuspensionReason
from muster.model.closed import IncompleteTableError, total
from muster.model.language import counted, listed, say
from muster.model.resources import format_vector
from muster.model.text import span
from muster.told.codes.codetable import CODES, REFUSED, JobCode
from muster.told.codes.values import Leaving, Plain
from muster.told.status.jobstatus import JobStatus
from muster.told.wording import explain, problems, reasons
from muster.told.wording.explain import Reason, terms

FILE = "libs/muster/told/wording/meanings.py"
NOTHING = "Nothing."


class Meaning(NamedTuple):
    """The row of a code on the page."""

    means: str
    do: str = NOTHING


MEANINGS: dict[JobCode, Meaning] = {
    **{REFUSED[reason]: Meaning(words.means, words.do) for reason, words in reasons.WORDS.items()},
    "Seen": Meaning("It was observed, and no decision about it exists yet."),
    "NotSynced": Meaning(
        "The cluster is not fully listed yet; nothing is admitted until it is.",
        "If it lasts: `muster doctor` names the kinds that cannot be listed.",
    ),
    "Unmanaged": Meaning(
        "It is not suspended, and no quota claims its namespace: Muster does not touch it.",
        "Add the namespace to a leaf if it is to be queued.",
    ),
    "NotSuspended": Meaning(
        "It was created without being suspended, so it is not queued; it is charged as soon as it runs.",
        "Create jobs suspended; the admission policies in deploy/policies do it.",
    ),
    "Queued": Meaning("It waits in its queue and is next to be evaluated."),
    "BeingTried": Meaning("It is being evaluated right now."),
    "LogNearlyFull": Meaning(
        "The log is nearly full: nothing is admitted until its next generation is in force.",
        "`muster log roll`, or find out why the keeper does not.",
    ),
    "Paused": Meaning("Admissions are paused, by the named author.", "`muster resume admissions`."),
    "BehindHead": Meaning(
        "The policy of its queue is `Block`: no job passes the head, and other jobs are ahead of it.",
        "`muster why JOB` names them: start with the first: hold it, delete it, or choose the policy `Round`.",
    ),
    "FitsNoNode": Meaning(
        "No node there is can run one of its pods, even an empty node: a resource that no node has, more than the "
        "largest node has, or labels that no node has.",
        "Correct the name, lower the request of a pod, or add such nodes, as the message says.",
    ),
    "InsufficientQuota": Meaning(
        "The quota that is named has no room for it now.",
        "Wait for jobs to end, or raise the max; `muster why JOB` names the jobs that hold the quota.",
    ),
    "InsufficientMinQuota": Meaning(
        "It is not preemptible, and running jobs that are not preemptible fill the min (KAI: the quota).",
        "Wait, raise the min, or make it preemptible; `muster why JOB` names those jobs.",
    ),
    "InsufficientRuntimeQuota": Meaning(
        "The part of the quota that weights give its queue now has no room for it.",
        "Wait for jobs to end, or for other queues to request less; `muster why JOB` names the jobs that hold it.",
    ),
    "ExceedsMaxQuota": Meaning(
        "It requests more than the max (KAI: the limit), and can never be admitted; or more than all ready nodes have.",
        "Lower the request, raise the max, or add nodes, as the message says.",
    ),
    "ExceedsMinQuota": Meaning(
        "It is not preemptible and requests more than the min (KAI: the quota): it can never be admitted.",
        "Raise the min, lower the request, or make it preemptible.",
    ),
    "QuotaHeld": Meaning("Part of the quota is held for the job that is named.", "Wait until that job has started."),
    "WaitingForClaim": Meaning("Quota that others release is held for it; it starts when enough is released."),
    "ResumeFailed": Meaning(
        "The API server refused to resume it; it is tried again at the time that is named.",
        "Read the message of the API server: often a webhook or a policy refuses.",
    ),
    "GangUnschedulable": Meaning(
        "Its gang has no place on the nodes: it holds no quota, and is tried again when they have room.",
        "Free or add nodes, or change the requirements of its pods.",
    ),
    "RunningTimeout": Meaning(
        "It was admitted and did not start in time: suspended, and queued again after a pause.",
        "Look at its pods' Events: an image, a volume, an operator.",
    ),
    "StaleGang": Meaning(
        "Its gang had fewer pods than it needs for too long, in a KAI queue: suspended, and queued again.",
        "See the Events of its pods; `kai.scheduler/staleness-grace-period` gives it more time.",
    ),
    "Overuse": Meaning(
        "It ran without an admission, or beyond its grant, while its quota was above its max: suspended, and queued.",
        "Let it wait for its admission; ask for more in its spec while it is suspended.",
    ),
    "Reclaimed": Meaning(
        "It is suspended so that another queue gets its guarantee (KAI: its fair share).",
        "Nothing; it is queued again.",
    ),
    "Preempted": Meaning(
        "It is suspended for a job of higher priority in its own queue, or for one that has had less GPU time; or it "
        "is moved to other nodes so that another has room.",
        "Nothing; it is queued again.",
    ),
    "Reserved": Meaning("Its quota is reserved; next it is admitted."),
    "AwaitingNodes": Meaning(
        "Its quota is reserved and the gang waits for nodes; the message counts why each refuses.",
        "Free or add nodes, or change the requirements of its pods.",
    ),
    "WouldBeAdmitted": Meaning("It would be resumed, if this Muster did not only observe.", "Run with --act."),
    "Admitted": Meaning("It was admitted and is being resumed."),
    "Starting": Meaning("It is resumed and does not run yet.", "If it has no pods: check whether its operator runs."),
    "Running": Meaning("It runs, charged at its queue."),
    "Adopted": Meaning(
        "It runs without an admission: it ran when first seen, or was started without one later.",
        "If that should not be: apply the admission policies in deploy/policies.",
    ),
    "SuspendedOutside": Meaning(
        "It was suspended by another client after its admission; it is charged until its pods are gone.",
        "Nothing; it is queued again.",
    ),
    "Finished": Meaning("It has ended and holds no quota."),
    "FinishedStillCharged": Meaning(
        "It has finished, and its pods that still exist are charged.",
        "Shorten ttlSecondsAfterFinished, or delete its pods.",
    ),
    "DeletedStillCharged": Meaning(
        "It was deleted, and pods of it still exist.", "Look at finalizers and at pods that do not end."
    ),
    "Gone": Meaning("It was deleted and holds no quota."),
}
"""The source of docs/reference/status.md."""

# --- codes of jobs that leave --------------------------------------------------------------------------------------


def evicted_for(why: Leaving) -> Reason:
    """The words for a job that was suspended so that another queue gets its guarantee or fair share."""
    owed, of = terms(why.queue).owed, say("its queue {queue}", queue=why.queue)
    if why.owing:
        of = say("quota {owing} above {of}", owing=why.owing, of=of)
    return Reason(
        "Reclaimed",
        f"reclaimed:{why.claimant}",
        say(
            "Suspended to release {resource} in {where}: job {claimant} was within the {owed} of {of}, and this "
            "job ran above the {owed} of its queue. It is queued again",
            resource=why.resource,
            where=terms(why.path).where,
            claimant=why.claimant,
            owed=owed,
            of=of,
        ),
    )


def preempted_for(claimant: str, queue: str, path: str, resource: str, priorities: tuple[int, int]) -> Reason:
    """The words for a job suspended for a higher priority in the same queue; ``priorities``: of the victim, of the
    claimant.
    """
    return Reason(
        "Preempted",
        f"preempted:{claimant}",
        say(
            "Preempted by a job of higher priority in the same queue: {claimant} had priority {higher}, this "
            "job {lower}, and {resource} was short in {where}. It is queued again",
            claimant=claimant,
            higher=priorities[1],
            lower=priorities[0],
            resource=resource,
            where=terms(path).where,
        ),
    )


def served_more(claimant: str, queue: str, path: str, resource: str) -> Reason:
    """The words for a job that was suspended after a checkpoint for a job with less GPU time."""
    return Reason(
        "Preempted",
        f"preempted:{claimant}",
        say(
            "Suspended right after a checkpoint for a job that had less GPU time: {claimant} needed {resource} of "
            "{where} in queue {queue} (muster.dev/least-attained). It is queued again, behind jobs with less GPU "
            "time",
            claimant=claimant,
            resource=resource,
            where=terms(path).where,
            queue=queue,
        ),
    )


def moved_for(why: Leaving) -> Reason:
    """The words for a job that was moved so that another has room on the nodes."""
    where = say("from {before} to {after}", before=_node_names(why.before), after=_node_names(why.after))
    return Reason(
        "Preempted",
        f"moved:{why.claimant}",
        say(
            "Moved {where} to make room for {claimant} of queue {queue}: it is suspended, keeps its quota, and "
            "starts again on the new nodes once its pods are gone",
            where=where,
            claimant=why.claimant,
            queue=why.queue,
        ),
    )


def _node_names(names: tuple[str, ...]) -> str:
    """``n1, n2 and 3 more nodes``."""
    more = say(" and {more}", more=counted(len(names) - 3, "more node")) if len(names) > 3 else ""
    return listed(names[:3]) + more


def cleared_for(why: Leaving) -> Reason:
    """The words for a job that was suspended so that another has room on the nodes."""
    of = say("quota {owing}", owing=why.owing) if why.owing else say("its queue")
    rule = say(
        "was within the {owed} of {of}, while this job ran above that of its queue", owed=terms(why.queue).owed, of=of
    )
    if why.code == "Preempted":
        rule = say(
            "had priority {claimant_priority}, this job {priority}",
            claimant_priority=why.claimant_priority,
            priority=why.priority,
        )
    text = say(
        "Suspended to make room on nodes for job {claimant} of queue {queue}, which {rule}",
        claimant=why.claimant,
        queue=why.queue,
        rule=rule,
    )
    return Reason(why.code, f"cleared:{why.claimant}", say("{text}. It is queued again", text=text))


def leaving(why: Leaving) -> Reason:
    """The words for a job that a decision suspends."""
    match why.code:
        case "RunningTimeout":
            if why.problem is None:
                return running_timeout()
            cause = problems.line(why.problem)
            return podless(cause, why.problem.code) if why.problem.code in PODLESS else unschedulable(cause)
        case "StaleGang":
            return stale_gang()
        case "Overuse":
            return overuse()
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
    return say(". It had run for {ran}: work since its last checkpoint is lost", ran=span(ran))


def suspended_outside(by: str) -> Reason:
    """Another client stopped a job that ran. ``by``: the field manager, where known."""
    client = say("field manager {by}", by=by) if by else say("another client")
    keeps = say("it keeps its quota until its pods are gone, then it is queued again")
    text = say("Suspended by {client} after its admission; {keeps}", client=client, keeps=keeps)
    if by:
        text += say(
            ". Where {by} applies a manifest again: leave suspend out of the manifest, or have it ignore the "
            "field (Argo CD: ignoreDifferences)",
            by=by,
        )
    return Reason("SuspendedOutside", f"suspended_outside {by}".rstrip(), text)


def running_timeout() -> Reason:
    """The words for a job that did not start in time."""
    text = say("Suspended again: it was admitted and did not start in time. It is queued again after a pause")
    return Reason("RunningTimeout", "running_timeout", text)


def stale_gang() -> Reason:
    """The words for a job with too few pods of its gang."""
    text = say(
        "Suspended: it had fewer pods than its gang needs for too long (60 s, unless label "
        "kai.scheduler/staleness-grace-period says another time, -1 for never). It is queued again"
    )
    return Reason("StaleGang", "stale_gang", text)


def overuse() -> Reason:
    """The words for a job that ran beyond its grant for too long."""
    text = say(
        "Suspended: it ran beyond what was admitted for longer than muster.dev/overuse-timeout, and its quota is above "
        "its max. It is queued again"
    )
    return Reason("Overuse", "overuse", text)


def unschedulable(cause: str) -> Reason:
    """The words for a job whose gang kube-scheduler has not placed."""
    text = say(
        "Suspended again: kube-scheduler has not placed its gang ({cause}). It is queued again after a pause",
        cause=cause,
    )
    return Reason("RunningTimeout", "unschedulable", text)


PODLESS = ("no_pods", "pods_refused", "rest_refused")
"""Codes of the problems of an admitted job that lacks pods."""


def podless(cause: str, key: str = "no_pods") -> Reason:
    """The words for an admitted job that lacks pods. ``key``: one of PODLESS."""
    text = say(
        "Suspended again: {cause}. Its quota is free for others, and it is queued again in its place after a pause",
        cause=cause,
    )
    return Reason("RunningTimeout", key, text)


def suspended(reason: SuspensionReason, cause: str = "") -> str:
    """Why an admitted job is suspended again for a reason of its own."""
    match reason:
        case "running_timeout":
            return say("it was admitted and did not start in time: it is suspended and queued again after a pause")
        case "no_pods":
            return podless(cause).text
        case "unschedulable":
            return unschedulable(cause).text
        case "stale_gang":
            return stale_gang().text
        case "overuse":
            return overuse().text
    assert_never(reason)


# --- codes without values -----------------------------------------------------------------------------------------


def charged(status: JobStatus) -> str:
    """``gpu 8 at root/a``: the charge of a job."""
    request = status.charge.request if status.charge is not None else {}
    return say("{request} at {queue}", request=format_vector(request), queue=status.queue)


class Words(NamedTuple):
    """The sentence of a code without values. ``text``: for people; None: the place in the queue and the reason."""

    reason: Callable[[], Reason]
    text: Callable[[JobStatus, int], str] | None


def _running(status: JobStatus, now: int) -> str:
    runs = say("It has run for {ran}", ran=span(max(0, now - status.since))) if status.since else say("It runs")
    lost = say(". Now: {lost}", lost=explain.on_lost_node(status.lost)) if status.lost else ""
    return say("{runs}, charged with {charged}{lost}", runs=runs, charged=charged(status), lost=lost)


def _admitted(status: JobStatus, now: int) -> str:
    ago = say("{ago} ago", ago=span(now - status.since)) if now > status.since else say("just now")
    return say("It was admitted {ago} ({charged}) and is being resumed", ago=ago, charged=charged(status))


def _said(code: str, text: str) -> Words:
    return Words(lambda: Reason(code, code, say(text)), lambda _status, _now: say(text))


PLAIN: dict[JobCode, Words] = {
    "Unmanaged": _said("Unmanaged", "It is not suspended and no quota claims its namespace: Muster does not touch it"),
    "NotSuspended": _said("NotSuspended", "It is not suspended, so it is not queued; it is charged as soon as it runs"),
    "BeingTried": Words(
        lambda: explain.waiting_untried(0),
        lambda status, _: say("It is being tried in queue {queue} right now", queue=status.queue),
    ),
    "LogNearlyFull": Words(explain.log_nearly_full, None),
    "BehindHead": Words(explain.behind_head, None),
    "WouldBeAdmitted": Words(
        explain.being_started,
        lambda status, _: say(
            "It would be admitted ({charged}): nothing is resumed, because this Muster only observes",
            charged=charged(status),
        ),
    ),
    "Admitted": Words(explain.being_started, _admitted),
    "Running": Words(explain.running, _running),
}

total(MEANINGS, JobCode, f"{FILE} (MEANINGS)")
for _code, _row in CODES.items():
    if (_row.values is Plain) != (_code in PLAIN):
        raise IncompleteTableError(f"{FILE}: PLAIN has a row for each code with the values Plain, see {_code}")
    if _row.tone == "act" and MEANINGS[_code].do.startswith("Nothing"):
        raise IncompleteTableError(f"{FILE}: {_code} asks for an act, and its way out is nothing")
