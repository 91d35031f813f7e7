"""The problems of objects and writes in English: one template for each code, and no text elsewhere.

A template names the values of the problem: ``{value!r}`` in quotes, ``{most!q}`` as an amount of ``{resource}``,
``{resource!n}`` as a name before an amount, ``{resource!o}`` after one, ``{count:pod}`` as a number of pods,
``{because}`` the problem that is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, get_args

from muster.model import language
from muster.model.language import listed
from muster.model.problem import FieldProblem
from muster.model.problemcodes import ProblemCode
from muster.model.resources import format_quantity
from muster.model.text import counted

TEMPLATES: dict[str, str] = {
    # --- fields of objects
    "said": "{said}",
    "not_decoded": "{said}",
    "nested_too_deeply": "nested too deeply",
    "fact_too_large": "Muster needs {count} bytes of it, over {most}",
    "spec_missing": "is missing, so there is nothing to run; add it",
    "group_unnamed": "is empty: Ray's autoscaler and Muster tell worker groups apart by name; name the group",
    "not_a_version": "{value!r} is not a version of {group}",
    "not_an_integer": "{value!r} is not an integer",
    "not_int32": "{value!r} is not a 32-bit integer",
    "not_a_count": "{value} is not a count",
    "not_a_number": "{value!r} is not a number",
    "not_a_time": "{value!r} is not a time",
    "not_a_name": "{value!r} is not a name of small letters, digits, - and .",
    "not_a_namespace": "{value!r} is not the name of a namespace",
    "not_a_uid": "{value!r} is not a uid",
    "none_of": "{value!r} is none of {choices}",
    "gangs_not_placed": "{value} asks for a gang, and placement is off (MUSTER_PLACEMENT): pods get nodes one by one",
    "shares_not_given": "pod set {value} asks for a share of a GPU; with this placement (MUSTER_PLACEMENT) only pods "
    "with schedulerName: muster in their template get one",
    "retired": "the rule no longer exists; remove the annotation",
    "replaced": "presets no longer exist; write {key}: {value} instead",
    "no_age_limit": "jobs age as later work passes them, not by time; remove the annotation, or write 0: no job ages",
    "neither": "{value!r} is neither {choices[0]} nor {choices[1]}",
    "not_a_quantity": "{value!r} is not a quantity such as 500m, 4 or 14Gi",
    "negative": "{value!r} is negative",
    "uncountable": "{value!r} is more than this system can count",
    "uncountable_request": "asks for more {resource} than this system can count",
    "many_resources": "names {count} resources, more than {most}",
    "many_resources_asked": "the containers up to it name more than {most} resources",
    "not_a_resource": "{value!r} is not the name of a resource",
    "many_pods": "{count} pods are more than the {most} that one set may have",
    "not_gpus": "{count} of {value!r} is no amount of a resource",
    "not_cores": "{value} is not a number of cores",
    "not_a_share": "{value!r} is not a share such as 0.1",
    "not_spark_memory": "{value!r} is not an amount such as 512m or 2g",
    "not_a_policy": "{value!r} is not a policy; write one of {choices}",
    # --- jobs of all kinds
    "foreign_manager": "is {manager}, and only {own} suspends such a job; leave the field out",
    "not_a_kind": "{value!r} is no kind such as Widget",
    "not_a_group_version": "{value!r} is no group and version such as example.com/v1",
    "not_a_plural": "{value!r} is no resource such as widgets",
    "not_a_path": "{value!r} is no path such as spec.template",
    "not_a_switch": "{value!r} must be a field of the spec, with two values of one type",
    "paths_contradict": "two of the paths contradict each other: {said}",
    "kind_taken": "{value} is a kind that Muster knows by itself; leave this definition out",
    "claims_uncounted": "asks for devices by resource claims, which no quota counts; ask for them as resources of the "
    "container",
    "size_unknown": "is missing, and nothing else says what its pods ask for; add it",
    "idle_suspended": "is true, and the autoscaler stopped the cluster because nothing used it; set "
    "spec.idleSuspend to false and spec.suspend to true, and it is queued again",
    "uses_existing_cluster": "KubeRay cannot suspend a RayJob that uses an existing cluster; create it again without "
    "spec.suspend, or describe the cluster in spec.rayClusterSpec instead",
    "ray_cluster_missing": "is missing, so there is nothing to queue; add it",
    "keeps_its_cluster": "must be true, since KubeRay suspends only RayJobs whose cluster it may shut down, and never "
    "takes back a refusal; delete the RayJob, and create it again with true, or without the field where the policies "
    "hold",
    "has_deletion_rules": "excludes spec.shutdownAfterJobFinishes, without which KubeRay suspends no RayJob, and "
    "KubeRay never takes back a refusal; delete the RayJob, and create it again with spec.shutdownAfterJobFinishes: "
    "true and spec.ttlSecondsAfterFinished instead",
    "submitter_in_kai_queue": "KAI-Scheduler does not support RayJob with K8sJobMode, and KubeRay starts none in a KAI "
    "queue; set it to HTTPMode, SidecarMode or InteractiveMode",
    "suspends_its_cluster": "keeps the RayCluster suspended once its owner is resumed; leave the field out, "
    "Muster uses spec.suspend",
    "upgrade_of_an_owned_cluster": "KubeRay makes no pods for a RayCluster with this field that a RayJob or a "
    "RayService owns; leave the field out",
    "sizes_given_twice": "KubeRay makes no pods where rayStartParams of the group give sizes too; leave out one of "
    "both",
    "needs_autoscaler_v2": "KubeRay makes no pods where this field is set without the second version of Ray's "
    "autoscaler; set autoscalerOptions.version to v2, or leave the field out",
    "suspended_beside_autoscaler": "KubeRay makes no pods of a RayCluster that scales itself while a group of it is "
    "suspended; leave the field out, or set enableInTreeAutoscaling to false",
    # --- node pools
    "many_pools": "declares {count} pools, more than {most}",
    "not_a_pool": "{because}; it is JSON with the keys {keys}",
    "not_a_pool_name": "the name of a pool is up to 63 small letters, digits, - and .",
    "max_nodes_missing": "is missing; say how many nodes the pool may have, 0 to {most}",
    "max_nodes_out_of_range": "is {value}; say how many nodes the pool may have, 0 to {most}",
    "pool_labels_empty": "is empty; name the labels that tell its nodes from others",
    "pool_allocatable_empty": 'is empty; give the resources of one node, as {{"cpu": "16", "memory": "64Gi"}}',
    "pool_class_missing": "is missing; write the class of a ProvisioningRequest, such as "
    "best-effort-atomic-scale-up.autoscaling.x-k8s.io, or {other}",
    "not_a_pool_class": "{value!r} is neither the class of a ProvisioningRequest, such as "
    "best-effort-atomic-scale-up.autoscaling.x-k8s.io, nor {other}",
    "wait_out_of_range": "is {value}; take 1 to {most}",
    # --- rules by which quota trees are applied
    "annotation": "annotation {key}: {because}",
    "attribute": "attribute {key}: {because}",
    "not_a_span": "{value!r} is not a span of time like 90s, 10m or 1h30m",
    "span_too_long": "{value} is more than a year",
    "span_zero": "it must be longer than 0; leave it out to count no past usage",
    "not_pausable": "{value!r} cannot be paused; {choices[0]} and {choices[1]} can",
    "not_levels": "{value!r} is not 1 to {most} rising spans of time like 1h,8h",
    "not_a_weight": "{value!r} is not a number from 0 to 100 like 0.5 or 2",
    "not_a_strategy": "{value!r} is no strategy; write pack, spread, or for example gpu=pack,cpu=spread",
    "not_a_flavor_here": "{value!r} is no type of quota {queue}, which has {choices}",
    # --- quota trees
    "tree_elsewhere": "is {value}; only an ElasticQuotaTree in {namespace} counts: create it there, and delete this "
    "one",
    "tree_missing": "is missing, so there is no tree; add it",
    "one_tree": "tree {tree} is in force; delete it before using this one",
    "tree_too_deep": "the tree is deeper than {most} levels",
    "tree_too_large": "the tree has more than {most} nodes",
    "tree_bytes": "the tree takes {count} bytes in the log, over {most}; write shorter names or fewer nodes",
    "flavors_unreadable": 'is no list of flavors like [{{"name": "h100", "nodeLabels": {{"gpu": "h100"}}}}]: {because}',
    "not_a_flavor": "{value!r} is no flavor: up to 16 names of small letters, digits, - and ., each once and with a "
    "resource",
    "flavors_overlap": "{value!r} is in flavors with different resources: flavors with one resource in common must "
    "list the same resources",
    "flavor_unknown": "{which} {value!r}: annotation muster.dev/flavors of the tree has no such flavor",
    "profile_unknown": "profile {value!r} is unknown; write one of {choices} or leave it out",
    "unbound_queue_no_leaf": "annotation muster.dev/unbound-queue: {queue} is no leaf of the tree",
    "min_over_max": "min {resource} {least!q} is over max {most!q}; lower min or raise max",
    "children_over_parent": "the children's min {resource} sum up to {total!q}, over this node's min {own!q}; lower "
    "theirs or raise this one",
    "root_min_max": "the root's min and max must be equal, and are {least!q} and {most!q} for {resource}",
    "root_min_missing": "the root's min and max must be equal, and are absent and {most!q} for {resource}",
    "root_max_missing": "the root's min and max must be equal, and are {least!q} and absent for {resource}",
    "names_many_resources": "{which} names {count} resources, more than {most}",
    "names_as_quota": "{which} {value!r} is the name in a ResourceQuota; a quota tree limits the requests of pods: "
    "write {resource!r}",
    "names_no_resource": "{which} {value!r}: is not the name of a resource",
    "bad_amount": "{which} {resource}: {because}",
    "lend_limit_no_object": "attribute {key} is not a JSON object of quantities: {because}",
    "path_too_long": "its full path is longer than {most} characters; shorten the names",
    "not_a_node_name": "{value!r} is not a node name: 1 to 253 readable characters without a slash",
    "name_twice": "two children of one node are called {name}; rename one",
    "namespace_twice": "namespace {namespace} is already on {other}; name it once",
    "namespace_on_inner_node": "namespace {namespace} is on a node with children; move it to a leaf",
    # --- KAI queues
    "resources_missing": "resources must be specified; write quota, limit and overQuotaWeight for each",
    "not_a_queue_amount": "{which} {value}{resource!o} is no amount; write 0 or more, or -1 for unlimited",
    "not_a_queue_weight": "{which} {value}{resource!o} is no amount; write 0 for no surplus, or more",
    "parent_missing": "parentQueue {parent!r} does not exist; create it, or name one of {choices}",
    "parents_in_a_circle": "parentQueue leads in a circle: {circle}; leave it out on one of them",
    "below_disabled": "it is below {queue}, which is disabled: {because}",
    "queue_disabled": "queue {queue} is disabled: {because}",
    "queue_too_deep": "it is {count} levels deep, more than {most}; move it under a higher queue",
    "queue_path_too_long": "the names from the top down to it are longer than {most} characters; shorten them",
    "many_queues": "there are {count} queues, more than {most}; delete some",
    "queues_bytes": "the queues take {count} bytes in the log, over {most}; delete some, or shorten names",
    "usage_below_the_top": "its annotations about past usage count on a queue without a parent only",
    "usage_set_twice": "queue {queue} is older and sets {key} differently; its value is used",
    "quota_over_limit": "quota {resource!n}{quota!q} is over its limit {limit!q}: never reached",
    "over_subscribed": "the quotas of its children sum up to {resource!n}{total!q}, over its own {own!q}: they cannot "
    "all be guaranteed; lower them",
    # --- shares of GPUs: KAI Scheduler's, word for word, for users know and search for them
    "bad_gpu_fraction": "gpu-fraction annotation value must be a positive number smaller than 1.0",
    "bad_gpu_memory": "gpu-memory annotation value must be a positive integer greater than 0",
    "bad_gpu_count": "fraction count annotation value must be a positive integer greater than 0",
    "bad_container_memory": "{key} annotation value must be a valid Kubernetes memory quantity greater than 0",
    "fraction_and_whole_gpu": "cannot have both GPU fraction request and whole GPU resource request/limit",
    "gpu_memory_and_gpu": "cannot request both GPU and GPU memory",
    "gpu_count_alone": "cannot request multiple fractional devices without specifying fraction portion or gpu-memory",
    "mps_alone": "MPS is only supported with GPU fraction request",
    "several_containers_share": "currently, kai doesn't support multiple containers with fractional GPU requests",
    "gpu_limit_beside": "cannot combine nvidia.com/container. limit annotation with gpu-fraction or gpu-memory "
    "annotation",
    "gpu_memory_differs": "NvFractions memory request ({asked}Mi) does not match {key} annotation value ({memory} MiB)",
    "gpu_request_over_limit": "invalid fraction request for container {container}: request is greater than limit",
    "gpu_container_differs": "{key} annotation value {value} does not match container name {container}",
    "gpu_container_missing": "container {container} not found in pod spec, but a fractional annotation referencing it "
    "was found",
    "only_time_slicing": "annotation {key}: only {value} is served here",
    "gpu_sharing_off": "attempting to create a pod {pod} with gpu sharing request, while GPU sharing is disabled",
    "affinity_by_namespace_label": "pod affinity over {key} selects namespaces by label; name them instead",
    # --- gangs of pods
    "pod_group_missing": "PodGroup {gang} of scheduling.k8s.io does not exist; create it",
    "pod_group_too_small": "PodGroup {gang} says {value}; write 1 or more",
    "not_a_gang_name": "{value!r} is not a name of small letters, digits, - and ., at most 63 characters as a label",
    "not_a_gang_minimum": "{value!r} is not a count of 1 or more",
    "gang_minimum_missing": "nothing says how many pods gang {gang} takes: set {key}, or create a PodGroup of that "
    "name",
    "match_policy_unknown": "{value!r} is none of {choices}; {used} is used",
    "match_policy_ignored": "gangs declared by annotations know {used} only; {value} is ignored",
    "gang_starts_alone": "{because}; gang {gang} starts on its own",
    "gangs_without_itself": "does not name gang {gang} itself",
    "gangs_no_list": '{value!r} is not a JSON list such as ["namespace/gang-a", "namespace/gang-b"]',
    "many_gangs": "names {count} gangs, more than {most}",
    "not_a_gang": "{value!r} is not namespace/name",
    "timeout_no_time": "{value} is not a time; 600 s are used",
    "waiting_no_time": "{value!r} is not a time such as 30s or 1m30s; 600 s are used",
    "priorities_differ": "pods of gang {gang} must have one priority: {pod} has {value}, others have {common}; give "
    "all of them the same priorityClassName",
    "gang_of_group_missing": "gang {gang} of its group does not exist",
    "gang_of_group_refused": "gang {gang} of its group is refused: {because}",
    "gang_of_group_waits": "gang {gang} of its group cannot start: {because}",
    "gang_of_other_group": "gang {gang} names another group: {gangs}",
    "not_our_scheduler": "{pod} has schedulerName {scheduler}; set schedulerName: {ours}",
    "queue_paused": "queue {queue} is paused; resume its admissions",
    "queue_takes_no_pods": "queue {queue} takes no pods: create it, or name a queue without queues below it",
    "pods_gated": "{count:pod} of gang {gang}",
    "too_many_at_once": "{count:pod} would have to start at once, more than {most}",
    "too_few_pods": "gang {gang} needs {needs} and has {has}",
    "pods_lost": "{running} of its pods run, {lacks} more are needed",
    "no_pods": "none of its pods was created within {seconds} s; `kubectl describe` names the refusal of the pods",
    "pods_refused": "the cluster refuses its pods: {said!r}",
    "rest_refused": "{pods:pod} of it ran, and the cluster refused the rest for {seconds} s",
    "few_have_nodes": "for {seconds} s {bound} of its {pods} pods have a node, and {together} start together",
    "domain_short": "{level} {domain} has {has} of {wants}",
    "domain_none": "no {level} has any",
    "domain_not_for_all": "no {level} has room for all of it together",
    # --- writes that were not carried out
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
    # --- void commits
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


def codes_of(literal: Any) -> set[str]:
    """The values of a Literal, with the values of nested Literals."""
    return {part if isinstance(part, str) else code for part in get_args(literal) for code in _flat(part)}


def _flat(part: Any) -> set[str]:
    return {part} if isinstance(part, str) else codes_of(part)


if codes_of(ProblemCode) != TEMPLATES.keys():
    odd = sorted(codes_of(ProblemCode) ^ TEMPLATES.keys())
    raise AssertionError(f"told/wording/problems.py and model/problemcodes.py differ: {', '.join(odd)}")

Show = Callable[[int, str], str]


def left_out(error: FieldProblem) -> str:
    """A setting that cannot be read."""
    return language.say("{error}: the setting is left out", error=line(error))


def line(problem: FieldProblem, show: Show = format_quantity) -> str:
    """``spec.replicas: expected int, got str``. ``show``: (amount, resource) as a text."""
    text = say(problem, show)
    return language.say("{field}: {text}", field=problem.path, text=text) if problem.path else text


def say(problem: FieldProblem, show: Show = format_quantity) -> str:
    """The sentence without the field."""
    return _Sentence(problem, show).vformat(language.translated(TEMPLATES[problem.code]), (), problem.values)


def after(problem: FieldProblem | None) -> str:
    """``: sentence``, to end a sentence about a failure; empty where no more is known."""
    text = line(problem) if problem is not None else ""
    return language.say(": {text}", text=text) if text else ""


class _Sentence(Formatter):
    def __init__(self, problem: FieldProblem, show: Show) -> None:
        self._found = problem
        self._show = show

    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if key == "because":
            return line(self._found.because, self._show) if self._found.because is not None else ""
        return kwargs[str(key)]

    def convert_field(self, value: Any, conversion: Any) -> Any:
        match conversion:
            case "q":
                return self._show(value, str(self._found.values.get("resource", "")))
            case "n":
                return f"{value} " if value else ""
            case "o":
                return language.say(" of {value}", value=value) if value else ""
            case None if isinstance(value, tuple):
                return listed(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        return counted(value, format_spec) if format_spec else str(value)
