"""The numbers of the core that can be changed, and the core's modules with one of them changed.

A number is found by the function or the constant it belongs to and its place among the numbers there, so that lines
may come and go. Left out: 0, 1 and places in sequences inside of functions, which are seldom a choice.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

from msgspec import Struct

ROOT = Path(__file__).parents[3]
MUSTER = ROOT / "libs" / "muster"
HOUSES = ("core", "told", "audit")
VARIABLE = "MUSTER_MUTANT"
"""Names the mutant that a run of the tests is about."""
PLAIN = (0, 1)
"""Inside of functions these are not changed."""
APART = ("CHECKED",)
"""Constants whose numbers are names: the numbers of invariants."""


class Mutant(Struct, frozen=True, order=True):
    """One number changed. ``path``: below libs/muster; ``scope``: a constant, or a function with its classes."""

    path: str
    scope: str
    place: int
    old: int
    new: int

    def __str__(self) -> str:
        return f"{self.path} {self.scope} {self.place} {self.old} -> {self.new}"


def mutant_of(text: str) -> Mutant:
    """The mutant that a line names."""
    path, scope, place, old, _, new = text.split()
    return Mutant(path, scope, int(place), int(old), int(new))


def less_and_more(value: int) -> Iterator[int]:
    """What a number is changed to: a fifth less, a quarter more; by one where it is small."""
    if value:
        yield value * 4 // 5 if value >= 5 else value - 1
    yield value * 5 // 4 if value >= 5 else value + 1


def mutants() -> list[Mutant]:
    """All there are, in order."""
    found = []
    for path in sorted(path for house in HOUSES for path in (MUSTER / house).rglob("*.py")):
        name = path.relative_to(MUSTER).as_posix()
        for scope, place, node in numbers(ast.parse(path.read_text())):
            found += [Mutant(name, scope, place, node.value, new) for new in less_and_more(node.value)]
    return found


def numbers(tree: ast.Module) -> Iterator[tuple[str, int, ast.Constant]]:
    """(scope, place in it, node) of each number that can be changed."""
    counts: dict[str, int] = {}
    for scope, node, inside in _walk(tree, "", inside=False):
        place = counts[scope] = counts.get(scope, 0) + 1
        if scope not in APART and not (inside and node.value in PLAIN):
            yield scope, place, node


def _walk(node: ast.AST, scope: str, *, inside: bool) -> Iterator[tuple[str, ast.Constant, bool]]:
    if isinstance(node, ast.Constant):
        if type(node.value) is int and scope:
            yield scope, node, inside
        return
    if isinstance(node, ast.Slice) or (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)):
        node = node.value if isinstance(node, ast.Subscript) else ast.Pass()
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        scope, inside = f"{scope}.{node.name}".lstrip("."), True
    elif not inside and isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        scope = ast.unparse(target).replace(" ", "")
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, scope, inside=inside)


class MutantLoader(SourceFileLoader):
    """Loads a module of the core with one number changed; nothing of it is kept on disk."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path))
        changed = 0
        for scope, place, node in numbers(tree):
            if (scope, place, node.value) == (self.mutant.scope, self.mutant.place, self.mutant.old):
                node.value = self.mutant.new
                changed += 1
        if changed != 1:
            raise ImportError(f"there is no number {self.mutant}")
        return compile(tree, self.path, "exec", dont_inherit=True)


class MutantFinder:
    """Finds that module, and no other."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        parts = ("muster", *Path(mutant.path).with_suffix("").parts)
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = MutantLoader(fullname, str(MUSTER / self.mutant.path), self.mutant)
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)
