"""A version of Muster that knows one more rule set, for tests of how a rule set is put in force.

Under rule set 2 its queue sorter proposes one candidate at a time; everything else is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from muster.core.cell.deciders import DECIDERS
from muster.core.queueing.sorter import QueueSorter
from muster.core.queueing.sorterstate import SorterState
from muster.core.stage import Stage
from muster.events.base import Decision
from muster.events.decisions import CandidatesProposed

NEXT = 2


class NextSorter(QueueSorter):
    """The queue sorter of the next version."""

    newest_ruleset: ClassVar[int] = NEXT

    def decide(self, state: SorterState) -> list[Decision]:
        due = super().decide(state)
        return due if state.ruleset < NEXT else [_one_at_a_time(each) for each in due]


def _one_at_a_time(event: Decision) -> Decision:
    return replace(event, candidates=event.candidates[:1]) if isinstance(event, CandidatesProposed) else event


def _knowing(kind: Callable[[], Stage[Any]]) -> Callable[[], Stage[Any]]:
    assert isinstance(kind, type)
    made: Callable[[], Stage[Any]] = type(f"Next{kind.__name__}", (kind,), {"newest_ruleset": NEXT})
    return made


NEXT_BUILD: dict[str, Callable[[], Stage[Any]]] = {name: _knowing(kind) for name, kind in DECIDERS.items()}
NEXT_BUILD["queue_sorter"] = NextSorter
"""{stage: its class} of the version that knows rule set 2."""


@contextmanager
def installed(build: dict[str, Callable[[], Stage[Any]]]) -> Iterator[None]:
    """What replays and compares logs here is another version."""
    with pytest.MonkeyPatch.context() as patch:
        for name, kind in build.items():
            patch.setitem(DECIDERS, name, kind)
        yield
