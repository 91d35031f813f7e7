"""Replay: fold a recorded log to each decision's ``in_seq``, decide again, and compare byte for byte.

A replay has nothing that could touch a cluster: it reads commits and drives pure stages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct, field

from muster.core.deciders import DECIDERS
from muster.core.stage import Folder, Stage, StageState, Violation, next_commit
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.events.registry import encode
from muster.events.system import LeaderStarted

SILENCE_MS = 5_000
"""A stage that folded a position this long before anything else came, and said nothing, had nothing due there."""

MAX_SILENT_CHECKS = 2_000

LAG = 20_000
"""How many commits a stage may have been behind when it decided; an idle one is folded on beyond that."""


class Divergence(Struct, frozen=True):
    """A decision that today's code does not make from the same log."""

    stage: str
    seq: int
    """Of the recorded commit; of the position for a silent one."""
    in_seq: int
    recorded: list[str] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)

    def first_difference(self) -> tuple[str, str]:
        """(recorded, decided) of the first event that differs; an empty text where there is none."""
        for index in range(max(len(self.recorded), len(self.decided))):
            one = self.recorded[index] if index < len(self.recorded) else ""
            other = self.decided[index] if index < len(self.decided) else ""
            if one != other:
                return one, other
        return "", ""


class ReplayReport(Struct):
    """What a replay found."""

    commits: int = 0
    events: int = 0
    decisions: int = 0
    """Decision commits that were decided again."""
    silences: int = 0
    """Silent positions that were decided at."""
    divergences: list[Divergence] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)


class _Seat:
    """One decider while a log is replayed."""

    def __init__(self, stage: Stage[Any]) -> None:
        self.stage = stage
        self.state: StageState = stage.initial()
        self.folder = Folder(stage)
        self.quiet_from = 0
        """Position up to which silence proves nothing: the stage was not leading."""


def replay(
    commits: Iterable[Stored],
    *,
    verify: bool = True,
    silences: bool = True,
    check_every: int = 500,
    stages: Collection[str] = (),
) -> ReplayReport:
    """Replay a log. With ``verify`` every recorded decision is made again, and (``silences``) silent positions are
    sampled. ``stages``: only these; all when it is empty.
    """
    report = ReplayReport()
    seats = {name: _Seat(make()) for name, make in DECIDERS.items() if not stages or name in stages}
    window: deque[Stored] = deque()
    for stored in commits:
        window.append(stored)
        report.commits += 1
        report.events += len(stored.commit.events)
        seat = seats.get(stored.commit.stage)
        if seat is not None and stored.commit.kind == "decision":
            report.decisions += 1
            _fold_to(seat, window, stored.commit.in_seq, report, verify=verify and silences)
            if verify:
                _compare(seat, stored, report)
        elif seat is not None and any(isinstance(event, LeaderStarted) for event in stored.commit.events):
            _fold_to(seat, window, stored.seq, report, verify=False)
            seat.quiet_from = stored.seq
        if report.commits % check_every == 0:
            _trim(seats, window, report)
            for each in seats.values():
                report.violations += each.stage.check(each.state)
    for seat in seats.values():
        _fold_to(seat, window, window[-1].seq if window else seat.state.seq, report, verify=False)
        report.violations += seat.stage.check(seat.state)
    return report


def _trim(seats: dict[str, _Seat], window: deque[Stored], report: ReplayReport) -> None:
    """Let stages that fell behind catch up with all but the newest commits; forget what all have folded."""
    newest = window[-1].seq
    for seat in seats.values():
        if newest - seat.state.seq > LAG:
            _fold_to(seat, window, newest - LAG // 2, report, verify=False)
    oldest = min(seat.state.seq for seat in seats.values())
    while window and window[0].seq <= oldest:
        window.popleft()


def _fold_to(seat: _Seat, window: deque[Stored], seq: int, report: ReplayReport, verify: bool) -> None:
    if not window or seat.state.seq >= seq:
        return
    if seat.state.seq == 0 and window[0].seq > 1:
        seat.state.seq = window[0].seq - 1
    start = seat.state.seq - window[0].seq + 1
    for index in range(start, seq - window[0].seq + 1):
        stored = window[index]
        if verify and seat.state.seq > seat.quiet_from and stored.commit.at - seat.state.now > SILENCE_MS:
            _check_silence(seat, report)
        seat.folder.fold(seat.state, stored.seq, stored.commit)


def _check_silence(seat: _Seat, report: ReplayReport) -> None:
    if report.silences >= MAX_SILENT_CHECKS or seat.quiet_from == 0:
        return
    report.silences += 1
    due = next_commit(seat.stage, seat.state)
    if due:
        report.divergences.append(
            Divergence(seat.stage.name, seat.state.seq, seat.state.seq, [], [_text(event) for event in due])
        )


def _compare(seat: _Seat, stored: Stored, report: ReplayReport) -> None:
    decided = next_commit(seat.stage, seat.state)
    recorded = list(stored.commit.events)
    if [encode(event) for event in decided] != [encode(event) for event in recorded]:
        report.divergences.append(
            Divergence(
                seat.stage.name,
                stored.seq,
                stored.commit.in_seq,
                [_text(event) for event in recorded],
                [_text(event) for event in decided],
            )
        )


def _text(event: Event | Any) -> str:
    return encode(event).decode()
