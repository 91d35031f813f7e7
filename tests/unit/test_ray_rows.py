"""Every row of the conformance table has its tests on a real Ray, or says where it is shown."""

import ast
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "ray"


def test_every_row_is_accounted_for() -> None:
    namespace: dict[str, object] = {}
    exec((FOLDER / "rows.py").read_text(), namespace)
    rows, both = namespace["ROWS"], namespace["BOTH_VERSIONS"]
    assert isinstance(rows, dict) and isinstance(both, tuple)
    assert list(rows) == list(range(1, 25))
    tests: dict[str, str] = {}
    for path in FOLDER.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
                tests[node.name] = path.name
    for row, shown in rows.items():
        if isinstance(shown, str):
            assert row not in both and len(shown) > 20
        else:
            assert shown and set(shown) <= tests.keys(), f"row {row}: {set(shown) - tests.keys()}"
    for row in both:
        assert all(tests[name] == "test_autoscaler.py" for name in rows[row]), row
