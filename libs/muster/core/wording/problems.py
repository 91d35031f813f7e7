"""The problems of objects and writes in English: one template for each code, and no text elsewhere.

A template names the values of its problem: ``{value!r}`` in quotes, ``{most!q}`` as an amount of ``{resource}``,
``{resource!n}`` as a name before an amount, ``{resource!o}`` after one, ``{count:pod}`` as so many pods, ``{because}``
the problem it follows from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, get_args

from muster.core.wording.problems_gangs import GANGS, GPUS
from muster.core.wording.problems_log import VOIDS, WRITES
from muster.core.wording.problems_objects import KINDS, OBJECTS, POOLS
from muster.core.wording.problems_quota import QUEUES, RULES, TREES
from muster.model.problem import FieldProblem
from muster.model.problemcodes import ProblemCode
from muster.model.resources import format_quantity
from muster.model.text import counted

TEMPLATES: dict[str, str] = {
    **OBJECTS,
    **KINDS,
    **POOLS,
    **RULES,
    **TREES,
    **QUEUES,
    **GPUS,
    **GANGS,
    **WRITES,
    **VOIDS,
}


def codes_of(literal: Any) -> set[str]:
    """The values of a Literal, of the Literals in it too."""
    return {each if isinstance(each, str) else found for each in get_args(literal) for found in _flat(each)}


def _flat(each: Any) -> set[str]:
    return {each} if isinstance(each, str) else codes_of(each)


if codes_of(ProblemCode) != TEMPLATES.keys():
    odd = sorted(codes_of(ProblemCode) ^ TEMPLATES.keys())
    raise AssertionError(f"core/wording/problems*.py and model/problemcodes.py differ: {', '.join(odd)}")

Show = Callable[[int, str], str]


def line(found: FieldProblem, show: Show = format_quantity) -> str:
    """``spec.replicas: expected int, got str``. ``show``: (amount, resource) as a text."""
    return f"{found.path}: {say(found, show)}" if found.path else say(found, show)


def say(found: FieldProblem, show: Show = format_quantity) -> str:
    """The sentence without the field."""
    return _Sentence(found, show).vformat(TEMPLATES[found.code], (), found.values)


def after(found: FieldProblem | None) -> str:
    """``: sentence``, to end one that says what failed; empty where nothing more is known."""
    text = line(found) if found is not None else ""
    return f": {text}" if text else ""


class _Sentence(Formatter):
    def __init__(self, found: FieldProblem, show: Show) -> None:
        self._found = found
        self._show = show

    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if key == "because":
            return line(self._found.because, self._show) if self._found.because is not None else ""
        return kwargs[str(key)]

    def convert_field(self, value: Any, conversion: Any) -> Any:
        match conversion:
            case "q":
                return self._show(value, str(self._found.values.get("resource", "")))
            case "n":
                return f"{value} " if value else ""
            case "o":
                return f" of {value}" if value else ""
            case None if isinstance(value, tuple):
                return ", ".join(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        return counted(value, format_spec) if format_spec else str(value)
