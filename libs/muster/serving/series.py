"""Use against guarantee over time: a point for each change, thinned with age so that a month costs as much as a day."""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Mapping

from msgspec import Struct

from muster.model.resources import Vector
from muster.model.text import instant
from muster.serving import shapes
from muster.told.readmodel.readstate import ReadState

MOST_POINTS = 1_200
"""Points that are kept; beyond this number, every second point of the older half is removed."""
APART_MS = 1_000


class Level(Struct, frozen=True, order=True):
    """The use of every quota from a moment on."""

    seq: int
    at: int
    used: Mapping[str, Vector]


class UseSeries:
    """The series of one log. The points before the start of the process are added later."""

    def __init__(self) -> None:
        self._points: list[Level] = []
        self._lock = threading.Lock()

    def note(self, state: ReadState, last: int) -> int:
        """Note the use of now, once a second of log time at most; ``last``: log time of the last note."""
        if state.now - last < APART_MS:
            return last
        used = {path: dict(vector) for path, vector in state.queues.ledger.used.items()}
        with self._lock:
            insort(self._points, Level(state.seq, state.now, used), key=lambda level: level.seq)
            if len(self._points) > MOST_POINTS:
                half = MOST_POINTS // 2
                self._points[:half] = self._points[:half:2]
        return state.now

    def of(self, queue: str, resource: str, state: ReadState, moment: shapes.MomentView) -> shapes.SeriesView:
        """The series of one quota, up to a state, by the tree of the moment."""
        node = state.queues.ledger.nodes.get(queue)
        least = node.guaranteed.get(resource, 0) if node is not None else 0
        limit = node.limit.get(resource) if node is not None else None
        with self._lock:
            levels = [level for level in self._points if level.seq <= state.seq]
        points: list[shapes.PointView] = []
        for level in levels:
            used = level.used.get(queue, {}).get(resource, 0)
            if not points or points[-1].used != used or level is levels[-1]:
                points.append(shapes.PointView(level.seq, instant(level.at), used, least, limit))
        return shapes.SeriesView(moment, queue, resource, points)
