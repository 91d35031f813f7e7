"""Waiting jobs that have had less service than running ones that keep their work, and who gives way to them."""

from __future__ import annotations

from functools import partial

from muster.core.preemption.state import PreemptorState
from muster.core.queueing.book import Shape
from muster.core.queueing.queues import Job
from muster.core.quota import service
from muster.core.quota.reclaim import Basis, basis
from muster.core.quota.service import victims
from muster.model.keys import root_of
from muster.model.resources import Vector, add_into


def underserved(state: PreemptorState) -> tuple[Shape, Job, list[str]] | None:
    """The first that could be let in so, and the uids of who gives way; None when there is nobody."""
    if not state.served:
        return None
    most, ledger = max(state.served.values()), state.queues.ledger
    found: list[tuple[tuple[int, int, int, str], Shape, Job]] = []
    for queue in state.queues.book.queues:
        rules = ledger.rules_of(queue)
        asked = rules.least_attained_ms and rules.reclaim != "disabled"
        for shape, job in state.claimants(queue) if asked else ():
            if not shape.demand.preemptible:
                continue
            level = state.service.level(rules, job.ref.uid)
            if level < most and state.may_be_next(job) and state.is_refused(shape):
                found.append(((-job.priority, level, job.rank, job.ref.uid), shape, job))
    found.sort(key=lambda each: each[0])
    given: Basis | None = None
    for (_, level, _, uid), shape, job in found:
        given = given or basis(ledger)
        mine = basis(ledger, uid) if uid in ledger.claims.by_uid else given
        chosen = _victims(state, mine, job, shape, level)
        if chosen:
            return shape, job, chosen
    return None


def _victims(state: PreemptorState, given: Basis, job: Job, shape: Shape, level: int) -> list[str]:
    """Of those above its level the highest first, then who loses least."""
    root = root_of(job.queue)
    runs = [state.started[uid].run for uid, above in state.served.items() if above > level]
    runs = [run for run in runs if run.priority <= job.priority]
    runs = [run for run in runs if state.now - state.started[run.uid].kept <= service.FRESH_MS]
    runs = [run for run in runs if root_of(state.started[run.uid].leaf) == root]
    total: Vector = {}
    for run in runs:
        add_into(total, state.started[run.uid].gives)
    ledger = given.ledger
    for short in ledger.refusals(job.queue, shape.demand, given.leaving, held=given.held):
        if total.get(short.resource, 0) < short.missing:
            return []
    runs.sort(key=lambda run: (-state.served[run.uid], run))
    return victims(given, job.queue, shape.demand, [run.uid for run in runs], partial(state.may_evict, queue=job.queue))
