"""The questions of operators, the alerts, and the panels: tables of queries over the metrics."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class OnCall(Struct, frozen=True):
    """A question on call; ``answer``: in the example of the tests."""

    text: str
    query: str
    answer: str


class Alert(Struct, frozen=True):
    """A rule. The alert fires once the query has had an answer for ``seconds``."""

    name: str
    query: str
    seconds: int
    severity: Literal["critical", "warning"]
    says: str
    """With labels of the answer as ``{{ $labels.queue }}``."""
    means: str
    steps: tuple[str, ...]


class Panel(Struct, frozen=True):
    """A graph of a dashboard."""

    title: str
    query: str
    legend: str
    unit: str = "short"


WAITING = 'muster_queue_jobs{state="waiting"}'
QUESTIONS = (
    OnCall(
        "How much waits in each queue?",
        "max by (queue, resource) (muster_queue_pending) > 0",
        "root/algorithm/video cpu 8",
    ),
    OnCall(
        "How long has the oldest job waited?",
        "max by (queue) (muster_queue_oldest_wait_seconds) > 0",
        "root/algorithm/video 359",
    ),
    OnCall(
        "How much of its guarantee does a queue use?",
        "max by (queue, resource) (muster_queue_used / muster_queue_guarantee) > 0",
        "root/algorithm/video cpu 0.67",
    ),
    OnCall(
        "What was evicted in the last hour, and why?",
        "sum by (queue, reason) (increase(muster_evicted_workloads_total[1h])) > 0",
        "b reclaimed 1",
    ),
    OnCall("How far behind is each stage, in seconds?", "max by (stage, shard) (muster_stage_lag_seconds)", "0"),
    OnCall("Has every stage a leader?", "max by (stage, shard) (muster_leader)", "presenter 1"),
    OnCall("How much room has the log, in percent?", "100 - max(muster_log_fill_percent)", "97"),
    OnCall("What is idle while jobs wait for it?", "max by (resource) (muster_idle) > 0", "nvidia.com/gpu 4"),
)
"""One query each."""

ALERTS = (
    Alert(
        "NoLeader",
        "max by (stage, shard) (muster_leader) == 0",
        60,
        "critical",
        "No process leads {{ $labels.stage }}/{{ $labels.shard }}.",
        "A stage has processes and none of them leads: what it decides or writes waits.",
        (
            "`muster doctor` names the stage and its deployment.",
            "`kubectl -n muster-system get pods`: is one restarting? `kubectl -n muster-system logs` says why.",
            "If all are up, NATS has no leader or no room: `kubectl -n muster-system logs statefulset/nats`.",
        ),
    ),
    Alert(
        "StageLag",
        "max by (stage, shard) (muster_stage_lag_seconds) > 30",
        60,
        "warning",
        "{{ $labels.stage }} is {{ $value }} s behind the log.",
        "A stage folds the log more slowly than it grows, or hangs.",
        (
            "`kubectl -n muster-system top pods`: raise the CPU of the one at its limit.",
            "If it uses none, its log says what it waits for; a restart folds again from its snapshot.",
        ),
    ),
    Alert(
        "WatchStale",
        "max by (shard) (muster_watch_age_seconds) > 180 or max by (resource) (muster_watch_ready) == 0",
        300,
        "critical",
        "What is known of the cluster is old: {{ $labels.shard }}{{ $labels.resource }}.",
        "A watch of the API server ended and does not come back. Nothing is admitted until it does.",
        (
            "`kubectl -n muster-system logs deploy/muster-watcher`; for a 403 `kubectl apply -k deploy/rbac`.",
            "`kubectl get --raw /readyz` shows whether the API server answers.",
        ),
    ),
    Alert(
        "NoAdmissionsWhileCapacityFree",
        "(max by (queue, resource) (muster_queue_pending) > 0"
        " and max by (queue, resource) (muster_queue_used + muster_queue_pending)"
        " <= max by (queue, resource) (muster_queue_limit)"
        " and on (resource) (max by (resource) (muster_idle) > 0))"
        " unless on (queue) (sum by (queue) (increase(muster_admitted_workloads_total[30m])) > 0)"
        " unless on (queue) (muster_admissions_paused > 0)",
        1800,
        "warning",
        "Nothing was admitted in {{ $labels.queue }} for 30 minutes though {{ $labels.resource }} is free.",
        "Jobs wait, their queue has room for all of them, nodes have free devices, and no job is admitted.",
        (
            "`muster why QUEUE` says what its first job waits for.",
            "`muster queue tree` shows a limit higher up; the dashboard of the gateway shows which GPU is free.",
            "`muster doctor` names a stage that does not answer.",
        ),
    ),
    Alert(
        "GuaranteeUnserved",
        "max by (queue) (muster_queue_unserved_seconds) > 900 unless on (queue) (muster_admissions_paused > 0)",
        300,
        "warning",
        "A job of {{ $labels.queue }} has waited {{ $value }} s for the guarantee of its queue.",
        "A queue uses less than its min, a job fits in the rest, and it waits all the same.",
        (
            "`muster why QUEUE` names the jobs it waits for, or says why reclaim does not act.",
            "`muster queue tree` says in which trees reclaim is off, and the command that enables it.",
        ),
    ),
    Alert(
        "AdmittedButNoPods",
        'max by (queue) (muster_held_up_seconds{cause="NoPods"}) > 120',
        60,
        "critical",
        "A job of {{ $labels.queue }} was admitted {{ $value }} s ago, and has no pod.",
        "Quota is charged and nothing runs: the operator of the kind is down, or its writes are refused.",
        (
            "`muster ls --state admitted` names the jobs, `muster why JOB` what was done.",
            "`kubectl get deployments -A`: does the operator of the kind run?",
            "`kubectl -n NAMESPACE describe` the job: a quota or policy may refuse its pods.",
        ),
    ),
    Alert(
        "PodsHeldUp",
        'max by (queue, cause) (muster_held_up_seconds{cause!="NoPods"}) > 900',
        60,
        "warning",
        "Pods of {{ $labels.queue }} have not run for {{ $value }} s: {{ $labels.cause }}.",
        "An admitted job holds quota while its pods are unschedulable, cannot pull an image, or crash.",
        ("`muster ls` shows the cause beside each job; `muster why JOB` says what to do about it.",),
    ),
    Alert(
        "EvictionStorm",
        "sum by (queue) (increase(muster_evicted_workloads_total[15m])) > 10",
        0,
        "warning",
        "{{ $value }} jobs of {{ $labels.queue }} were evicted within 15 minutes.",
        "Work is suspended again and again: guarantees that flap, or gangs that do not come to run.",
        (
            "`sum by (reason) (increase(muster_evicted_workloads_total[15m]))` says why.",
            "`muster pause evictions --queue QUEUE --reason TEXT` stops it while you look; a min-run keeps young jobs.",
        ),
    ),
    Alert(
        "Overuse",
        "max by (queue, resource) (muster_queue_overuse) > 0",
        600,
        "warning",
        "{{ $labels.queue }} uses {{ $value }} {{ $labels.resource }} more than its max.",
        "Work runs that was not admitted, or a max was lowered below what runs.",
        (
            "`muster queue tree` shows what runs beyond a grant.",
            "`muster ls --queue QUEUE --state running` names the jobs.",
        ),
    ),
    Alert(
        "LogNearFull",
        "max(muster_log_fill_percent) > 80",
        300,
        "critical",
        "The log is {{ $value }} % full; at 95 nothing new is admitted.",
        "The keeper rolls the log over by itself; here it has not.",
        (
            "`muster log roll` rolls it over now.",
            "`kubectl -n muster-system logs deploy/muster-publisher`: the keeper says what stops it.",
        ),
    ),
    Alert(
        "StoreHalfFull",
        "max by (stream) (muster_store_fill_percent) >= 50",
        300,
        "warning",
        "Stream {{ $labels.stream }} uses {{ $value }} % of its budget.",
        "A full bucket refuses what its service writes there, and nothing else: a service without newer snapshots "
        "starts more slowly. A healthy cell uses a few percent.",
        (
            "`muster doctor` names the stream and its service; a bucket of snapshots belongs to the stage in its name.",
            "Change the key of that service if the cause is unknown: [rotate the keys](rotate-keys.md).",
            "States that have outgrown the budget need a larger log: `MUSTER_LOG_MAX_BYTES`, then `muster log init`.",
        ),
    ),
    Alert(
        "NatsServer",
        'max by (server, cause) (muster_nats_trouble{cause!~"hole|differs|lost"}) > 0',
        60,
        "critical",
        "NATS server {{ $labels.server }}: {{ $labels.cause }}.",
        "A server of NATS is down, stores nothing, or is behind; an empty name is about all of them. With one of three "
        "Muster goes on, and the loss of the next one stops it.",
        (
            "`muster doctor` names the server and what to do.",
            "`down`: `kubectl -n muster-system describe pod` of that server.",
            "`jetstream_off`, `unwritable`: its disk was full; once there is room its liveness probe starts it again.",
            "`no_quorum`: start the servers that are down; nothing is stored until then.",
            "`absent`, `few`: a stream lacks a copy; `muster doctor` has the command for each.",
        ),
    ),
    Alert(
        "LogCopyDamaged",
        'max by (server, cause) (muster_nats_trouble{cause=~"hole|differs"}) > 0',
        300,
        "critical",
        "The copy of the log on {{ $labels.server }} is damaged ({{ $labels.cause }}), and is not rebuilt.",
        "A server has lost messages of the log, or has others than the rest. The keeper rebuilds such a copy once "
        "every server is up; here it has not.",
        (
            "`muster doctor` says which server is down: start that one first.",
            "Lines `log_copy_damaged` and `log_copy_not_rebuilt` of the keeper say what stops it.",
            "Look at the disk of that server: a byte of it has changed.",
        ),
    ),
    Alert(
        "LogCopiesLost",
        'max(muster_nats_trouble{cause="lost"}) > 0',
        0,
        "critical",
        "No copy of the log is whole.",
        "Every server lacks messages of the log: what they said is lost, unless the archive has it.",
        (
            "`muster log verify` names the first one that is missing; keep the archive of the keeper.",
            "`muster log recover` says what is lost; with `--yes` the log starts again from the state of the cluster.",
        ),
    ),
    Alert(
        "VoidCommits",
        "sum by (stage) (increase(muster_void_commits_total[15m])) > 5",
        0,
        "warning",
        "{{ $value }} commits of {{ $labels.stage }} were void.",
        "Two processes write as the same stage, or one writes what its rules forbid.",
        (
            "`muster log voids` lists them with the reason.",
            "`muster doctor` says when another Muster acts on this cluster.",
        ),
    ),
    Alert(
        "ReplayDivergence",
        'sum by (stage, event) (muster_errors_total{event=~"log_rolled_over|log_lost_commits|intent_beyond_log"}) > 0',
        0,
        "critical",
        "What was kept of {{ $labels.stage }} is not what the log says ({{ $labels.event }}).",
        "Folding the log again gave another state than the one that decided, or commits are lost.",
        (
            "`muster check` compares all of the log; keep `muster export --out LOG` and report it.",
            "`muster replay` names the first commit that differs.",
        ),
    ),
    Alert(
        "StageClosed",
        'sum by (stage) (muster_errors_total{event="log_stage_closed"}) > 0',
        0,
        "critical",
        "The keeper closed a stage that writes more than its part of the log.",
        "A defect, or a key in other hands: the stage stores nothing for ten minutes, and is tried again after that.",
        (
            "Line `log_stage_closed` of the keeper names the stage; `muster log voids` lists its void commits.",
            "`muster nats keys --keys keys.conf --rotate SERVICE --retire SERVICE` makes a key that is in other hands "
            "useless (docs/howto/rotate-keys.md).",
            "Where so much is right, raise `MUSTER_LOG_STAGE_PERCENT` or the size of the log.",
        ),
    ),
    Alert(
        "SetAside",
        "sum by (decision, reason) (muster_set_aside_workloads_total) > 0",
        0,
        "critical",
        "{{ $value }} jobs were set aside: {{ $labels.decision }} ({{ $labels.reason }}) three times in a row.",
        "They were tried and answered the same way, though nothing had changed: a defect, or a service with wrong "
        "settings.",
        (
            "`muster ls --state refused` names them, `muster why JOB` tells what was answered.",
            "`gone` with jobs that exist: the actuator writes to another cluster; compare its kubeconfig.",
            "`muster hold JOB` and then `muster release JOB` have one tried again; so has any edit of it.",
            "Keep `muster export --out LOG` and report it.",
        ),
    ),
    Alert(
        "CommitsWithoutFacts",
        "sum by (stage) (rate(muster_commits_without_facts_total[2m])) > 1",
        120,
        "critical",
        "{{ $labels.stage }} decides {{ $value }} times a second though the cluster does not change.",
        "Stages make work for each other without end, and fill the log.",
        (
            "`muster tail` shows what is decided, and about which job or gang.",
            "`kubectl delete` or `muster hold` what it is about; keep `muster export --out LOG` and report it.",
        ),
    ),
    Alert(
        "Defect",
        "sum by (stage) (muster_invariant_violations_total) > 0",
        0,
        "critical",
        "{{ $labels.stage }} broke an invariant.",
        "A stage found its own state wrong.",
        ("Its log has the invariant and the values; keep `muster export --out LOG` and report it.",),
    ),
)

_P95 = "histogram_quantile(0.95, sum by (queue, le) (rate({}_bucket[1h])))"
BOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "queues": (
        "queues",
        (
            Panel("Used", "max by (queue, resource) (muster_queue_used)", "{{queue}} {{resource}}"),
            Panel("Charged and unused", "max by (queue, resource) (muster_queue_unused)", "{{queue}} {{resource}}"),
            Panel("Pending", "max by (queue, resource) (muster_queue_pending)", "{{queue}} {{resource}}"),
            Panel(
                "Use of the guarantee",
                "max by (queue, resource) (muster_queue_used / muster_queue_guarantee)",
                "{{queue}} {{resource}}",
                "percentunit",
            ),
            Panel("Borrowed", "max by (queue, resource) (muster_queue_borrowed)", "{{queue}} {{resource}}"),
            Panel("Held for claims", "max by (queue, resource) (muster_queue_held)", "{{queue}} {{resource}}"),
            Panel("Oldest wait", "max by (queue) (muster_queue_oldest_wait_seconds)", "{{queue}}", "s"),
            Panel("Free and idle", "max by (resource) (muster_idle)", "{{resource}} idle while jobs wait"),
            Panel("Over the max", "max by (queue, resource) (muster_queue_overuse)", "{{queue}} {{resource}}"),
        ),
    ),
    "jobs": (
        "jobs",
        (
            Panel("Jobs", "max by (queue, state) (muster_queue_jobs)", "{{queue}} {{state}}"),
            Panel("Wait, 95 of 100", _P95.format("muster_admission_wait_time_seconds"), "{{queue}}", "s"),
            Panel("From admitted to running, 95 of 100", _P95.format("muster_start_time_seconds"), "{{queue}}", "s"),
            Panel("Admissions", "sum by (queue) (increase(muster_admitted_workloads_total[1h]))", "{{queue}}"),
            Panel(
                "Evictions",
                "sum by (queue, reason) (increase(muster_evicted_workloads_total[1h]))",
                "{{queue}} {{reason}}",
            ),
            Panel(
                "Ended",
                "sum by (outcome, cause) (increase(muster_finished_workloads_total[1h]))",
                "{{outcome}} {{cause}}",
            ),
            Panel("Held up", "max by (queue, cause) (muster_held_up_jobs)", "{{queue}} {{cause}}"),
            Panel(
                "Device-hours used",
                "sum by (queue, resource) (increase(muster_used_seconds_total[1h])) / 3600",
                "{{queue}} {{resource}}",
            ),
            Panel(
                "Device-hours lost",
                "sum by (queue, resource) (increase(muster_lost_seconds_total[1h])) / 3600",
                "{{queue}} {{resource}}",
            ),
            Panel(
                "Device-hours idle while jobs waited",
                "sum by (resource) (increase(muster_idle_seconds_total[1h])) / 3600",
                "{{resource}}",
            ),
        ),
    ),
    "services": (
        "services",
        (
            Panel("Leaders", "max by (stage, shard) (muster_leader)", "{{stage}}/{{shard}}"),
            Panel("Lag", "max by (stage, shard) (muster_stage_lag_seconds)", "{{stage}}/{{shard}}", "s"),
            Panel("Room in the log", "100 - max(muster_log_fill_percent)", "free", "percent"),
            Panel("Nothing heard of the API server for", "max by (shard) (muster_watch_age_seconds)", "{{shard}}", "s"),
            Panel("Commits", "sum by (stage) (rate(muster_commits_total[5m]))", "{{stage}}", "ops"),
            Panel("Void commits", "sum by (stage) (increase(muster_void_commits_total[1h]))", "{{stage}}"),
            Panel("Errors", "sum by (stage, event) (increase(muster_errors_total[1h]))", "{{stage}} {{event}}"),
            Panel(
                "API requests", "sum by (verb, code) (rate(muster_kube_requests_total[5m]))", "{{verb}} {{code}}", "ops"
            ),
        ),
    ),
}
"""Name -> title and panels."""
