"""Conditions, as the status of most objects has them: one shape for every reader."""

from __future__ import annotations

from msgspec import Struct


class Condition(Struct, frozen=True):
    """One entry of status.conditions."""

    type: str = ""
    status: str = ""


class ExplainedCondition(Condition, frozen=True):
    """The same with its cause; without its times."""

    reason: str = ""
    message: str = ""


def is_true(conditions: tuple[Condition, ...] | None, kind: str) -> bool:
    """Whether there is a condition of that type and it is true."""
    return any(each.type == kind and each.status == "True" for each in conditions or ())
