"""A fault of an object, or of a write: the field, the rule, and the names and amounts against the rule.

No English: a reader words the problem (`told.wording.problems`), so an edit of a sentence changes no event.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from muster.model.problemcodes import ProblemCode
from muster.model.text import clean, shorten

Value = str | int | tuple[str, ...]
"""A name, a text of others, an amount in base units, or names."""

MAX_TEXT = 1_000
"""Characters of one value: what others wrote is cut."""
_LEAST, _MOST = -(2**63), 2**63 - 1


class FieldProblem(Struct, frozen=True, gc=False, omit_defaults=True):
    """One broken rule."""

    path: str
    """The field; of a quota tree the node; empty where the rule is about the whole object."""
    code: ProblemCode
    values: dict[str, Value] = field(default_factory=dict)
    """What the sentence of the code names. An amount is in the base units of the resource in ``resource``."""
    because: FieldProblem | None = None
    """The problem that this one follows from."""

    def __hash__(self) -> int:
        return hash((self.path, self.code))

    @property
    def rule(self) -> ProblemCode:
        """The code of the problem behind all others."""
        return self.code if self.because is None else self.because.rule


class ProblemError(Exception):
    """Something is wrong with an input, as values."""

    def __init__(self, problem: FieldProblem) -> None:
        super().__init__(f"{problem.path}: {problem.code} {problem.values}")
        self.problem = problem

    def at(self, path: str) -> FieldProblem:
        """The problem, of the field that was read."""
        return replace(self.problem, path=path)


def problem(path: str, code: ProblemCode, because: FieldProblem | None = None, /, **values: Value) -> FieldProblem:
    """A problem with texts that are cut and harmless."""
    ordered = sorted(values.items())  # As an encoding has them: what was decided and what was read are written alike.
    return FieldProblem(_text(path), code, {name: _bounded(value) for name, value in ordered}, because)


def _bounded(value: Value) -> Value:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return max(_LEAST, min(value, _MOST))
    return tuple(_text(part) for part in value)


def _text(text: str) -> str:
    return clean(shorten(text, MAX_TEXT))
