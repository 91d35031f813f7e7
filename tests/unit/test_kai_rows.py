"""The conformance table with KAI Scheduler: complete, every row with tests that exist."""

from __future__ import annotations

import ast

from kit.compose import REPOSITORY
from kit.kairows import PROPERTIES, ROWS

PROMISED = (
    "queue label", "Queue CRD", "kubectl get queues", "hierarchy and fairness", "PodGroup gang", "KubeRay wiring",
    "priority classes", "preemption", "consolidation", "GPU fraction", "verification command",
    "bin packing and spreading", "elastic between min and max", "cluster autoscaling", "missing label",
    "global.gpuSharing",
)  # fmt: skip


def test_every_row_has_a_test_that_exists() -> None:
    assert tuple(ROWS) == PROMISED
    assert len(PROPERTIES) == 6
    for row, tests in [*ROWS.items(), *PROPERTIES.items()]:
        assert tests, row
        for test in tests:
            path, _, name = test.partition("::")
            found = ast.walk(ast.parse((REPOSITORY / path).read_text()))
            names = {each.name for each in found if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert name in names, f"{row}: {test}"
