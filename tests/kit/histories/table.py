"""The recorded histories: a recipe for each. ``make histories ARGS=NAME`` plays it and writes its file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kit import claimscenes, gangscenes, obstaclescenes, rayscenes, scenes
from kit.forests import Forests
from kit.gangscenes import HELD
from kit.histories.recipes import (
    TESTS,
    Recipe,
    consolidating,
    demo,
    lines,
    philly,
    pod_gangs,
    ray_life,
    real,
    scenario,
    scene,
    slug,
    test,
    testbed,
    trace,
    turmoil,
    whole,
)
from kit.standings import SCENES
from kit.traces import muri
from kit.traces import philly as all_of_philly
from kit.turmoil import Turmoil
from muster.tracesim.faults import Fault, FaultSchedule

BROKEN = FaultSchedule(
    (
        Fault("node_loss", 3_600_000, 7_200_000, ("node-0000",)),
        Fault("api_outage", 10_000_000, 10_300_000),
        Fault("node_loss", 20_000_000, 22_000_000, ("node-0001", "node-0002")),
    )
)

TRACES = {
    "philly-default": Recipe(trace(philly(400, 2))),
    "philly-fair": Recipe(trace(philly(400, 2), order="share")),
    "philly-least-attained": Recipe(trace(philly(200, 2), least_attained="4h,32h")),
    "philly-reclaim-grace": Recipe(trace(philly(200, 2), reclaim_grace="15m")),
    "philly-placed": Recipe(trace(philly(200, 2), placement="pack")),
    "philly-faults": Recipe(trace(philly(200, 3), faults=BROKEN)),
    "testbed-gangs": Recipe(trace(testbed(200))),
    "testbed-gangs-placed": Recipe(trace(testbed(80), placement="pack")),
}

PLAYED = {
    # quota trees: reclaim, preemption, pauses, edits
    "tree-reclaim": test("sim/test_reclaim::test_each_team_gets_its_guarantee_back"),
    "tree-reclaim-interns-first": test("sim/test_reclaim::test_interns_give_first_and_no_more_than_is_needed"),
    "tree-evicted-again": test("sim/test_reclaim::test_who_has_been_evicted_is_left_alone_longer_each_time"),
    "tree-big-head": test("sim/test_reclaim::test_a_big_head_does_not_starve_behind_small_ones"),
    "tree-running-timeout": test("sim/test_reclaim::test_a_job_that_never_runs_is_suspended_again"),
    "tree-held-and-paused": test("sim/test_reclaim::test_held_and_paused"),
    "tree-evictions-paused": test("sim/test_reclaim_loops::test_a_pause_holds_until_it_is_lifted", paused="evictions"),
    "tree-reclaim-switched-on": test(
        "sim/test_reclaim_loops::test_what_ran_before_us_is_charged_and_not_evicted_until_reclaim_is_enabled"
    ),
    "tree-preempt": test("sim/test_preempt::test_others_give_the_rest_and_get_it_back_when_it_is_over"),
    "tree-disruption-budget": test(
        "sim/test_preempt::test_a_budget_that_lets_nobody_go_keeps_everybody_and_nothing_turns_in_circles"
    ),
    # Ray clusters: growth, give-back, replicas without an autoscaler, faults
    "ray-grows": test("sim/test_ray_grows::test_what_fits_is_granted_and_the_rest_when_there_is_room"),
    "ray-grows-by-groups": test("sim/test_ray_grows::test_a_placement_group_is_granted_whole_or_not_at_all"),
    "ray-gives-back": test("sim/test_ray_gives_back::test_busy_workers_go_after_a_while_and_those_with_actors_last"),
    "ray-replicas-driven": test("sim/test_ray_driven::test_what_another_queue_is_owed_is_given_back"),
    "ray-replicas-driven-idle": test("sim/test_ray_driven::test_idle_workers_go_by_name_and_busy_ones_stay"),
    "ray-resizes": test("sim/test_ray_resizes::test_growth_waits_for_room_as_replicas_do"),
    "ray-watchdog": test(
        "sim/test_ray_watchdog::test_what_a_lost_autoscaler_does_not_use_goes_to_others_and_comes_back"
    ),
    "ray-operator-is-late": test("sim/test_ray_late_workers::test_an_operator_that_is_lost_holds_up_no_reclaim"),
    "ray-late-workers-are-kept": test(
        "sim/test_ray_late_workers::test_what_was_to_go_and_is_used_again_is_taken_back_once_nobody_deletes_it"
    ),
    "ray-late-workers-are-not-deleted": test("sim/test_ray_late_workers::test_the_api_takes_no_deletion_for_a_while"),
    "ray-watchdog-in-vain": test("sim/test_ray_watchdog::test_in_vain_it_is_tried_more_and_more_seldom"),
    "ray-slow-autoscaler": test(
        "sim/test_ray_watchdog::test_an_autoscaler_whose_ticks_take_long_is_waited_for", takes=60
    ),
    "ray-refused-write": test("sim/test_ray_gives_back::test_a_refused_write_is_made_up_for"),
    "ray-api-away": test("sim/test_ray_disorder::test_an_api_server_that_takes_no_patch_for_a_while_costs_nothing"),
    "ray-unused-worker-goes": test("sim/test_ray_late_workers::test_an_unused_one_goes_in_the_end"),
    "ray-idles": test("sim/test_ray_idles::test_a_cluster_that_is_wanted_again_is_a_new_request"),
    "ray-service-upgrade": test(
        "sim/test_rayservices::test_an_upgrade_is_charged_for_both_clusters_until_the_old_one_is_gone"
    ),
    "ray-service-upgrade-waits": test("sim/test_upgrades::test_room_that_a_job_leaves_goes_to_the_waiting_upgrade"),
    "ray-surplus-goes": test("sim/test_surplus::test_the_workers_beyond_the_grant_go_and_the_cluster_runs_on"),
    "kai-gives-back": test("sim/test_kai_gives_back::test_of_two_queues_the_one_that_is_further_above_gives"),
    "ray-not-growing-for-hours": scene(partial(rayscenes.alarm, "not_growing"), hours=8),
    "nodes-asked-for-in-vain-for-hours": lines(
        "tree",
        "placement pack",
        "node n1 cpu=2",
        "pool big max=2 cpu=8 wait=120",
        "synced",
        "gang one head=2 workers=2x2",
        "time +21600s",
    ),
    # nodes: placement, claims, moves, requests for nodes, GPU sharing
    "native-gangs": test(
        "sim/test_native_placement::test_it_is_tried_again_after_the_pause_under_a_group_of_its_own_attempt"
    ),
    "moves-for-a-queue-that-is-owed": test("sim/test_moves::test_so_it_is_where_a_queue_takes_back_its_quota"),
    "gpu-shares-move": test("sim/test_moves::test_who_moves_onto_a_device_that_it_had_itself_waits_for_it_too"),
    "gpu-shares-stay-kept": test("sim/test_moves::test_a_device_that_stays_kept_is_waited_for_five_minutes"),
    "nodes-cleared-and-claimed": test(
        "sim/test_moves::test_who_has_claimed_nodes_takes_the_room_that_others_left_for_it"
    ),
}
"""Calm ones that tests play."""

RUNNERS = {
    "kinds-off": test("sim/test_kinds_on_and_off::test_a_kind_that_is_turned_off_leaves_its_queue_and_holds_nobody_up"),
    "kinds-off-and-on": test(
        "sim/test_kinds_on_and_off::test_a_kind_that_is_turned_off_and_on_again_finds_its_jobs_at_once"
    ),
    "killed-asking-for-nodes": test(
        "sim/test_nodes_asked_for_killed::test_whoever_is_killed_there_is_one_request", service="autoscaler_bridge"
    ),
    "restarted-accountant": test(
        "sim/test_clean_restart::test_a_successor_leads_from_a_snapshot_that_lies_behind_its_last_commit",
        service="quota_accountant",
    ),
    "gang-starves": test(
        "sim/test_gang_starves::test_a_gang_that_starves_says_so_after_20_minutes_and_names_the_blocker"
    ),
    "lost-log": test("sim/test_lost_log::test_a_lost_log_disturbs_nothing"),
    "observed-in-short": test("unit/runtime/test_bytes_of_a_life::test_lives_that_mix_take_few_bytes"),
}

WILD = {
    "wild-placement": test("sim/test_placement::test_whatever_goes_wrong_on_the_way", seed=3),
    "wild-pod-gangs": test("sim/test_gangs_of_pods::test_under_disorder_every_gang_ends_up_whole", seed=1),
    "wild-nodes-asked-for": test(
        "sim/test_nodes_asked_for::test_under_disorder_gangs_get_their_nodes_and_nothing_is_left", seed=1
    ),
    "wild-native": test("sim/test_native_placement::test_all_come_to_their_end_in_disorder", seed=2),
    "wild-native-turmoil": test("sim/test_native_turmoil::test_all_come_to_their_end", seed=3),
    "wild-ray": test("sim/test_ray_disorder::test_two_clusters_grow_and_shrink_side_by_side", seed=1),
    "wild-ray-lives-tree": ray_life(1, "tree", wild=True),
    "wild-ray-lives-kai": ray_life(3, "kai", wild=True),
    "wild-moves": test("sim/test_moves::test_whatever_people_and_machines_do_nobody_is_moved_in_vain_or_lost", seed=3),
    "wild-chance-of-pod-gangs": pod_gangs(5),
    "turmoil-tree": turmoil(Turmoil, 402),
    "turmoil-placed": turmoil(Turmoil, 611),
    "turmoil-kai": turmoil(Turmoil, 554),
    "turmoil-two-forests": turmoil(Forests, 7),
}

FURTHER: dict[str, tuple[Callable[[str], tuple[Any, str]], tuple[str, ...]]] = {
    "dequeued": (scenes.dequeued, ("finished", "started_outside", "unbound")),
    "released": (scenes.released, ("evicted", "preempted", "timed_out", "moved", "stale", "held", "superseded")),
    "claim ended": (claimscenes.claim_ended, ("gone", "changed", "held", "moved", "paused", "unsatisfiable", "idle")),
    "deferred": (scenes.deferred, ("grace", "evictions_paused", "lower_too_young", "lower_stays")),
    "victim stays": (claimscenes.victim_stays, ("overdue", "runs_again", "not_ended", "node_lost")),
    "places": (scenes.places, ("node_gone", "not_used")),
    "nodes withdrawn": (scenes.nodes_withdrawn, ("met", "gone", "changed", "expired", "failed", "lapsed", "deleted")),
    "pool": (scenes.pool_refused, ("full", "unsuitable", "not_served")),
    "obstacle": (obstaclescenes.obstacle, ("taint", "spread", "affinity", "ports")),
    "pods released": (gangscenes.pods_released, ("node_gone", "not_bound", "no_room")),
    "nodes claim": (gangscenes.claim_ended, ("yielded", "placed", "gone", "expired", "changed")),
    "growth denied": (rayscenes.denied, ("insufficient_quota", "exceeds_limit")),
    "alarm": (rayscenes.alarm, ("no_head", "stalled", "not_growing", "not_shrinking", "not_ready")),
    "workers kept": (rayscenes.kept, ("in_use",)),
}
"""{scene: (what plays it, the reasons it is played for)}"""

SCENIC = {f"scene-{slug(name)}": scene(make) for name, make in {**SCENES, **HELD}.items()} | {
    f"scene-{slug(f'{name} {reason}')}": scene(partial(make, reason))
    for name, (make, reasons) in FURTHER.items()
    for reason in reasons
}
"""One for each standing that a job or a gang of pods can have, and more; they end in the middle of things."""

SCENARIOS = {
    f"scenario-{path.stem.replace('_', '-')}": scenario(path) for path in sorted(TESTS.glob("scenarios/*/*.txt"))
}

HISTORIES: dict[str, Recipe] = {
    **TRACES,
    **{name: Recipe(play) for name, play in (PLAYED | SCENARIOS | SCENIC).items()},
    "pools-declared-anew": Recipe(
        test(
            "unit/core/autoscaling/test_bridge"
            "::test_a_declaration_that_is_made_anew_counts_though_the_end_of_the_old_one_is_told_later"
        )
    ),
    "demo-quota": Recipe(demo("quota")),
    "demo-kai": Recipe(demo("kai")),
    "demo-teams": Recipe(test("sim/test_demo_lives::test_what_is_ordered_once_is_enough", seed=0)),
    "moves-calm": Recipe(consolidating(2)),
    **{name: Recipe(play, "runners") for name, play in RUNNERS.items()},
    **{name: Recipe(play, "wild") for name, play in WILD.items()},
}

REAL: dict[str, Recipe] = {
    "real-preempt": Recipe(
        real("e2e/test_real_preempt.py::test_an_urgent_job_takes_the_place_of_the_youngest_of_the_lowest"), "runners"
    ),
    "real-ray-gives-back": Recipe(
        real("e2e/test_ray_autoscaling.py::test_an_idle_worker_goes_to_the_queue_that_is_owed_it"), "runners"
    ),
}
"""On a real API server and a real NATS: never the same twice, so recorded when they are named only."""

LARGE: dict[str, Recipe] = {
    "philly-two-weeks": Recipe(trace(whole(all_of_philly))),
    "gang-heavy": Recipe(trace(whole(lambda folder, into: muri(folder / "muri_trace1_gang.csv", into)))),
}
"""Too large to keep: recorded before and after a change, and compared. MUSTER_TEST_TRACES names their traces."""
