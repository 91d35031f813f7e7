"""Why a job leaves in words: evictions, moves, and suspensions for a reason of the job's own."""

from __future__ import annotations

from typing import assert_never

from muster.events.reasons import SuspensionReason
from muster.model.language import counted, listed, say
from muster.model.text import span
from muster.told.codes.values import Leaving
from muster.told.wording import problems
from muster.told.wording.explain import Reason, terms


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


PODLESS = ("no_pods", "pods_refused")
"""Codes of the problems of an admitted job without pods."""


def podless(cause: str, key: str = "no_pods") -> Reason:
    """The words for an admitted job without pods. ``key``: one of PODLESS."""
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
