"""The stage that is wired and takes part, and has nothing to decide yet: the autoscaler bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from muster.core.rulesets import NEWEST
from muster.core.stage import Arm, StageState, Violation
from muster.events.base import Decision, Event


class _Idle:
    def initial(self) -> StageState:
        return StageState()

    def arms(self) -> Mapping[type[Event], Arm]:
        return {}

    def decide(self, state: StageState) -> list[Decision]:
        return []

    def next_deadline(self, state: StageState) -> int | None:
        return None

    def check(self, state: StageState) -> list[Violation]:
        return []


class AutoscalerBridge(_Idle):
    """The stage ``autoscaler_bridge``: will decide how far a Ray cluster may grow."""

    name: ClassVar[str] = "autoscaler_bridge"
    newest_ruleset: ClassVar[int] = NEWEST
