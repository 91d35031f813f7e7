"""A decision of a stage, step by step: the folded commits, the state before the decision, the decision of this
version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct, field

from muster.core.cell.deciders import DECIDERS
from muster.core.cell.seats import AnySeat, Seat
from muster.core.stage import StageState, Violation
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.ports import Snapshot
from muster.runtime.logkeeping.snapshotting import decode_state
from muster.runtime.replaying.replay import LAG, state_after
from muster.runtime.replaying.states import StateDifference, copy_of, differences


class Step(Struct):
    """What :class:`Stepper` found at a position."""

    stage: str
    seq: int
    in_seq: int
    """The last sequence folded before it decided."""
    at: int
    ruleset: int
    before: int
    """The sequence of its state: that of its decision before, or of the first commit that is still held."""
    folded: list[Stored]
    """What came since, and was folded before it decided."""
    changed: list[StateDifference]
    """What that changed in its state (``one`` before, ``other`` after)."""
    state: StageState
    recorded: list[Event] | None
    """What the log has there; None when the commit is none of this stage's decisions."""
    decided: list[Event]
    """What this build decides there."""
    differs: list[StateDifference] = field(default_factory=list)
    """Where the states after both differ (``one`` as recorded)."""
    deadline: int | None = None
    """Log time at which it may have more to say though nothing happens."""
    violations: list[Violation] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return self.recorded is None or self.recorded == self.decided


class Stepper:
    """Feed it a log from its beginning, up to and with the commit in question; then ask for the step."""

    def __init__(self, stage: str, base: Sequence[Snapshot] = (), state: StageState | None = None) -> None:
        """``base``: the states before the first commit, for a log without its first generations.

        ``state``: the stage's state before the first commit.
        """
        self._seat: AnySeat = Seat(DECIDERS[stage](), state)
        for kept in base:
            if kept.stage == stage:
                self._seat = Seat(self._seat.stage, decode_state(kept.body, type(self._seat.state)))
        self._window: deque[Stored] = deque()
        """What the state has not folded yet."""
        self._last: Stored | None = None

    def feed(self, stored: Stored) -> None:
        """Take the next commit."""
        last = self._last
        if last is not None and self._decided(last):
            self._fold(last.seq)
        elif len(self._window) > LAG:
            self._fold(self._window[LAG // 2].seq)
        self._window.append(stored)
        self._last = stored

    def _decided(self, stored: Stored) -> bool:
        return stored.commit.stage == self._seat.stage.name and stored.commit.kind == "decision"

    def _fold(self, seq: int) -> list[Stored]:
        folded = []
        while self._window and self._window[0].seq <= seq:
            stored = self._window.popleft()
            if self._seat.state.seq == 0:
                self._seat.state.seq = stored.seq - 1
            self._seat.fold(stored)
            folded.append(stored)
        return folded

    def step(self) -> Step:
        """The step at the last fed commit: its decision, or the decision that would follow the commit."""
        last = self._last
        assert last is not None, "nothing was fed"
        decision = self._decided(last)
        in_seq = last.commit.in_seq if decision else last.seq
        stage, state = self._seat.stage, self._seat.state
        before = copy_of(state)
        folded = self._fold(in_seq)
        decided = self._seat.decisions()
        recorded = list[Event](last.commit.events) if decision else None
        return Step(
            stage=stage.name,
            seq=last.seq,
            in_seq=in_seq,
            at=last.commit.at,
            ruleset=state.ruleset,
            before=before.seq,
            folded=folded,
            changed=differences(before, state, limit=500),
            state=state,
            recorded=recorded,
            decided=decided,
            differs=state_after(stage, state, last, decided) if decision and recorded != decided else [],
            deadline=stage.next_deadline(state),
            violations=stage.check(state),
        )
