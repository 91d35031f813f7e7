"""Waiting jobs that have had less service than running ones that keep their work, and the victims for them."""

from __future__ import annotations

from muster.core.preemption.owed import nodes_for
from muster.core.preemption.state import PreemptorState
from muster.core.queueing.book import Shape
from muster.core.queueing.queues import Job
from muster.core.quota import service
from muster.core.quota.reclaim import Basis, Run, basis
from muster.core.reclaim import profiles
from muster.model.keys import root_of


def underserved(state: PreemptorState) -> tuple[Shape, Job, list[str]] | None:
    """The first that could be admitted so, and the uids of its victims; None when there is none."""
    if not state.served:
        return None
    most, ledger = max(state.served.values()), state.queues.ledger
    found: list[tuple[tuple[int, int, int, str], Shape, Job]] = []
    for queue in state.queues.book.queues:
        rules = ledger.rules_of(queue)
        asked = rules.least_attained_ms and rules.reclaim != "disabled"
        for shape, job in state.claimants(state.parked(queue)) if asked else ():
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
        chosen = _victims(state, mine, job, level)
        if chosen:
            return shape, job, chosen
    return None


def _victims(state: PreemptorState, given: Basis, job: Job, level: int) -> list[str]:
    """Of those above its level the highest first, then the one that loses least."""
    root, runs = root_of(job.queue), dict[str, list[Run]]()
    for uid, above in state.served.items():
        started = state.started[uid]
        fresh = state.now - started.kept <= service.FRESH_MS and root_of(started.leaf) == root
        if fresh and above > level and started.run.priority <= job.priority:
            runs.setdefault(started.leaf, []).append(started.run._replace(priority=-above))
    for work in runs.values():
        work.sort()
    candidates = state.candidates(job.queue).only(runs)
    return profiles.underserved(given, job.queue, job.demand, candidates, nodes_for(state, job)).uids if runs else []
