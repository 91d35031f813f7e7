"""Why a job is denied, dequeued, released, deferred, adopted: closed sets, worded in `core.wording`."""

from __future__ import annotations

from typing import Literal

DenialReason = Literal["insufficient_quota", "exceeds_limit", "stale"]
"""Why a proposal was denied:

insufficient_quota  used + asked is over the limit now: parked until that much is free there
exceeds_limit       asked alone is over a limit on the path: inadmissible until tree or job changes
stale               the proposal is for something that is no longer so: nothing was asked of the quota
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

finished           the workload is over and nothing of it is left
gone               the workload object is gone and nothing of it is left
suspended_outside  somebody suspended it after admission, and nothing of it is left
superseded         its spec changed before it was resumed: queued again under the new need
held               somebody held it back before it was admitted
paused             the admissions of its queue were paused before it was admitted: queued again in its old place
resume_failed      the API server refused to resume it; the effect says why
evicted            suspended to give quota back to somebody it is owed to: queued again in its old place
preempted          suspended for a job of higher priority in its own queue, or of less service: queued again
timed_out          admitted, and not running within the time limit: queued again after a pause
stale              had too few pods of its gang for too long, and was suspended: queued again in its old place
moved              suspended so that another has room on the nodes: its quota is reserved for it again at once
no_nodes           its gang has no place on the nodes; the deferral says why
overuse            ran without an admission, or beyond its grant, while its quota was above its max: queued again
"""

OfOthers = Literal["nothing_evictable", "no_place", "search_ended", "too_young", "evictions_paused", "grace"]
DeferralReason = Literal[OfOthers, "nodes_stay", "lower_stays", "lower_too_young", "lower_paused"]
"""Why nothing is taken back: of what others run above their min, or of what runs with lower priority in its queue."""

AdoptionReason = Literal["already_running", "bypassed", "reserved"]
"""Why something is charged that came through no queue: it ran when first seen; it was started around the queue; or it
is a pod of no job that fits, and is placed next.
"""

GiveBackReason = Literal["not_taken", "node_gone"]
"""Why held places were given back: no pod came for them in time, or their node no longer exists."""
