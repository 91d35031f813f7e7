"""How often promised starts are kept: the read model folds a simulated log, and each promise is compared."""

from __future__ import annotations

from msgspec import Struct

from muster.core.stage import Folder
from muster.events.decisions import GangAdmitted
from muster.events.envelope import Stored
from muster.told.readmodel.model import ReadModel


class Promised(Struct, frozen=True):
    """A promise that was made. Times in ms."""

    at: int
    """Since the beginning of the log."""
    bound: int
    """The wait that it promised not to be exceeded."""
    wait: int
    """As it was; for one that was not over at the end, as long as it was seen to last."""
    over: bool
    """Whether the wait was over at the end."""

    @property
    def known(self) -> bool:
        return self.over or self.wait > self.bound

    @property
    def kept(self) -> bool:
        return self.wait <= self.bound


class Coverage:
    """Give it every commit; then ask it."""

    def __init__(self) -> None:
        model = ReadModel()
        self._state, self._folder = model.initial(), Folder(model)
        self._began = -1
        self._looked = 0
        self._open: dict[str, tuple[int, int]] = {}
        """uid -> (log time at which it was promised, the bound)"""
        self._settled: list[Promised] = []

    def fold(self, stored: Stored) -> None:
        """Hear one commit."""
        state = self._state
        self._folder.fold(state, stored)
        if self._began < 0:
            self._began = state.now
        if state.promises.next_at != self._looked:
            self._looked = state.promises.next_at
            for uid, wait in state.promises.waits.items():
                if wait.first and uid not in self._open:
                    self._open[uid] = (state.now, wait.first - state.now)
        for event in stored.commit.events:
            if isinstance(event, GangAdmitted) and event.ref.uid in self._open:
                at, bound = self._open.pop(event.ref.uid)
                self._settled.append(Promised(at - self._began, bound, state.now - at, over=True))

    def promised(self, since: int = 0, until: int = 2**62) -> list[Promised]:
        """The promises made in a span (ms since the beginning) of which it is known whether they were kept."""
        now = self._state.now
        lasting = [Promised(at - self._began, bound, now - at, over=False) for at, bound in self._open.values()]
        return [each for each in (*self._settled, *lasting) if since <= each.at < until and each.known]

    def percent(self, since: int = 0, until: int = 2**62) -> float | None:
        """How many of a hundred of those were kept; None where there were none."""
        found = self.promised(since, until)
        return 100 * sum(each.kept for each in found) / len(found) if found else None
