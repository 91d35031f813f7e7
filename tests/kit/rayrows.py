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
