"""How far a process says that it has read: as far as those of its stages that still follow the log."""

from types import SimpleNamespace
from typing import Any

import pytest

from muster.bus.marks import Mark
from muster.core.docket import Docket
from muster.ports import LogIdentity
from muster.runtime.marking import Marking

LOG: Any = SimpleNamespace(identity=LogIdentity("main", "log", 1))


class Marks:
    def __init__(self) -> None:
        self.put_last: Mark | None = None

    async def put(self, _log: object, _user: str, mark: Mark) -> bool:
        self.put_last = mark
        return True


def runner(seq: int, last: bytes = b"\x01", *, folds: bool = True) -> Any:
    return SimpleNamespace(folds=folds, state=SimpleNamespace(seq=seq, docket=Docket(last=last)))


@pytest.mark.parametrize(
    ("runners", "said"),
    [
        ([runner(5, b"\x05"), runner(9, b"\x09")], Mark("log", 9, "09")),
        ([runner(5, b"\x05"), runner(9, b"\x09", folds=False)], Mark("log", 5, "05")),
        ([runner(9, folds=False)], None),
        ([runner(9, b"")], None),
        ([], None),
    ],
    ids=["the furthest", "not of one that was fenced", "nor of it alone", "of no commit of this log", "nobody"],
)
async def test_a_mark_is_of_the_stage_that_has_read_furthest(runners: list[Any], said: Mark | None) -> None:
    marks: Any = Marks()
    marking = Marking(marks, "preemptor", LOG, runners, SimpleNamespace())  # type: ignore[arg-type]
    assert await marking.keep()
    assert marks.put_last == said
