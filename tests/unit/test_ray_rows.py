"""Every row of the conformance table has its tests on a real Ray, or says where it is shown."""

import ast
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "ray"


def test_every_row_is_accounted_for() -> None:
    namespace: dict[str, object] = {}
    exec((FOLDER / "rows.py").read_text(), namespace)
    rows = namespace["ROWS"]
    assert isinstance(rows, dict)
    assert list(rows) == list(range(1, 25))
    tests: dict[str, str] = {}
    for path in FOLDER.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
                tests[node.name] = path.name
    for row, shown in rows.items():
        if isinstance(shown, str):
            assert len(shown) > 20
        else:
            assert shown and set(shown) <= tests.keys(), f"row {row}: {set(shown) - tests.keys()}"
