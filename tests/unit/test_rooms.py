"""The rooms of the code: few, without a circle between modules, and in the wheel only what runs."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from kit.compose import REPOSITORY

LIBS = REPOSITORY / "libs"
HOUSES = ("core", "told", "audit")
MOST_ROOMS = 28
"""Folders of the three houses, with those inside them."""
MOST_FILES = 172
"""Modules of the three houses, without those that only say what a room is."""


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
    assert len(found) > 400, "the modules were not found"
    assert sum(map(len, found.values())) > 2000, "their imports were not found"
    try:
        TopologicalSorter({name: others - {name} for name, others in found.items()}).prepare()
    except CycleError as circle:
        pytest.fail(f"a circle of imports: {' -> '.join(circle.args[1])}; move what both need below both")


def houses() -> list[Path]:
    return [path for house in HOUSES for path in sorted((LIBS / "muster" / house).rglob("*.py"))]


def test_the_houses_have_few_rooms_and_each_says_what_it_is() -> None:
    rooms = [path for path in houses() if path.name == "__init__.py"]
    assert 20 < len(rooms) <= MOST_ROOMS, [room.parent.name for room in rooms]
    short = [
        str(room) for room in rooms if len((ast.get_docstring(ast.parse(room.read_text())) or "").splitlines()) < 3
    ]
    assert not short, "say what the room decides, and which code calls it"


def test_a_base_name_of_the_houses_means_one_module() -> None:
    files = [path for path in houses() if path.name != "__init__.py"]
    assert 100 < len(files) <= MOST_FILES, f"{len(files)} modules: join two of one subject, or raise MOST_FILES here"
    rooms = [path.parent.name for path in houses() if path.name == "__init__.py"]
    counts = Counter([*(path.stem for path in files), *rooms])
    assert not [name for name, count in counts.items() if count > 1]


def test_every_room_is_on_the_map() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    rooms = [path.parent for path in houses() if path.name == "__init__.py"]
    paths = [str(room.relative_to(LIBS / "muster")) for room in rooms]
    assert not [
        path for path in paths if f"muster/{path}" not in page and f"`{path.rpartition('/')[2]}`" not in page
    ], "rooms that the map of docs/architecture.md does not name"


def test_the_import_contracts_name_every_service_and_every_package() -> None:
    linter = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]
    roots = {"muster", "muster_tools", *(path.name for path in (REPOSITORY / "services").glob("muster_*"))}
    assert set(linter["root_packages"]) == roots
    packages = {name for name in modules() if name.count(".") == 1} | roots - {"muster"}
    layers = [re.split("[^a-z_.]+", layer) for layer in linter["contracts"][0]["layers"]]
    assert {name for layer in layers for name in layer} == packages, "the first contract has no layer for these"
    owned = [contract for contract in linter["contracts"] if contract["name"].startswith("Only ")]
    assert len(owned) > 3, "the contracts of the libraries were not found"
    for contract in owned:
        owner = contract["name"].split()[1]
        assert set(contract["source_modules"]) == packages - {owner}, contract["name"]


def test_the_wheel_has_what_runs_and_neither_generators_nor_doubles() -> None:
    build = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    services = {f"services/{path.name}" for path in (REPOSITORY / "services").glob("muster_*")}
    assert set(build["packages"]) == {"libs/muster", *services}
    generators = ("doubles", "catalogue", "pages", "installing", "shipping", "charting")
    made = [name for name in modules() if name.rpartition(".")[2] in generators]
    assert not made
