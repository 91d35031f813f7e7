"""The list of candidates for eviction: for each leaf its running work, in the order in which it is evicted."""

from __future__ import annotations

from bisect import bisect_left, insort

from muster.core.preemption.state import PreemptorState, Started
from muster.core.quota.demand import counted
from muster.core.quota.ledger.ledger import UNBOUNDED
from muster.core.quota.reclaim import FIRST, Run
from muster.core.quota.state import can_suspend
from muster.model.keys import root_of
from muster.model.resources import add_into

EVICTION_MS = 300_000
"""Each eviction of a workload counts like so much work that it would lose: work evicted before goes later."""


def enlist(state: PreemptorState, uid: str) -> None:
    """Bring a workload's place among the runs in line with the facts."""
    started, workload = state.started.get(uid), state.queues.workloads.get(uid)
    if started is None and (workload is None or workload.suspended):
        return
    charge = state.queues.ledger.charges.get(uid)
    if started is not None and started.listed:
        runs = state.runs[started.leaf]
        del runs[bisect_left(runs, started.run)]
        if not runs:
            del state.runs[started.leaf]
        started.listed = False
        state.served.pop(uid, None)
        state.alike.remove(started.leaf, started.run, started.gives)
        _sum(state, started, -1)
        weigh(state, started.leaf)
    if charge is None or workload is None:
        state.started.pop(uid, None)
        state.ends.stopped(uid)
        return
    if started is None:
        state.ends.began(workload.ref, charge, state.now)
    since = started.since if started is not None else state.now
    job = state.queues.jobs.get(uid)
    priority = job.priority if job is not None else state.queues.priority_of(workload)
    came = job.queued_at if job is not None else workload.queued_at or workload.created
    # Work beyond its grant is the first of its priority to be evicted.
    kept = max(since, min(workload.checkpointed_at, state.now))
    spared = EVICTION_MS * state.suffered(uid) if kept == since else 0
    run = Run(priority, FIRST if charge.over else spared - kept, -came, workload.ref.key, uid)
    started = state.started[uid] = Started(charge.queue, run, since, kept)
    stays = uid not in state.leaving and uid not in state.shrinking
    if charge.preemptible and stays and can_suspend(workload):
        insort(state.runs.setdefault(charge.queue, []), started.run)
        started.listed, started.gives = True, counted(charge.demand)
        state.alike.add(started.leaf, started.run, started.gives)
        _sum(state, started, 1)
        weigh(state, started.leaf)
        rules = state.queues.ledger.rules_of(charge.queue)
        level = state.service.gives_way(rules, uid, charge.request, kept - since) if rules.least_attained_ms else 0
        if level:
            state.served[uid] = level


def weigh(state: PreemptorState, queue: str) -> None:
    """Note whether a leaf is outranked."""
    state.outranked.pop(queue, None)
    if is_outranked(state, queue):
        state.outranked[queue] = None


def is_outranked(state: PreemptorState, queue: str) -> bool:
    """Whether work of lower priority may be suspended in a leaf than that of a job that waits there, or found no
    place.
    """
    line, found = state.queues.book.lines.get(queue), state.unplaced_in.get(root_of(queue), {}).get(queue)
    negated = min(line[0][0].below if line else UNBOUNDED, found[0][0] if found else UNBOUNDED)
    return queue in state.runs and state.runs[queue][0].priority < -negated


def _sum(state: PreemptorState, started: Started, times: int) -> None:
    by_priority = state.sums.setdefault(started.leaf, {})
    sums = by_priority.setdefault(started.run.priority, {})
    add_into(sums, started.gives, times)
    if not sums:
        del by_priority[started.run.priority]
        if not by_priority:
            del state.sums[started.leaf]
