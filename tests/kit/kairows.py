"""The conformance table with KAI Scheduler's document about Ray: what it promises, and the tests that hold us to it."""

from __future__ import annotations

ROWS: dict[str, tuple[str, ...]] = {
    "queue label": (
        "tests/e2e/test_kai_document.py::test_the_sample_is_scheduled_as_a_gang_and_shown",
        "tests/unit/core/test_kai_workloads.py::test_the_label_of_the_workload_counts_before_that_of_its_pods",
        "tests/e2e/test_real_kai_rows.py::test_the_clusters_of_a_rayservice_are_both_charged_during_an_upgrade",
    ),
    "Queue CRD": (
        "tests/e2e/test_real_kai_rows.py::test_a_queue_takes_what_the_document_writes_and_says_what_is_wrong",
        "tests/unit/core/test_kai_queues.py::test_the_queues_are_one_tree_whose_root_is_what_the_nodes_have",
    ),
    "kubectl get queues": (
        "tests/e2e/test_real_kai_queues.py::test_the_queues_of_the_document_are_shown_as_in_the_document",
        "tests/integration/test_kai_story.py::test_kubectl_prints_the_same",
    ),
    "hierarchy and fairness": (
        "tests/e2e/test_real_kai_rows.py::test_what_nobody_is_guaranteed_is_divided_by_weight",
        "tests/properties/test_fairshare_props.py::test_the_vectors",
    ),
    "PodGroup gang": ("tests/e2e/test_real_kai_rows.py::test_a_gang_of_three_gpus_starts_whole_or_not_at_all",),
    "KubeRay wiring": (
        "tests/e2e/test_kai_document.py::test_the_sample_is_scheduled_as_a_gang_and_shown",
        "tests/unit/core/test_kai_workloads.py::test_a_rayjob_in_k8s_job_mode_is_refused_with_the_other_modes",
        "tests/unit/cli/test_cli_checks.py::test_other_owners_are_found_by_their_deployments",
    ),
    "priority classes": (
        "tests/e2e/test_real_kai_queues.py::test_a_cluster_is_led_by_its_label_and_shown_in_every_queue_above",
        "tests/unit/core/test_kai_queues.py::test_priorities_are_those_of_the_label_then_of_the_pods_then_of_train",
    ),
    "preemption": (
        "tests/e2e/test_real_kai_queues.py::test_a_higher_priority_of_the_same_queue_takes_the_place_of_a_lower_one",
        "tests/unit/core/test_kai_times.py::test_equal_priority_never_gives_way",
    ),
    "consolidation": (
        "tests/e2e/test_real_moves.py::test_what_is_in_the_way_is_moved_and_starts_elsewhere",
        "tests/e2e/test_real_moves.py::test_who_a_disruption_budget_keeps_is_not_moved",
        "tests/unit/tracesim/test_decide_moves.py::test_what_runs_is_moved_together_so_that_a_big_job_fits",
        "tests/unit/tracesim/test_decide_moves.py::test_nobody_is_moved_where_one_of_them_has_no_place",
        "tests/unit/core/gang/test_moving.py::test_a_budget_that_refuses_one_of_them_leaves_the_others_a_place",
    ),
    "GPU fraction": (
        "tests/e2e/test_kai_document.py::test_two_workers_are_on_one_node_and_share_one_gpu",
        "tests/e2e/test_real_gpu_shares.py::test_pods_that_share_a_gpu_are_one_group_on_one_device",
    ),
    "verification command": (
        "tests/integration/test_kai_story.py::test_the_page_shows_what_the_demo_prints",
        "tests/e2e/test_kai_document.py::test_two_workers_are_on_one_node_and_share_one_gpu",
    ),
    "bin packing and spreading": ("tests/e2e/test_real_kai_rows.py::test_workers_are_packed_or_spread",),
    "elastic between min and max": ("tests/e2e/test_real_kai_rows.py::test_a_group_starts_with_its_minimum_and_grows",),
    "cluster autoscaling": (
        "tests/e2e/test_real_kai_rows.py::test_what_waits_for_quota_has_no_pod_that_asks_for_a_node",
    ),
    "missing label": (
        "tests/e2e/test_kai_document.py::test_a_missing_label_and_an_unknown_queue_are_told_on_the_object",
    ),
    "global.gpuSharing": ("tests/e2e/test_real_kai_rows.py::test_shares_are_refused_where_sharing_is_off",),
}
"""{row: the tests that show it}"""

PROPERTIES: dict[str, tuple[str, ...]] = {
    "shares sum and do not depend on order": (
        "tests/properties/test_fairshare_props.py::test_what_holds_of_any",
        "tests/properties/test_fairshare_props.py::test_children_divide_the_share_of_their_parent",
    ),
    "guarantee honoured within grace": (
        "tests/properties/test_decide_props.py::test_every_queue_gets_what_it_is_guaranteed",
        "tests/unit/core/test_reclaim_grace.py::test_nobody_is_evicted_before_the_grace_is_over",
    ),
    "released minus needed < smallest victim": (
        "tests/properties/test_kai_reclaim_props.py::test_what_is_taken_is_needed_legal_and_never_taken_back",
        "tests/properties/test_kai_reclaim_props.py::test_workers_that_are_taken_are_needed_legal_and_never_taken_back",
    ),
    "evictions per workload bounded": (
        "tests/properties/test_decide_props.py::test_nothing_is_given_twice_and_gangs_are_whole_and_the_end_is_quiet",
    ),
    "inverse reclaim impossible": (
        "tests/properties/test_kai_reclaim_props.py::test_what_is_taken_is_needed_legal_and_never_taken_back",
        "tests/properties/test_kai_reclaim_props.py::test_what_leaves_for_room_on_nodes_takes_nothing_back",
        "tests/unit/core/gang/test_room_made.py::test_who_gave_its_place_takes_nothing_back",
    ),
    "replay identical": (
        "tests/properties/test_kai_histories_props.py::test_whatever_people_do_with_queues_the_ledger_is_right_and_replays",
    ),
}
"""{what holds of any KAI queues: the tests that look for a case where it does not}. Protection of what has just started
is left out of them: with it a claimant could even less be asked to leave.
"""
