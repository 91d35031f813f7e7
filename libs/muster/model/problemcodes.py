"""The codes of problems: closed vocabularies, one for each kind of object. `told.wording` has the sentences."""

from __future__ import annotations

from typing import Literal

ObjectCode = Literal[
    "said",
    "not_decoded",
    "nested_too_deeply",
    "fact_too_large",
    "spec_missing",
    "group_unnamed",
    "not_a_version",
    "not_an_integer",
    "not_int32",
    "not_a_count",
    "not_a_number",
    "not_a_time",
    "not_a_name",
    "not_a_namespace",
    "not_a_uid",
    "none_of",
    "retired",
    "neither",
    "not_a_quantity",
    "negative",
    "uncountable",
    "uncountable_request",
    "many_resources",
    "many_resources_asked",
    "not_a_resource",
    "many_pods",
    "not_gpus",
    "not_cores",
    "not_a_share",
    "not_spark_memory",
    "not_a_policy",
    "gangs_not_placed",
]
"""Fields of any object. ``said``, ``not_decoded``: in the words of the API server, or of a decoder."""

KindCode = Literal[
    "foreign_manager",
    "size_unknown",
    "kind_taken",
    "not_a_kind",
    "not_a_group_version",
    "not_a_plural",
    "not_a_path",
    "not_a_switch",
    "paths_contradict",
    "idle_suspended",
    "uses_existing_cluster",
    "ray_cluster_missing",
    "keeps_its_cluster",
    "has_deletion_rules",
    "submitter_in_kai_queue",
    "suspends_its_cluster",
]
"""Why a job of some kind cannot be queued."""

PoolCode = Literal[
    "many_pools",
    "not_a_pool",
    "not_a_pool_name",
    "max_nodes_missing",
    "max_nodes_out_of_range",
    "pool_labels_empty",
    "pool_allocatable_empty",
    "pool_class_missing",
    "not_a_pool_class",
    "wait_out_of_range",
]
"""Node pools."""

RuleCode = Literal[
    "annotation",
    "attribute",
    "not_a_span",
    "span_too_long",
    "span_zero",
    "not_pausable",
    "not_levels",
    "not_a_weight",
    "not_a_strategy",
]
"""Annotations that say how a quota tree is applied. ``annotation``, ``attribute``: which one; the rest is its cause."""

TreeCode = Literal[
    "tree_elsewhere",
    "tree_missing",
    "one_tree",
    "tree_too_deep",
    "tree_too_large",
    "tree_bytes",
    "profile_unknown",
    "unbound_queue_no_leaf",
    "min_over_max",
    "children_over_parent",
    "root_min_max",
    "root_min_missing",
    "root_max_missing",
    "names_many_resources",
    "names_no_resource",
    "names_as_quota",
    "bad_amount",
    "lend_limit_no_object",
    "path_too_long",
    "not_a_node_name",
    "name_twice",
    "namespace_twice",
    "namespace_on_inner_node",
]
"""ElasticQuotaTrees."""

QueueCode = Literal[
    "resources_missing",
    "not_a_queue_amount",
    "not_a_queue_weight",
    "parent_missing",
    "parents_in_a_circle",
    "below_disabled",
    "queue_disabled",
    "queue_too_deep",
    "queue_path_too_long",
    "many_queues",
    "queues_bytes",
    "usage_below_the_top",
    "usage_set_twice",
    "quota_over_limit",
    "over_subscribed",
]
"""KAI queues."""

GpuCode = Literal[
    "bad_gpu_fraction",
    "bad_gpu_memory",
    "bad_gpu_count",
    "bad_container_memory",
    "fraction_and_whole_gpu",
    "gpu_memory_and_gpu",
    "gpu_count_alone",
    "mps_alone",
    "several_containers_share",
    "gpu_limit_beside",
    "gpu_memory_differs",
    "gpu_request_over_limit",
    "gpu_container_differs",
    "gpu_container_missing",
    "only_time_slicing",
    "gpu_sharing_off",
    "affinity_by_namespace_label",
]
"""What pods ask of nodes, and no scheduler here judges."""

GangCode = Literal[
    "pod_group_missing",
    "pod_group_too_small",
    "not_a_gang_name",
    "not_a_gang_minimum",
    "gang_minimum_missing",
    "match_policy_unknown",
    "match_policy_ignored",
    "gang_starts_alone",
    "gangs_without_itself",
    "gangs_no_list",
    "many_gangs",
    "not_a_gang",
    "timeout_no_time",
    "waiting_no_time",
    "priorities_differ",
    "gang_of_group_missing",
    "gang_of_group_refused",
    "gang_of_group_waits",
    "gang_of_other_group",
    "not_our_scheduler",
    "queue_paused",
    "pods_gated",
    "too_many_at_once",
    "too_few_pods",
    "pods_lost",
    "few_have_nodes",
    "no_pods",
    "pods_refused",
    "domain_short",
    "domain_none",
    "domain_not_for_all",
]
"""Gangs of pods: what they and their PodGroups say, and how far they are."""

WriteCode = Literal[
    "object_gone",
    "name_taken",
    "being_deleted",
    "decision_superseded",
    "intent_of_newer_log",
    "keeps_changing",
    "spec_edited",
    "spec_unreadable",
    "not_served",
    "unreachable",
    "not_bound",
    "bound_elsewhere",
    "budgets_unreadable",
    "pods_unreadable",
    "budget_of_job",
    "budget_of_workers",
    "pods_going",
    "pod_groups_not_served",
    "pod_group_leaving",
    "pod_group_unreadable",
    "pod_group_not_ours",
    "pod_group_of_newer_log",
    "pod_group_superseded",
    "scales_no_longer",
    "worker_groups_differ",
    "worker_group_grown",
    "worker_gone",
    "no_reservations",
    "gpu_not_reserved",
    "gpu_keeper_gone",
    "gpu_not_given",
    "gpu_not_reported",
    "pod_failed",
]
"""Why a write to the API server was not carried out, beside what that says itself (``said``)."""

VoidCode = Literal[
    "not_a_commit",
    "no_leader_said",
    "decided_in_the_future",
    "other_genesis",
    "other_generation",
    "leader_said_more",
    "no_leader_yet",
    "other_epoch",
    "clock_ahead",
    "other_prefix",
    "no_such_seat",
    "other_writer",
    "not_its_event",
    "nothing_to_complete",
]
"""Why a commit of the log is void."""

ProblemCode = Literal[
    ObjectCode, KindCode, PoolCode, RuleCode, TreeCode, QueueCode, GpuCode, GangCode, WriteCode, VoidCode
]
