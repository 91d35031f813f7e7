"""When a waiting job starts, as far as that can be promised: a pure function of the read model, a uid and a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from muster.core.codes.codes import CODES
from muster.core.codes.values import NoPromise, Promise
from muster.core.promising.calibration import Scale
from muster.core.promising.projection import Projected, Projection
from muster.core.readmodel.promisefolds import running
from muster.core.readmodel.state import ReadState
from muster.core.status.job import job_status


def promise_of(state: ReadState, uid: str, now: int) -> Promise:
    """What a job may rely on. O(waiting + charges)."""
    found = promises_of(state, (uid,), now)
    return found[uid]


def promises_of(
    state: ReadState, uids: Iterable[str], now: int, *, foreseen: Mapping[str, Projected] | None = None
) -> dict[str, Promise]:
    """The same for several at once, which costs hardly more than for one; ``now``: ms since the epoch.

    ``foreseen``: the queues played forward already.
    """
    now = max(now, state.now)
    found = {uid: _without(state, uid) for uid in uids}
    wanted = [uid for uid, promise in found.items() if not promise.why]
    if not wanted:
        return found
    promises = state.promises
    if foreseen is None:
        projection = Projection(state.queues, running(state), promises.durations, now)
        projection.run(until=wanted[0] if len(wanted) == 1 else "")
        foreseen = projection.found
    scale = promises.scale(now)
    for uid in wanted:
        projected = foreseen.get(uid)
        found[uid] = Promise(why="endless") if projected is None else _promised(state, scale, projected.wait, now)
    return found


def promised(state: ReadState, wait: int, now: int) -> Promise:
    """What a projected wait (ms) is worth, for a job that is not in the queues."""
    why = _unknown(state)
    return Promise(why=why) if why else _promised(state, state.promises.scale(now), wait, now)


def _promised(state: ReadState, scale: Scale, wait: int, now: int) -> Promise:
    calibration = state.promises.calibration
    start, latest = now + scale.middle(wait), now + scale.bound(wait)
    return Promise(start, latest, calibration.kept + calibration.broken, calibration.kept)


def _unknown(state: ReadState) -> NoPromise | Literal[""]:
    """Why no projection is worth anything yet; empty where one is."""
    if not state.promises.durations.known():
        return "few_runs"
    return "" if state.promises.calibration.ready else "few_waits"


def _without(state: ReadState, uid: str) -> Promise:
    """Why nothing can be promised to it, before anything is projected."""
    job = state.queues.jobs.get(uid)
    if job is None or job.status == "charged":
        return Promise(why="not_waiting")
    if not CODES[job_status(state, uid).code].turn:
        return Promise(why="standing")
    return Promise(why=_unknown(state))
