"""What a stage knew at each moment of a log: folded by the stage itself, so that tests can ask it for its deadlines.

How soon after a deadline something is done depends on the machine; when it is due does not.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from muster.core.stage import Folder, Stage, StageState
from muster.events.base import Event
from muster.events.envelope import Commit, Stored
from muster.events.system import TimeReached

S = TypeVar("S", bound=StageState)


def folded(stage: Stage[S], commits: Iterable[Stored]) -> Iterator[tuple[Event, S]]:
    """Each event with the state after its commit. It is one state, and changes with the next commit."""
    state, folder = stage.initial(), Folder(stage)
    for stored in commits:
        folder.fold(state, stored)
        yield from ((event, state) for event in stored.commit.events)


def heard(folder: Folder, state: StageState, event: Event) -> None:
    """An event by itself, one millisecond after the one before; no judge of a log sees it."""
    commit = Commit(
        commit_id=f"c{state.seq}", stage="oracle", shard="0", kind="input", at=state.now + 1, events=(event,)
    )
    folder.hear(state, Stored(state.seq + 1, commit))


def waited_for(commits: Iterable[Stored], name: str, since: type[Event], until: type[Event]) -> list[int]:
    """The times that had to come between two events about an object: none where the one follows from the other."""
    events = [event for stored in commits for event in stored.commit.events]

    def first(kind: type[Event], start: int) -> int:
        return next(
            at
            for at, event in enumerate(events)
            if at >= start and isinstance(event, kind) and getattr(event, "ref", None) and event.ref.name == name
        )

    begin = first(since, 0)
    return [event.at for event in events[begin : first(until, begin)] if isinstance(event, TimeReached)]
