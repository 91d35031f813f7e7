"""The rooms of the code: few, without a circle between modules, and in the wheel only what runs."""

from __future__ import annotations

import ast
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from kit.compose import REPOSITORY

LIBS = REPOSITORY / "libs"
MOST_ROOMS = 27
"""Folders of the core, with those inside them."""


def modules() -> dict[str, Path]:
    named = {path.relative_to(LIBS).with_suffix("").parts: path for path in (LIBS / "muster").rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): path for parts, path in named.items()}


def imports() -> dict[str, set[str]]:
    """{module: the modules that it imports}, those for a type checker alone included."""
    known, found = modules(), {}
    for name, path in known.items():
        heads = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        named = [(head.module or "", each.name) for head in heads for each in head.names]
        found[name] = {f"{room}.{each}" if f"{room}.{each}" in known else room for room, each in named} & known.keys()
    return found


def test_no_module_imports_itself_through_others() -> None:
    found = imports()
    assert len(found) > 500, "the modules were not found"
    assert sum(map(len, found.values())) > 2000, "their imports were not found"
    try:
        TopologicalSorter({name: others - {name} for name, others in found.items()}).prepare()
    except CycleError as circle:
        pytest.fail(f"a circle of imports: {' -> '.join(circle.args[1])}; move what both need below both")


def test_the_core_has_few_rooms_and_each_says_what_it_is() -> None:
    rooms = sorted(path.parent for path in (LIBS / "muster" / "core").rglob("__init__.py"))[1:]
    assert 20 < len(rooms) <= MOST_ROOMS, [room.name for room in rooms]
    silent = [room.name for room in rooms if not ast.get_docstring(ast.parse((room / "__init__.py").read_text()))]
    assert not silent


def test_the_wheel_has_what_runs_and_neither_generators_nor_doubles() -> None:
    build = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    services = {f"services/{path.name}" for path in (REPOSITORY / "services").glob("muster_*")}
    assert set(build["packages"]) == {"libs/muster", *services}
    generators = ("doubles", "catalogue", "pages", "installing", "shipping")
    made = [name for name in modules() if name.rpartition(".")[2] in generators]
    assert not made
