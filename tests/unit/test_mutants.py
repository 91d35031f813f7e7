"""The list of mutants that may survive is about numbers that are there; and a planted mutant is what is tested."""

from __future__ import annotations

import ast
from functools import cache

from kit.mutants.__main__ import listed
from kit.mutants.sites import Mutant, MutantFinder, less_and_more, mutant_of, mutants, numbers

every = cache(mutants)


def test_the_list_names_numbers_that_are_there_each_with_a_reason() -> None:
    assert set(listed()) <= set(every())
    assert [line for line in listed().values() if not line.partition("#")[2].strip()] == []


def test_a_mutant_is_named_as_it_is_read() -> None:
    assert len(every()) > 500
    assert len(set(every())) == len(every())
    assert [mutant_of(str(each)) for each in every()] == every()


def test_numbers_are_found_by_what_they_belong_to() -> None:
    tree = ast.parse("LIMITS = {'a': 5 * 60, 'b': 0}\nclass C:\n    def f(self, x):\n        return x[2] + 7 * 1 + 8")
    found = [(scope, place, node.value) for scope, place, node in numbers(tree)]
    assert found == [("LIMITS", 1, 5), ("LIMITS", 2, 60), ("LIMITS", 3, 0), ("C.f", 1, 7), ("C.f", 3, 8)]
    assert [list(less_and_more(value)) for value in (300, 3, 0)] == [[240, 375], [2, 4], [1]]


def test_a_planted_mutant_is_the_module_with_that_number() -> None:
    mutant = Mutant("core/preemption/preemptorstate.py", "HOUR_MS", 1, 3_600_000, 2_880_000)
    spec = MutantFinder(mutant).find_spec("muster.core.preemption.preemptorstate")
    assert spec is not None
    assert spec.loader is not None
    names: dict[str, object] = {"__name__": "muster.core.preemption.preemptorstate", "__file__": spec.origin}
    exec(spec.loader.get_code(spec.name), names)  # type: ignore[attr-defined]
    assert names["HOUR_MS"] == 2_880_000
    assert MutantFinder(mutant).find_spec("muster.core.preemption.preemptorfolds") is None
