"""Why a job is denied, dequeued, released, deferred, adopted: closed sets, worded in `told.wording`."""

from __future__ import annotations

from typing import Literal, assert_never

DenialReason = Literal["insufficient_quota", "exceeds_limit", "stale"]
"""Why a proposal was denied:

insufficient_quota  used + asked is over the limit now: parked until that much is free there
exceeds_limit       asked alone is over a limit on the path: inadmissible until tree or job changes
stale               the proposal is stale: no quota was asked for
"""

DequeueReason = Literal["gone", "finished", "started_outside", "refused", "unbound", "held"]
"""Why a waiting workload left its queue without being admitted."""

ReleaseReason = Literal[
    "finished",
    "gone",
    "suspended_outside",
    "superseded",
    "held",
    "paused",
    "resume_failed",
    "evicted",
    "preempted",
    "timed_out",
    "stale",
    "moved",
    "no_nodes",
    "overuse",
]
"""Why a charge ended.

finished           the workload has finished and its pods are gone
gone               the workload was deleted and its pods are gone
suspended_outside  another client suspended it after admission, and its pods are gone
superseded         its spec changed before it was resumed: queued again under the new need
held               it was put on hold before it was admitted
paused             the admissions of its queue were paused before it was admitted: queued again
resume_failed      the API server refused to resume it; the effect says why
evicted            suspended to release quota that another queue is owed: queued again
preempted          suspended for a job of higher priority in its own queue, or of less service: queued again
timed_out          admitted, and not running within the time limit: queued again after a pause
stale              had too few pods of its gang for too long, and was suspended: queued again
moved              suspended so that another has room on the nodes: its quota is reserved for it again at once
no_nodes           its gang has no place on the nodes; the deferral says why
overuse            ran without an admission, or beyond its grant, while its quota was above its max: queued again
"""

SuspensionReason = Literal["running_timeout", "no_pods", "stale_gang", "unschedulable", "overuse"]
"""Why an admitted workload is ordered to be suspended, for no other job:

running_timeout  the workload did not run within the time limit of its queue
no_pods          the workload has had no pods, or pods that the cluster refuses, for too long
stale_gang       the workload had fewer pods than its gang needs for too long
unschedulable    kube-scheduler has no places for the workload's gang
overuse          the workload ran beyond its admission, and its quota is above the max
"""

AfterRelease = Literal["over", "queued", "edited", "evicted", "moved", "unplaced", "not_started", "late"]
"""What becomes of a workload whose charge ended, where its object is still there:

over         nothing: it has finished, or is gone
queued       it is queued again as soon as its object and its queue allow
edited       it is queued again under its new need, once that is observed
evicted      it made room for another job, which counts as an eviction, and is queued again
moved        its quota is reserved for it again in the same commit
unplaced     it is queued again when nodes have room for it
not_started  it is queued again after a pause, longer each time
late         it is queued again after the pause of its queue
"""


def after_release(reason: ReleaseReason) -> AfterRelease:
    """What becomes of a workload whose charge ended for this reason."""
    match reason:
        case "finished" | "gone":
            return "over"
        case "suspended_outside" | "held" | "paused" | "stale" | "overuse":
            return "queued"
        case "superseded":
            return "edited"
        case "evicted" | "preempted":
            return "evicted"
        case "moved":
            return "moved"
        case "no_nodes":
            return "unplaced"
        case "resume_failed":
            return "not_started"
        case "timed_out":
            return "late"
    assert_never(reason)


OfOthers = Literal["nothing_evictable", "no_place", "search_ended", "too_young", "evictions_paused", "grace"]
DeferralReason = Literal[OfOthers, "nodes_stay", "lower_stays", "lower_too_young", "lower_paused"]
"""Why no job is evicted: of those above the min of their queue, or of those with lower priority in its queue."""

Withheld = Literal["reclaim_disabled"]
"""Why a proposed preemption is shown and not carried out."""

AdoptionReason = Literal["already_running", "bypassed", "reserved", "not_stopped"]
"""Why a job without an admission is charged: it ran when first seen; another client started it; it is a pod of no job
that fits, and is placed next; or it is suspended, and its controller has not stopped its pods yet.
"""

GiveBackReason = Literal["not_taken", "node_gone"]
"""Why held places were released: no pod came for them in time, or their node no longer exists."""

OrderKind = Literal["guarantee", "priority", "service", "move"]
"""By which rule others leave: a guarantee that is not met, priority in its own queue, less service than they have had,
or places that they have elsewhere.
"""
ClaimKind = Literal["guarantee", "priority", "service", "move", "age"]
"""What a proposal or a claim rests on: one of these rules, or how long it has waited."""
