"""The objects that the commits folded since the last look concern, for the presenter of the API server.

The presenter compares every shown object with the desired state, so a loss of this list loses nothing. Without a list,
nothing piles up.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from muster.events.refusals import Refusal
from muster.model.keys import Ref
from muster.model.problem import FieldProblem
from muster.told.readmodel.readstate import ReadState, Trouble, TroubleCode


class Touched(Struct):
    """Names of objects that may have to be written again. The reader clears the names."""

    jobs: dict[str, None] = field(default_factory=dict)
    queues: dict[str, None] = field(default_factory=dict)
    troubles: dict[str, None] = field(default_factory=dict)
    gangs: dict[str, None] = field(default_factory=dict)
    tree: bool = False
    nodes: bool = False
    """Nodes, or node pools, offer other amounts or labels."""
    surplus: bool = False
    """Queue objects may be there whose path is not."""
    gone: dict[str, None] = field(default_factory=dict)
    """Uids of Muster's objects that were taken away: earlier writes to these objects are void."""


class Marker:
    """Notes touched objects, for a reader that shows the objects; and the problems of objects."""

    def __init__(self, touched: Touched | None) -> None:
        self._touched = touched

    def jobs(self, *uids: str) -> None:
        if self._touched is not None:
            self._touched.jobs.update(dict.fromkeys(uids))

    def forget_job(self, uid: str) -> None:
        if self._touched is not None:
            self._touched.jobs.pop(uid, None)

    def queues(self, *paths: str) -> None:
        if self._touched is not None:
            self._touched.queues.update(dict.fromkeys(paths))

    def gangs(self, *keys: str) -> None:
        if self._touched is not None:
            self._touched.gangs.update(dict.fromkeys(key for key in keys if key))

    def tree(self) -> None:
        if self._touched is not None:
            self._touched.tree = True

    def nodes(self) -> None:
        if self._touched is not None:
            self._touched.nodes = True

    def surplus(self) -> None:
        if self._touched is not None:
            self._touched.surplus = True

    def took_away(self, uid: str) -> None:
        """One of Muster's objects is gone."""
        if self._touched is not None:
            self._touched.gone[uid] = None

    def trouble(
        self, state: ReadState, ref: Ref, code: TroubleCode, problems: Sequence[FieldProblem], *, most: int = 10
    ) -> None:
        """Something is wrong with an object; at most so many of the findings are kept."""
        self._trouble(state, Trouble(ref, code, tuple(problems[:most]), max(0, len(problems) - most)))

    def refused(self, state: ReadState, ref: Ref, refusal: Refusal) -> None:
        """A workload is refused a place in a queue."""
        self._trouble(state, Trouble(ref, refusal.reason, refusal=refusal))

    def _trouble(self, state: ReadState, trouble: Trouble) -> None:
        state.troubles[trouble.ref.uid] = trouble
        if self._touched is not None:
            self._touched.troubles[trouble.ref.uid] = None

    def clear(self, state: ReadState, uid: str) -> None:
        """The object has no problem any more."""
        state.troubles.pop(uid, None)
        if self._touched is not None:
            self._touched.troubles.pop(uid, None)
