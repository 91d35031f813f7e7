"""Rules for several states of a RayJob: suspension, deadlines, grace periods, retries.

Called by the states in `rayjob`; each function answers whether the rule has decided about the RayJob.
"""

from __future__ import annotations

from muster.fakecluster.apiserver.names import moment, stamp
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.step import RayJobStep


def suspend(step: RayJobStep) -> bool:
    if step.spec.get("suspend"):
        step.set(jobDeploymentStatus=words.SUSPENDING)
    return bool(step.spec.get("suspend"))


def deadlines(step: RayJobStep) -> bool:
    """Fail what took too long, counted from the start time, which every resume sets again."""
    start = moment(step.status["startTime"])
    limits = [("activeDeadlineSeconds", words.DEADLINE_EXCEEDED)]
    if step.state in (words.INITIALIZING, words.WAITING):
        limits.insert(0, ("preRunningDeadlineSeconds", words.PRE_RUNNING_DEADLINE_EXCEEDED))
    for field, reason in limits:
        seconds = step.spec.get(field)
        if seconds is None:
            continue
        if step.now >= start + seconds * 1000:
            step.fail(reason, f"The RayJob has passed the {field}. StartTime: {step.status['startTime']}, {seconds} s")
            return True
        step.look_again(start + seconds * 1000)
    return False


def transition_overdue(step: RayJobStep) -> bool:
    """The Ray job is long over and its RayJob is not."""
    ended = (step.status.get("rayJobInfo") or {}).get("endTime")
    if step.status.get("jobStatus") not in words.JOB_OVER or ended is None:
        return False
    limit = moment(ended) + step.settings.transition_grace_ms
    if step.now < limit:
        step.look_again(limit)
        return False
    failed = step.status["jobStatus"] == words.JOB_FAILED
    message = "the RayJob did not end within the grace period after its Ray job"
    state = words.FAILED if failed else words.COMPLETE
    step.set(jobDeploymentStatus=state, reason=words.GRACE_EXCEEDED, message=message)
    return True


def submitter_overdue(step: RayJobStep, finished_at: int) -> bool:
    """The submitter is over for a while and the Ray job is not."""
    limit = finished_at + step.settings.submitter_grace_ms
    if step.now < limit:
        step.look_again(limit)
        return False
    step.set(jobStatus=words.JOB_FAILED)
    step.fail(words.GRACE_EXCEEDED, f"the submitter finished at {stamp(finished_at)} but the Ray job did not")
    return True


def count_and_retry(step: RayJobStep) -> None:
    """Count how tries ended; a failed one is tried again while the limit allows, each time with a new cluster."""
    before = (step.seen.job.get("status") or {}).get("jobDeploymentStatus", words.NEW)
    if step.state == before:
        return
    failed, succeeded = step.status.get("failed", 0), step.status.get("succeeded", 0)
    if step.state == words.COMPLETE and step.status.get("jobStatus") == words.JOB_SUCCEEDED:
        succeeded += 1
    if step.state == words.FAILED:
        failed += 1
        if failed <= step.spec.get("backoffLimit", 0) and step.status.get("reason") not in words.NOT_RETRIED:
            step.set(jobDeploymentStatus=words.RETRYING)
    step.set(failed=failed, succeeded=succeeded)
