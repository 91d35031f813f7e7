"""The deciding stages in virtual time: what they are asked, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kit import facts
from muster.events.facts import Synced
from muster.tracesim.stages import WATCHER, Stages


def test_a_stage_is_asked_for_its_deadline_when_something_has_come_for_it() -> None:
    stages, asked = Stages(lambda _: None, "log"), list[str]()

    def counted(name: str, ask: Callable[[Any], int | None]) -> Callable[[Any], int | None]:
        def count(state: Any) -> int | None:
            asked.append(name)
            return ask(state)

        return count

    for name in stages.turns():
        stage: Any = stages.seats[name].stage
        stage.next_deadline = counted(name, stage.next_deadline)
    stages.settle()
    assert set(asked) == {*stages.turns()}
    asked.clear()
    stages.settle()
    assert stages.next_deadline() is None
    assert not asked
    stages.report(WATCHER, [facts.gone("one", "default")])
    stages.next_deadline()
    assert "queue_sorter" in asked
    assert len(asked) == len(set(asked))
    stages.report(WATCHER, [Synced(kind="Job")])
    stages.settle()
    assert set(asked) == {*stages.turns()}
