"""Which test shows which row of the conformance table of a Ray cluster that scales itself.

A row without a test here says where it is shown, or why it is not.
"""

ROWS: dict[int, tuple[str, ...] | str] = {
    1: ("test_the_head_alone_with_its_autoscaler",),
    2: "the document's scripts are in tests/ray/samples; its ConfigMap is an object like any other",
    3: ("test_the_walk_of_the_document",),
    4: ("test_the_walk_of_the_document",),
    5: ("test_an_actor_that_fits_no_worker_starts_none",),
    6: ("test_a_placement_group_starts_as_a_whole",),
    7: ("test_the_walk_of_the_document",),
    8: ("test_the_walk_of_the_document",),
    9: ("test_the_walk_of_the_document",),
    10: ("test_the_walk_of_the_document", "test_tasks_actors_placement_groups_and_request_resources"),
    11: "needs the garbage collector, and nothing of Ray: on the real API server with the simulated operator",
    12: "nothing of Ray decides there: on the real API server with the simulated operator",
    13: ("test_the_minimum_is_kept",),
    14: "nothing of Ray decides there: on the real API server with the simulated operator",
    15: ("test_conservative_grows_by_what_is_there",),
    16: "a second worker group and 30 s of idleness: the cluster-wide timeout is in test_the_walk_of_the_document",
    17: ("test_what_is_spilled_to_disk_keeps_its_worker", "test_workers_their_actors_and_what_is_spilled_to_disk"),
    18: "nothing of Ray decides there: on the real API server with the simulated operator",
    19: (
        "test_no_more_workers_than_granted",
        "test_it_gets_exactly_what_fits",
        "test_it_grows_again_when_there_is_room",
    ),
    20: (
        "test_an_idle_worker_is_taken_and_the_busy_one_stays",
        "test_an_idle_worker_goes_to_the_queue_that_is_owed_it",
    ),
    21: "has no real node autoscaler: on the real API server with the simulated operator",
    22: (
        "test_refused_patches_are_made_up_for",
        "test_a_new_autoscaler_goes_on",
    ),
    23: "RayJobs, and nothing of Ray decides there: on the real API server with the simulated operator",
    24: "several hosts are one replica to the operator only: on the real API server with the simulated operator",
}
"""Row -> names of tests, or where it is shown."""

NOT_YET = {
    22: "the loss of a real head: the kubelet of the tests does not bring up another one yet",
    "v1": "rows 3, 4, 7, 8, 15, 19, 20 and 22 with the first version of the autoscaler: its demand is read in "
    "test_demand_v1.py, its autoscaler is not run yet (`ray_cluster` takes v1 as a parameter)",
}
"""What of a row is not shown yet, and why."""
