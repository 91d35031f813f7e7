"""The sentence of an event that names its problem."""

from __future__ import annotations

from typing import Protocol

from muster.model.problem import FieldProblem
from muster.told.wording import problems


class Troubled(Protocol):
    @property
    def problem(self) -> FieldProblem | None: ...


def why(event: Troubled) -> str:
    """Why a write was not carried out, or nodes are asked for no longer; empty where nothing is known."""
    return problems.line(event.problem) if event.problem is not None else ""
