"""What a process measures: names, meanings, labels. ``docs/reference/metrics.md`` is made of these tables."""

from __future__ import annotations

from msgspec import Struct

REQUEST_S = (0.005, 0.025, 0.1, 0.5, 2, 10, 60)
HOUR_S = 3_600
WAIT_S = (1, 10, 60, 300, 900, HOUR_S, 4 * HOUR_S, 12 * HOUR_S, 24 * HOUR_S, 72 * HOUR_S, 168 * HOUR_S, 336 * HOUR_S)
"""Up to 14 days."""


class Buckets(Struct, frozen=True):
    """A histogram: what it measures, its labels, its bounds."""

    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...]


COUNTERS: dict[str, str] = {
    "muster_commits": "Commits appended, by stage, shard and kind",
    "muster_events": "Events appended, by stage and type",
    "muster_void_commits": "Void commits that were passed over, by stage; `muster log voids` lists them",
    "muster_invariant_violations": "Broken invariants found at run time: any is a defect",
    "muster_commits_without_facts": "Commits of decisions beyond the first few since the cluster has changed, by stage",
    "muster_errors": "Errors that a stage logged, by stage and event of the log line",
    "muster_admitted_workloads": "Admissions, by queue",
    "muster_denied_workloads": "Denials by quota, by queue, reason and resource",
    "muster_set_aside_workloads": "Jobs set aside: tried three times, answered the same, by decision and reason",
    "muster_evicted_workloads": "Admitted jobs that were suspended again, by queue and reason",
    "muster_finished_workloads": "Jobs that are over, by queue, outcome and, where their pods failed, cause",
    "muster_held_up_workloads": "Times a pod of an admitted job did not run for a new cause, by queue and cause",
    "muster_charges_beyond_grant": "Times more came to run of a job than it was granted, by queue",
    "muster_used_seconds": "Device-seconds charged, by queue and resource: GPU-seconds for nvidia.com/gpu",
    "muster_lost_seconds": "Device-seconds that evicted and failed jobs had run for, by queue and resource",
    "muster_idle_seconds": "Device-seconds that were free while jobs waited for such devices, by resource",
    "muster_kube_requests": "Requests to the API server, by verb, resource and code",
    "muster_watch_restarts": "Ends of lists and watches, by resource and reason",
    "muster_ray_alarms": "Alarms raised about Ray clusters that scale themselves, by reason",
    "muster_ray_readings": "Readings of Ray heads, by source and outcome",
}
"""``_total`` is added on the page."""

GAUGES: dict[str, str] = {
    "muster_build_info": "1, by version",
    "muster_leader": "1 while this process leads, 0 while it does not, by stage and shard",
    "muster_stage_lag_seconds": "Age of the oldest commit that was read and not folded yet, by stage and shard",
    "muster_snapshot_sequence": "Sequence of the last snapshot kept, by stage and shard",
    "muster_log_fill_percent": "How full the log is; at 95 nothing new is admitted",
    "muster_nats_trouble": "1 while the keeper finds it of a server of NATS, by server (empty: of all) and cause",
    "muster_watch_ready": "1 while what is known of a resource is complete and kept up to date",
    "muster_watch_objects": "Objects held, by resource",
    "muster_watch_age_seconds": "Since when nothing was heard of the API server, by the shard of the watcher",
    "muster_queue_jobs": "Jobs, by queue and state: waiting, admitted (charged and not running), running",
    "muster_queue_oldest_wait_seconds": "How long the oldest waiting job has waited, by queue; 0: none waits",
    "muster_queue_pending": "What waiting jobs ask for, by queue and resource: cores, bytes or devices",
    "muster_queue_used": "What is charged, by queue (inner ones too) and resource",
    "muster_queue_guarantee": "The min of a queue, by queue and resource",
    "muster_queue_limit": "The max of a queue, by queue and resource",
    "muster_queue_held": "What is held for claims of waiting jobs, by queue and resource, where it is not 0",
    "muster_queue_borrowed": "What is used beyond the guarantee, by queue and resource, where it is not 0",
    "muster_queue_overuse": "What is used beyond the limit, by queue and resource, where it is not 0",
    "muster_queue_unserved_seconds": "For how long a job has waited for the guarantee of its queue; 0: none waits",
    "muster_queue_fair_share": "Fair share of a KAI queue, by queue and resource",
    "muster_queue_keeps": "Up to where nothing is taken back from a KAI queue, by queue and resource",
    "muster_queue_used_lately": "Recent use of a KAI queue as a part of the capacity, where that counts",
    "muster_queue_asked": "What runs and waits in a KAI queue, by queue and resource",
    "muster_held_up_jobs": "Admitted jobs whose pods do not run, by queue and cause; NoPods: nothing of them exists",
    "muster_held_up_seconds": "For how long the first of them has been so, by queue and cause",
    "muster_free": "What ready and schedulable nodes have free, by resource",
    "muster_idle": "The part of it for which jobs wait, by resource",
    "muster_admissions_paused": "1 while admissions are paused, by queue; empty: everywhere",
}

HISTOGRAMS: dict[str, Buckets] = {
    "muster_admission_wait_time_seconds": Buckets("From queued to admitted, by queue", ("queue",), WAIT_S),
    "muster_start_time_seconds": Buckets("From admitted to running, by queue", ("queue",), WAIT_S),
    "muster_append_duration_seconds": Buckets(
        "From making a commit to its acknowledgement, by stage", ("stage",), REQUEST_S
    ),
    "muster_kube_request_duration_seconds": Buckets("Requests to the API server, by verb", ("verb",), REQUEST_S),
    "muster_ray_reading_duration_seconds": Buckets("Readings of Ray heads, by source", ("source",), REQUEST_S),
}
