"""Replay: fold a recorded log to each decision's ``in_seq``, decide again, and compare byte for byte.

A replay has nothing that could touch a cluster: it reads commits and drives pure stages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from muster.core.cell.deciders import DECIDERS
from muster.core.cell.seats import Seat
from muster.core.docket import Docket, Judge
from muster.core.stage import Stage, StageState, Violation
from muster.events.base import Event
from muster.events.envelope import Commit, Stored
from muster.events.registry import encode
from muster.events.system import LeaderStarted
from muster.ports import Snapshot
from muster.runtime.logkeeping.snapshotting import decode_state
from muster.runtime.replaying.states import StateDifference, copy_of, differences

SILENCE_MS = 15_000
"""A stage that folded a position this long before anything else came, and said nothing, had nothing due there. Longer
than a lease lasts: a leader that was held up for as long has lost it, and begins to lead again."""

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
    state: list[StateDifference] = field(default_factory=list)
    """Where the state after what was recorded (``one``) differs from the state after what is decided now; of the
    first divergence only."""

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


class _Judged(Seat[Any]):
    """One decider while a log is replayed."""

    def __init__(self, stage: Stage[Any], state: StageState | None = None) -> None:
        super().__init__(stage, state)
        self.quiet_from = 0
        """Position up to which silence proves nothing: the stage was not leading, or waited for its own decision."""


class Replayer:
    """Replays a log, fed commit by commit. ``stages``: only these; all when empty.

    ``base``: the states before the first commit, for a log without its first generations.
    """

    def __init__(
        self,
        *,
        verify: bool = True,
        silences: bool = True,
        check_every: int = 500,
        stages: Collection[str] = (),
        base: Sequence[Snapshot] = (),
    ) -> None:
        self.report = ReplayReport()
        self._verify = verify
        self._silences = silences
        self._check_every = check_every
        self._seats = {name: _Judged(make()) for name, make in DECIDERS.items() if not stages or name in stages}
        self._window: deque[Stored] = deque()
        self._judge = Judge(Docket())
        for kept in base[:1]:
            begun = decode_state(kept.body, StageState)
            self._judge = Judge(begun.docket, begun.log_id, begun.generation)
        for kept in base:
            if kept.stage in self._seats:
                seat = self._seats[kept.stage]
                self._seats[kept.stage] = _Judged(seat.stage, decode_state(kept.body, type(seat.state)))

    @property
    def states(self) -> dict[str, StageState]:
        """Stage -> its state; complete after :meth:`finish`."""
        return {name: seat.state for name, seat in self._seats.items()}

    def feed(self, stored: Stored, *, judged: bool = True) -> None:
        """Take the next commit. ``judged``: false for one that is only folded, not decided again."""
        stored = self._judge.hear(stored)
        report, commit = self.report, stored.commit
        self._window.append(stored)
        report.commits += 1
        report.events += len(commit.events)
        seat = self._seats.get(commit.stage)
        if seat is not None and commit.kind == "decision":
            verify = self._verify and judged
            _fold_to(seat, self._window, commit.in_seq, report, verify=verify and self._silences)
            if verify:
                report.decisions += 1
                _compare(seat, stored, report)
            # It has spoken at in_seq, however late; what came between that and its decision it had not folded.
            if seat.quiet_from:
                seat.quiet_from = stored.seq - 1
        elif seat is not None and any(isinstance(event, LeaderStarted) for event in commit.events):
            _fold_to(seat, self._window, stored.seq, report, verify=False)
            seat.quiet_from = stored.seq
        if report.commits % self._check_every == 0:
            _trim(self._seats, self._window, report)
            self._check()

    def _check(self) -> None:
        for seat in self._seats.values():
            self.report.violations += seat.stage.check(seat.state)

    def finish(self) -> ReplayReport:
        """Fold every stage to the end of the fed commits; the report."""
        for seat in self._seats.values():
            _fold_to(seat, self._window, self._window[-1].seq if self._window else 0, self.report, verify=False)
        self._check()
        return self.report


def replay(
    commits: Iterable[Stored],
    *,
    verify: bool = True,
    silences: bool = True,
    check_every: int = 500,
    stages: Collection[str] = (),
    base: Sequence[Snapshot] = (),
) -> ReplayReport:
    """Replay a log. With ``verify`` every recorded decision is made again, and (``silences``) silent positions are
    sampled. ``stages``: only these; all when it is empty. ``base``: the states the commits begin with.
    """
    replayer = Replayer(verify=verify, silences=silences, check_every=check_every, stages=stages, base=base)
    for stored in commits:
        replayer.feed(stored)
    return replayer.finish()


def _trim(seats: dict[str, _Judged], window: deque[Stored], report: ReplayReport) -> None:
    """Let stages that fell behind catch up with all but the newest commits; forget what all have folded."""
    newest = window[-1].seq
    for seat in seats.values():
        if newest - seat.state.seq > LAG:
            _fold_to(seat, window, newest - LAG // 2, report, verify=False)
    oldest = min(seat.state.seq for seat in seats.values())
    while window and window[0].seq <= oldest:
        window.popleft()


def _fold_to(seat: _Judged, window: deque[Stored], seq: int, report: ReplayReport, verify: bool) -> None:
    if not window or seat.state.seq >= seq:
        return
    if seat.state.seq == 0 and window[0].seq > 1:
        seat.state.seq = window[0].seq - 1
    start = seat.state.seq - window[0].seq + 1
    for index in range(start, seq - window[0].seq + 1):
        stored = window[index]
        if verify and seat.state.seq > seat.quiet_from and stored.commit.at - seat.state.now > SILENCE_MS:
            _check_silence(seat, report)
        seat.fold(stored)


def _check_silence(seat: _Judged, report: ReplayReport) -> None:
    if report.silences >= MAX_SILENT_CHECKS or seat.quiet_from == 0:
        return
    report.silences += 1
    due = seat.decisions()
    if due:
        report.divergences.append(
            Divergence(seat.stage.name, seat.state.seq, seat.state.seq, [], [_text(event) for event in due])
        )


def _compare(seat: _Judged, stored: Stored, report: ReplayReport) -> None:
    decided = seat.decisions()
    recorded = list[Event](stored.commit.events)
    if encode(decided) != encode(recorded):
        report.divergences.append(
            Divergence(
                seat.stage.name,
                stored.seq,
                stored.commit.in_seq,
                [_text(event) for event in recorded],
                [_text(event) for event in decided],
                [] if report.divergences else state_after(seat.stage, seat.state, stored, decided),
            )
        )


def state_after(stage: Stage[Any], state: StageState, stored: Stored, decided: list[Event]) -> list[StateDifference]:
    """Where the state of a stage after a recorded decision differs from the one after what is decided now."""
    after = []
    for events in (stored.commit.events, tuple(decided)):
        copy = copy_of(state)
        commit = Commit(
            commit_id="",
            stage=stage.name,
            shard="0",
            kind="decision",
            at=stored.commit.at,
            in_seq=state.seq,
            events=events,  # type: ignore[arg-type]
        )
        Seat(stage, copy).fold(Stored(state.seq + 1, commit))
        after.append(copy)
    return differences(after[0], after[1])


def _text(event: Event | Any) -> str:
    return encode(event).decode()
