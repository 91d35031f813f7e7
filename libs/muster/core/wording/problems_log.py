"""Templates for writes that were not carried out, and for void commits; `problems` says how they are read."""

from __future__ import annotations

WRITES: dict[str, str] = {
    "object_gone": "it no longer exists",
    "name_taken": "another object has its name now",
    "being_deleted": "it is being deleted",
    "decision_superseded": "decision {decision} has been carried out on it",
    "intent_of_newer_log": "annotation {key} says {decision}, which is from a newer log than ours (generation "
    "{generation}); if no other Muster runs on this cluster, remove the annotation",
    "keeps_changing": "the object keeps changing under the patch",
    "spec_edited": "its spec was edited: generation {generation}",
    "spec_unreadable": "its spec was edited and cannot be read now: {because}",
    "not_served": "the cluster does not serve {resource} as {version}: {because}",
    "unreachable": "the API server cannot be reached: {said}",
    "not_bound": "it has not been bound to {node}",
    "bound_elsewhere": "it is bound to {node}",
    "budgets_unreadable": "PodDisruptionBudgets cannot be read: {because}",
    "pods_unreadable": "pods cannot be read: {because}",
    "budget_of_job": "PodDisruptionBudget {budget} allows {allowed} of its pods to go{because}, and {count} are of "
    "this job; raise it, or make room with other jobs",
    "budget_of_workers": "PodDisruptionBudget {budget} allows {allowed} of its pods to go{because}, and {count} would "
    "be taken from this cluster; raise it, or make room with other jobs",
    "pods_going": ", {count} of them are on their way",
    "pod_groups_not_served": "the cluster does not serve {resource} as {version}: start its API server with the "
    "feature gate GenericWorkload and --runtime-config={version}=true, or take MUSTER_PLACEMENT=off",
    "pod_group_leaving": "PodGroup {group} of an earlier attempt is being removed",
    "pod_group_unreadable": "PodGroup {group} cannot be read: {because}",
    "pod_group_not_ours": "PodGroup {group} of {api} is not ours: delete it",
    "pod_group_of_newer_log": "PodGroup {group} of {api} is from a newer log than ours; if no other Muster runs on "
    "this cluster, delete it",
    "pod_group_superseded": "decision {decision} has been carried out on its PodGroup",
    "scales_no_longer": "it no longer scales itself",
    "worker_groups_differ": "its worker groups are not those that were decided on",
    "worker_group_grown": "worker group {group} has grown since",
    "worker_gone": "the worker no longer exists",
    "no_reservations": "namespace {namespace} for GPU reservations does not exist: {because}",
    "gpu_not_reserved": "a GPU of {node} cannot be reserved: {because}",
    "gpu_keeper_gone": "the pod that reserves the GPU is gone; it is made again",
    "gpu_not_given": "node {node} gives no GPU for {pod}: {because}",
    "gpu_not_reported": "{pod} has not reported its GPU yet",
    "pod_failed": "its pod failed",
}

VOIDS: dict[str, str] = {
    "not_a_commit": "{said}",
    "no_leader_said": "no leader said {events}",
    "decided_in_the_future": "it says that it was decided on {position}, which is not before it",
    "other_genesis": "it is the genesis of another log",
    "other_generation": "generation {generation} is in force, and it is of {other}",
    "leader_said_more": "it says more than that a leader has started",
    "no_leader_yet": "it was decided before any leader of its seat had started",
    "other_epoch": "its epoch is {epoch}, and that of its seat is {current}",
    "clock_ahead": "its clock was {ms} ms ahead of the broker's",
    "other_prefix": "it was decided on another log: at {position} that had the hash {theirs}, this has {ours}",
    "no_such_seat": "no stage writes on {seat}",
    "other_writer": "it says that {writer} wrote it",
    "not_its_event": "{seat} may not say {events} as {kind}",
    "nothing_to_complete": "it leaves out what {seat} said of {like}, and nothing of that is known",
}
