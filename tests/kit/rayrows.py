"""The conformance table of Ray clusters that scale themselves: its rows, where each is shown, and the tests that do.

A test names its rows by the marker ``row``. Places: ``api`` is a real API server with the simulated operator
(tests/e2e), ``ray`` a real head, autoscaler and raylets (tests/ray), ``v1`` the same with the first version of the
autoscaler, ``sim`` the stages over a simulated cluster (tests/sim). The second table has what became known later; its
tests are named here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kit.compose import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "ray-rows.md"
FOLDERS = {"e2e": "api", "ray": "ray", "sim": "sim"}
FIRST_TOO = "test_autoscaler.py"
"""Runs with both versions of the autoscaler, but for the tests marked ``second_version``."""

ROWS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("a new cluster: the head alone, with its autoscaler, its account and role", ("api", "ray")),
    2: ("the document's two scripts, and their ConfigMap", ("api", "ray")),
    3: ("one detached actor: one worker", ("api", "ray", "v1")),
    4: ("a second one: two workers; both actors are listed", ("api", "ray", "v1")),
    5: ("an actor that fits no worker: nothing starts", ("ray",)),
    6: ("a placement group: whole or not at all", ("ray",)),
    7: ("the first actor ends: exactly its worker goes", ("api", "ray", "v1")),
    8: ("the second one ends: no worker, the head stays", ("api", "ray", "v1")),
    9: ("the driver ends, its detached actor lives: nothing is taken", ("ray",)),
    10: ("`ray status` is read, of both versions", ("ray",)),
    11: ("the cluster is deleted: pods, account and role go, nothing is charged", ("api",)),
    12: ("without an autoscaler: one container, `maxReplicas` untouched, a surplus goes", ("api",)),
    13: ("`minReplicas` 2: two workers from the start, never fewer", ("api", "ray")),
    14: ("`replicas` 9 of `maxReplicas` 5: five pods", ("api",)),
    15: ("Conservative: as many more as run; Default: all at once", ("ray", "v1")),
    16: ("each group has its own idle timeout", ("ray",)),
    17: ("an object on a worker, also one spilled to disk, keeps it", ("ray",)),
    18: ("`autoscalerOptions` show in the container, and are charged", ("api",)),
    19: ("room for fewer than are wanted: exactly these, and the rest when there is room", ("api", "ray", "v1")),
    20: ("one worker is owed to others: an idle one goes", ("api", "ray", "v1")),
    21: ("actor, Ray node, Kubernetes node: one chain of events, in order", ("api",)),
    22: ("denied patches, another autoscaler, a lost head, another bridge", ("api", "ray", "v1", "sim")),
    23: ("a RayJob is suspended while it is new, runs, or waits for its user", ("api",)),
    24: ("two hosts are one replica: both come, both are charged, both go", ("api",)),
}
"""{row: (what is seen, where it is shown)}"""

LATER: dict[int, tuple[str, tuple[str, ...]]] = {
    1: (
        "workers that are resized in place are refused beyond the grant, and charged as they are",
        (
            "tests/e2e/test_ray_second_door.py::test_neither_its_autoscaler_nor_a_tenant_makes_a_worker_larger_than_granted",
            "tests/sim/test_ray_attacks.py::test_whatever_happens_it_ends_well",
        ),
    ),
    2: (
        "a cluster that its autoscaler stops or deletes for idleness releases its quota",
        (
            "tests/sim/test_ray_idles.py::test_what_its_autoscaler_stops_is_free_and_stays_stopped",
            "tests/sim/test_ray_idles.py::test_what_its_autoscaler_deletes_is_gone_and_free",
            "tests/sim/test_ray_attacks.py::test_whatever_happens_it_ends_well",
        ),
    ),
    3: (
        "a deletion of ours leaves the rest of `scaleStrategy` as it is",
        ("tests/unit/core/test_taking_workers.py::test_those_that_are_named_already_stay_named",),
    ),
    4: (
        "a head that is replaced (`restartPolicy: Never`) or restarted in its pod: its workers stay, charged as before",
        ("tests/e2e/test_ray_autoscaling.py::test_a_head_that_ends_is_replaced_or_started_again_in_its_pod",),
    ),
    5: (
        "no method of a head that changes it is called",
        ("tests/unit/ray/test_ray_proto.py::test_no_method_that_changes_a_cluster_is_named",),
    ),
    6: (
        "KubeRay's own gangs, of clusters of a fixed size alone: charged once; others grow by grants",
        (
            "tests/e2e/test_native_gangs.py::"
            "test_a_fixed_ray_cluster_of_kuberays_own_gangs_is_charged_once_and_one_that_scales_grows_by_grants",
        ),
    ),
    7: (
        "a cluster of a thousand workers; an autoscaler whose ticks take minutes is waited for",
        (
            "tests/unit/core/autoscaling/test_large_clusters.py::test_a_thousand_workers",
            "tests/sim/test_ray_watchdog.py::test_an_autoscaler_whose_ticks_take_long_is_waited_for",
        ),
    ),
    8: (
        "the autoscaler's container is counted as its options say",
        ("tests/e2e/test_ray_autoscaling.py::test_the_sidecar_is_counted_as_its_options_say",),
    ),
    9: (
        "what the operator writes back is no edit: a RayJob keeps its place",
        ("tests/unit/fakecluster/test_rayjob_states.py::test_new_gets_the_finalizer_first",),
    ),
    10: (
        "gRPC is loaded by the bridge alone, and installed for it alone",
        (
            "tests/unit/ray/test_grpc_stays_beside.py::test_no_other_service_needs_it",
            "tests/unit/ray/test_grpc_stays_beside.py::test_it_is_an_extra",
        ),
    ),
    11: (
        "a piece of demand that fits nowhere costs itself alone",
        (
            "tests/unit/core/autoscaling/test_growth_pieces.py::test_a_placement_group_that_never_fits_stops_nothing_else",
            "tests/unit/core/autoscaling/test_growth_pieces.py::test_a_device_without_quota_stops_nothing_else",
            "tests/ray/test_in_the_loop.py::test_each_piece_by_itself_and_growth_takes_back_what_is_lent",
        ),
    ),
    12: (
        "the groups that grow are Ray's choice: size, labels, fallbacks, priority, and quota for one group only",
        (
            "tests/ray/test_judged.py::test_the_groups_that_grow_are_those_that_ray_would_have_grow",
            "tests/ray/test_judged.py::test_with_quota_ray_uses_what_is_granted_and_nothing_waits_that_one_more_worker_would_hold",
            "tests/unit/core/autoscaling/test_growth_pieces.py::test_labels_choose_the_group_and_fallbacks_come_in_their_order",
            "tests/unit/core/autoscaling/test_growth_pieces.py::test_the_next_group_is_taken_where_the_first_has_no_quota",
            "tests/unit/core/autoscaling/test_growth_pieces.py::test_of_groups_that_would_do_as_well_the_one_with_the_higher_priority",
        ),
    ),
    13: (
        "every strategy of a placement group",
        (
            "tests/ray/test_in_the_loop.py::test_every_strategy_of_a_placement_group",
            "tests/unit/core/autoscaling/test_growth_pieces.py::test_a_part_of_a_placement_group_may_go_to_another_group",
        ),
    ),
    14: (
        "what a worker offers: AMD, TPU, Neuron, quantities, limits without requests",
        (
            "tests/ray/test_judged.py::test_what_a_worker_offers_is_what_ray_reads",
            "tests/unit/core/workloads/test_rayoffers.py::test_a_worker_offers_what_ray_reads_from_its_group",
        ),
    ),
    15: (
        "growth within a guarantee takes back what is lent",
        (
            "tests/sim/test_ray_claims.py::test_what_is_lent_is_taken_back_for_growth_within_the_guarantee",
            "tests/properties/test_growth_claims_props.py::test_what_is_guaranteed_is_granted_and_no_more_is_taken",
            "tests/ray/test_in_the_loop.py::test_each_piece_by_itself_and_growth_takes_back_what_is_lent",
        ),
    ),
    16: (
        "a group whose nodes never come: its worker goes back, the next group is granted one within a tick",
        (
            "tests/ray/test_in_the_loop.py::test_a_group_whose_nodes_never_come",
            "tests/unit/core/autoscaling/test_nodeless.py::test_the_next_group_is_granted_as_soon_as_pods_without_nodes_are_gone",
        ),
    ),
    17: (
        "which workers go: idle ones first, no only copy of an object, no long task, and at once when empty",
        (
            "tests/ray/test_in_the_loop.py::test_an_idle_worker_goes_to_the_queue_that_is_owed_it",
            "tests/sim/test_ray_gives_back.py::test_idle_workers_of_any_cluster_go_before_busy_ones",
            "tests/unit/core/autoscaling/test_going.py::test_what_holds_the_only_copy_of_an_object_stays_while_another_one_can_go",
            "tests/unit/core/autoscaling/test_going.py::test_of_busy_workers_that_goes_which_began_last",
            "tests/unit/core/autoscaling/test_going.py::test_workers_that_are_empty_go_at_once",
        ),
    ),
    18: (
        "what a new worker has just taken is not asked for again",
        (
            "tests/unit/ray/test_reader.py::test_what_a_new_worker_has_just_taken_does_not_wait_any_more_though_the_head_says_so",
        ),
    ),
    19: (
        "a head is read where its RayCluster says, and in parts; a slow or endless one costs itself alone",
        (
            "tests/unit/ray/test_bridge_tokens.py::test_a_head_is_asked_where_it_is_served",
            "tests/unit/ray/test_gcs.py::test_a_list_of_actors_that_is_too_large_costs_only_that_list",
            "tests/unit/ray/test_gcs.py::test_a_slow_head_is_given_up",
            "tests/unit/ray/test_gcs.py::test_too_large_an_answer_is_refused",
        ),
    ),
    20: (
        "what real operators published is charged at every line as its pods are",
        (
            "tests/sim/test_ray_records.py::test_muster_is_right_at_every_line",
            "tests/unit/fakecluster/test_kuberay_recorded.py::test_the_simulated_operator_publishes_what_the_real_one_did",
        ),
    ),
    21: (
        "`muster why` names all that waits, down to a worker without a node; what no group can hold is an alarm",
        (
            "tests/unit/told/test_ray_waits.py::test_nothing_that_waits_is_left_out",
            "tests/unit/told/test_ray_waits.py::test_a_worker_without_a_node_is_found_by_its_name",
            "tests/unit/core/autoscaling/test_never_fits.py::test_what_never_fits_is_named_until_it_is_gone",
        ),
    ),
    22: (
        "a head alone leaves once for one claimant",
        ("tests/sim/test_ray_gives_back.py::test_a_head_alone_leaves_once_for_one_claimant",),
    ),
    23: (
        "a resize is refused without quota, and granted with it",
        (
            "tests/ray/test_in_the_loop.py::test_a_resize_is_refused_and_granted",
            "tests/sim/test_ray_resizes.py::test_growth_waits_for_room_as_replicas_do",
        ),
    ),
    24: (
        "Ray Serve scales by requests as far as it is granted; a RayService is charged for both clusters of an upgrade",
        (
            "tests/ray/test_in_the_loop.py::test_serve_scales_by_requests_as_far_as_it_is_granted",
            "tests/sim/test_rayservices.py::test_an_upgrade_is_charged_for_both_clusters_until_the_old_one_is_gone",
            "tests/unit/core/autoscaling/test_two_clusters.py::test_the_one_that_the_service_says_is_kept_within_the_grant_whichever_is_seen_last",
        ),
    ),
    25: (
        "elastic by quota: the minimum first, the rest as it fits, with an autoscaler and without",
        (
            "tests/sim/test_ray_elastic_quota.py::test_four_workers_of_which_two_are_needed_under_a_limit_of_three",
            "tests/sim/test_ray_elastic_quota.py::test_without_an_autoscaler_the_rest_comes_back_for_waiting_tasks",
        ),
    ),
    26: (
        "`replicas` raised with the grant: no tick is waited for",
        ("tests/sim/test_ray_raised.py::test_its_workers_come_without_a_tick_of_its_autoscaler",),
    ),
    27: (
        "a manifest that is applied again and again, with and without what Git leaves alone",
        ("tests/e2e/test_gitops.py::test_a_manifest_is_applied_again_and_again",),
    ),
    28: (
        "the gang switch of KubeRay's documents",
        ("tests/unit/core/workloads/test_steering.py::test_the_gang_switch_of_the_documents",),
    ),
    29: (
        "an upgrade waits for its quota while the old cluster serves, and starts once there is room",
        (
            "tests/sim/test_upgrades.py::test_one_that_scales_itself_is_upgraded_alike",
            "tests/sim/test_upgrades.py::test_one_that_started_before_muster_saw_it_is_held_and_the_service_stays",
            "tests/sim/test_upgrades.py::test_room_that_a_job_leaves_goes_to_the_waiting_upgrade",
            "tests/sim/test_upgrades.py::test_with_room_for_both_it_is_granted_as_growth_and_falls_back_to_one",
            "tests/sim/test_upgrades.py::test_without_room_it_waits_while_the_old_one_serves",
        ),
    ),
    30: (
        "workers beyond the grant of a fixed size go, and the cluster runs on; each change of a size is an Event",
        (
            "tests/sim/test_sizes_told.py::test_growth_that_is_denied_and_granted",
            "tests/sim/test_sizes_told.py::test_coming_overuse_has_an_event_and_the_released_workers_too",
            "tests/sim/test_surplus.py::test_the_workers_beyond_the_grant_go_and_the_cluster_runs_on",
        ),
    ),
    31: (
        "no RayJob is created dead: the plain sample is queued, a RayJob that cannot be suspended is refused",
        (
            "tests/e2e/test_rayjobs_at_birth.py::test_it_is_queued_or_refused_with_the_way_out",
            "tests/sim/test_plain_rayjobs.py::test_it_is_queued_and_runs",
        ),
    ),
}
"""{number: (what is seen, tests)}"""


@cache
def shown() -> dict[int, dict[str, list[str]]]:
    """{row: {place: tests}} by the markers in the tests."""
    found: dict[int, dict[str, list[str]]] = {row: {} for row in ROWS}
    for folder, place in FOLDERS.items():
        for path in sorted((REPOSITORY / "tests" / folder).glob("test_*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    for row in _rows(node):
                        name = f"{path.relative_to(REPOSITORY)}::{node.name}"
                        found[row].setdefault(place, []).append(name)
                        if path.name == FIRST_TOO and folder == "ray" and not _second_only(node):
                            found[row].setdefault("v1", []).append(name)
    return found


def _rows(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[int]:
    return [
        argument.value
        for each in node.decorator_list
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.mark.row"
        for argument in each.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, int)
    ]


def _second_only(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "second_version" for each in node.decorator_list)


def exists(test: str) -> bool:
    """Whether ``path::name`` is there."""
    path, _, name = test.partition("::")
    file = REPOSITORY / path
    if not file.exists():
        return False
    found = ast.walk(ast.parse(file.read_text()))
    return name in {each.name for each in found if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def table() -> str:
    """The rows as the page shows them."""
    lines = [
        "| Row | What is seen | Real API server | Real Ray | Its first autoscaler | Simulated |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    found = shown()
    for row, (what, _) in ROWS.items():
        cells = [_links(found[row].get(place, ())) for place in ("api", "ray", "v1", "sim")]
        cells[2] = "the same" if cells[2] else ""
        lines.append(f"| {row} | {what} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def later() -> str:
    """What became known later, as the page shows it."""
    lines = ["| Number | What is seen | Tests |", "| --- | --- | --- |"]
    lines += [f"| {number} | {what} | {_links(tests)} |" for number, (what, tests) in LATER.items()]
    return "\n".join(lines) + "\n"


def _links(tests: Iterable[str]) -> str:
    return ", ".join(sorted({_link(test) for test in tests}))


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../../{Path(path).as_posix()})"
