"""A rule that a file breaks, as the commands about quotas print it."""

from __future__ import annotations

from msgspec import Struct

from muster.model.problem import FieldProblem
from muster.model.resources import format_quantity
from muster.told.wording import problems


class BrokenRule(Struct, frozen=True):
    """The path, the rule, and the values that break the rule in words."""

    path: str
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}" if self.path else self.detail


def in_words(problem: FieldProblem, show: problems.Show = format_quantity) -> BrokenRule:
    """What the core finds, in words. ``show``: (amount, resource) as a text."""
    return BrokenRule(problem.path, problem.rule, problems.say(problem, show))
