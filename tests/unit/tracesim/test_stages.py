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
    assert not asked, "at one moment no deadline is reached that was not before"
    assert stages.next_deadline() is None
    assert sorted(asked) == sorted(stages.turns())
    asked.clear()
    stages.now += 1
    stages.settle()
    assert stages.next_deadline() is None
    assert not asked
    stages.report(WATCHER, [facts.gone("one", "default")])
    stages.next_deadline()
    assert "queue_sorter" in asked
    assert len(asked) == len(set(asked))
    stages.report(WATCHER, [Synced(kind="Job")])
    stages.now += 1
    stages.settle()
    assert set(asked) == {*stages.turns()}


def test_a_commit_is_judged_once_for_all_stages() -> None:
    stages = Stages(lambda _: None, "log")
    assert len({id(seat.state.docket) for seat in stages.seats.values()}) == 1
    stages.report(WATCHER, [facts.seen(facts.job("one", "default"))])
    assert [*stages.seats["queue_sorter"].state.docket.newest["watcher.0"]] == [facts.job("one", "default").ref.uid]


def test_two_stages_with_one_deadline_both_decide_at_it() -> None:
    stages, decided = Stages(lambda _: None, "log"), list[str]()
    due = stages.origin + 1_000

    def noted(name: str, decide: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
        def note(state: Any) -> list[Any]:
            decided.append(name)
            return decide(state)

        return note

    for name in ("queue_sorter", "preemptor"):
        stage: Any = stages.seats[name].stage
        stage.next_deadline, stage.decide = (lambda _: due), noted(name, stage.decide)
    stages.settle()
    assert stages.next_deadline() is not None
    decided.clear()
    stages.now = 1_000
    stages.settle()
    assert {*decided} == {"queue_sorter", "preemptor"}
