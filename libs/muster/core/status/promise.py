"""When a waiting job starts, as far as that can be promised: a pure function of the read model, a uid and a time."""

from __future__ import annotations

from collections.abc import Iterable

from muster.core.codes.codes import CODES
from muster.core.codes.values import Promise
from muster.core.promising.projection import Projection
from muster.core.readmodel.promisefolds import running
from muster.core.readmodel.state import ReadState
from muster.core.status.job import job_status


def promise_of(state: ReadState, uid: str, now: int) -> Promise:
    """What a job may rely on. O(waiting + charges)."""
    found = promises_of(state, (uid,), now)
    return found[uid]


def promises_of(state: ReadState, uids: Iterable[str], now: int) -> dict[str, Promise]:
    """The same for several at once, which costs hardly more than for one; ``now``: ms since the epoch."""
    now = max(now, state.now)
    found = {uid: _without(state, uid) for uid in uids}
    wanted = [uid for uid, promise in found.items() if not promise.why]
    if not wanted:
        return found
    promises = state.promises
    projection = Projection(state.queues, running(state), promises.durations, now)
    projection.run(until=wanted[0] if len(wanted) == 1 else "")
    calibration, scale = promises.calibration, promises.scale(now)
    for uid in wanted:
        projected = projection.found.get(uid)
        found[uid] = Promise(why="endless")
        if projected is not None:
            start, latest = now + scale.middle(projected.wait), now + scale.bound(projected.wait)
            found[uid] = Promise(start, latest, calibration.kept + calibration.broken, calibration.kept)
    return found


def _without(state: ReadState, uid: str) -> Promise:
    """Why nothing can be promised to it, before anything is projected."""
    job, promises = state.queues.jobs.get(uid), state.promises
    if job is None or job.status == "charged":
        return Promise(why="not_waiting")
    if not CODES[job_status(state, uid).code].turn:
        return Promise(why="standing")
    if not promises.durations.known():
        return Promise(why="few_runs")
    return Promise(why="" if promises.calibration.ready else "few_waits")
