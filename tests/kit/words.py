"""Problems in words, as tests read them; and problems to give."""

from __future__ import annotations

from muster.model.problem import FieldProblem, problem
from muster.told.wording.problems import line

__all__ = ["coded", "in_words", "odd", "told"]


def in_words(found: FieldProblem | None) -> str:
    """What a user reads of it; empty for none."""
    return line(found) if found is not None else ""


def odd(text: str) -> FieldProblem:
    """``spec.x: expected int``."""
    path, _, said = text.replace(": ", " ", 1).partition(" ")
    return problem(path, "not_decoded", said=said)


def coded(found: FieldProblem | None) -> str:
    """``spec.x: not_a_count``, ``root: annotation: none_of``: what no edit of a sentence changes."""
    if found is None:
        return ""
    because = coded(found.because) if found.because is not None else ""
    return f"{found.path}: {found.code}" + (f": {because.removeprefix(': ')}" if because else "")


def told(text: str) -> FieldProblem:
    """A problem in words, of no field."""
    return problem("", "said", said=text)
