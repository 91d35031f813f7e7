"""The standing of a workload in the queues, and the decision that brings the standing in line with the facts.

Kinds of refusal for a workload without a place in the KAI queues are here, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from muster.core.objects.meta import queue_and_quota, quota_name
from muster.core.queueing.book import Shape
from muster.core.queueing.circles import set_aside
from muster.core.queueing.queues import Job, Queues, is_current, queued_at_of
from muster.core.queueing.sorterstate import SorterState
from muster.core.quota.demand import Scratch, chain_of, counted, demands_of, flavor_wait_ms, laid_out, nodes_of
from muster.core.quota.ledger.quotaledger import UNBOUNDED, Ledger, leaf_of
from muster.events.base import Cause
from muster.events.decisions import WorkloadDequeued, WorkloadQueued, WorkloadRefused
from muster.events.reasons import DequeueReason
from muster.events.refusals import NAMES, Refusal, RefusalReason
from muster.model.closed import total
from muster.model.demand import Demand
from muster.model.keys import root_of
from muster.model.quota import KAI_ROOT, OnFlavors, QuotaTree, flavors_text
from muster.model.text import clean, shorten
from muster.model.workload import Workload

# --- KAI queues -------------------------------------------------------------------------------------------------------


def kai_refusal(ledger: Ledger, workload: Workload, queue: str, quota: str) -> Refusal | None:
    """The refusal of a workload without a leaf. ``queue`` and ``quota``: from its labels. None where KAI has no part in
    the case.
    """
    own = quota or ledger.leaf_of.get(workload.ref.namespace, "")
    shown = clean(shorten(queue, 64))
    if queue and own:
        return Refusal("two_quotas", "by_label" if quota else "by_namespace", shown, own)
    if not queue:
        return None if quota else _with_leaves(Refusal("queue_label_missing"), ledger)
    disabled = ledger.trees[KAI_ROOT].disabled.get(queue)
    if disabled is not None:
        return Refusal("queue_unknown", "queue_disabled", shown, problem=disabled)
    if queue not in ledger.queues:
        return _with_leaves(Refusal("queue_unknown", "queue_missing", shown), ledger)
    below = ledger.nodes[ledger.queues[queue]].children
    names = tuple(path.rpartition("/")[2] for path in below[:NAMES])
    return Refusal("queue_unknown", "queue_has_children", shown, names=names, count=len(below))


def _with_leaves(refusal: Refusal, ledger: Ledger) -> Refusal:
    """The refusal with the names of leaf queues."""
    names = sorted(name for name, path in ledger.queues.items() if not ledger.nodes[path].children)
    return structs.replace(refusal, names=tuple(names[:NAMES]), count=len(names))


# --- standing ---------------------------------------------------------------------------------------------------------


_LEAVES: Mapping[RefusalReason, DequeueReason] = {
    "held": "held",
    **dict.fromkeys(("unbound", "no_tree", "two_quotas", "queue_label_missing", "queue_unknown"), "unbound"),
    **dict.fromkeys(("cannot_suspend", "unreadable", "set_aside"), "refused"),
}
"""{reason of a refusal: reason for leaving the queue}"""
total(_LEAVES, RefusalReason, "libs/muster/core/queueing/standing.py (_LEAVES)")

Standing = WorkloadQueued | WorkloadDequeued | WorkloadRefused


def standings(state: SorterState) -> Iterator[Standing]:
    """Every due change of standing."""
    rested = [uid for uid, until in state.queues.not_before.items() if until <= state.now and uid not in state.due]
    for uid in [*state.due, *rested]:
        decision = standing_of(state, uid)
        if decision is not None:
            yield decision


class _Enters(NamedTuple):
    """The leaf, demand and priority of a queueing."""

    leaf: str
    demand: Demand
    priority: int
    others: Sequence[Demand] = ()
    """Under further flavors, for a job without a place on the nodes of its first."""
    until: int = 0
    """Log time (ms) until which the job waits for the best of its flavors alone; 0 without such a wait."""


def standing_of(state: SorterState, uid: str) -> Standing | None:
    """The decision for a due change of standing; None without a change."""
    change = change_of(state, uid)
    if change is None:
        return None
    job, workload, cause = state.queues.jobs.get(uid), state.queues.workloads.get(uid), state.causes[uid]
    if isinstance(change, str) and job is not None:
        return WorkloadDequeued(cause=cause, ref=job.ref, attempt=job.attempt, queue=job.queue, reason=change)
    if isinstance(change, Refusal) and workload is not None:
        return WorkloadRefused(cause=cause, ref=workload.ref, refusal=change)
    assert isinstance(change, _Enters)
    assert workload is not None
    return _queue(state, workload, change, job, cause)


def change_of(state: SorterState, uid: str) -> DequeueReason | Refusal | _Enters | None:
    """The difference between the standing of a workload and the facts; None without a difference.

    A reason to leave the queue, a refusal, or the leaf, demand and priority to queue with.
    """
    queues = state.queues
    job, workload = queues.jobs.get(uid), queues.workloads.get(uid)
    queued = job is not None and job.status != "charged"
    asks = (
        workload is not None
        and not workload.deleting
        and workload.suspended
        and workload.phase in ("waiting", "suspending")
    )
    if not queued and not asks:
        return None
    leaf = leaf_of(queues.ledger, workload) if workload else None
    refusal = _refusal(state, workload, leaf) if workload is not None else None
    leaves = _why_leaves(workload, refusal) if queued else None
    if leaves is not None:
        return leaves
    if workload is None or not asks:
        return None
    if refusal is not None and uid not in queues.ledger.charges:
        return refusal if queues.refusals.get(uid) != refusal else None
    if leaf is None or queues.not_before.get(uid, 0) > state.now:
        return None
    return _enters(state, workload, leaf, job)


def may_be_proposed(state: SorterState, job: Job) -> bool:
    """Whether a waiting job may be tried now: unchanged since its queueing, and past its own pause."""
    return state.queues.not_before.get(job.ref.uid, 0) <= state.now and is_current(state.queues, job)


def _enters(state: SorterState, workload: Workload, leaf: str, job: Job | None) -> _Enters | None:
    """The terms of a new queueing; None where the workload is queued on these terms, or must not be queued."""
    uid = workload.ref.uid
    moves = _moves(state, uid)
    if uid in state.queues.ledger.charges and (job is None or uid in state.queues.resumed) and not moves:
        return None
    if state.queues.stale.get(uid) == workload.generation:
        return None
    priority = state.queues.priority_of(workload, leaf)
    demand, others, flavor_until = _demanded(state, workload, leaf, priority, job)
    unplaced = state.queues.unplaced.get(uid)
    if unplaced is not None and not unplaced.found and not (unplaced.short and _is_short(state, leaf, demand, uid)):
        terms = structs.replace(
            unplaced,
            queue=leaf,
            basis=workload.basis,
            priority=priority,
            placement=laid_out(state.queues.ledger.nodes, leaf),
            flavors=demand.flavors,
        )
        if unplaced == terms:
            return None
    wanted = (priority, leaf, demand)
    waits = state.queues.flavor_waits.get(uid, 0) == (flavor_until if flavor_until > state.now else 0)
    if job is not None and (job.priority, job.queue, job.demand) == wanted and not moves and waits:
        return None
    return _Enters(leaf, demand, priority, others, flavor_until)


def _demanded(
    state: SorterState, workload: Workload, leaf: str, priority: int, job: Job | None
) -> tuple[Demand, Sequence[Demand], int]:
    """The demand of a workload that waits, under the alternative of flavors to wait for; under the alternatives to try
    where this one has no room on the nodes; and until when (log time, ms) the job waits for its best flavors alone.
    """
    queues, uid = state.queues, workload.ref.uid
    demand = queues.demand_of(workload, leaf, priority)
    if not demand.flavors or (job is not None and job.status != "waiting"):
        return demand, (), queues.flavor_waits.get(uid, 0)
    claim = queues.ledger.claims.by_uid.get(uid)
    options = demands_of(queues.ledger.trees[root_of(leaf)], leaf, workload)
    if len(options) == 1 or (claim is not None and claim.firm):
        return demand, (), queues.flavor_waits.get(uid, 0)
    until = 0
    if wait := flavor_wait_ms(workload.labels):
        until = _queued_since(state, workload, job) + wait
        if until > state.now:
            best = (one for one in options if not _is_hopeless(queues.ledger, leaf, one))
            options = (next(best, options[0]),)
    return *best_of(queues, leaf, options, demand if job is not None else None, uid, state.now), max(until, 0)


def _queued_since(state: SorterState, workload: Workload, job: Job | None) -> int:
    """The queueing time of a workload, ms since the epoch."""
    before = job if job is not None else state.queues.unplaced.get(workload.ref.uid)
    return before.queued_at if before is not None and before.queued_at else queued_at_of(workload, state.now)


def _is_hopeless(ledger: Ledger, leaf: str, demand: Demand) -> bool:
    """Whether the demand alone is above a max of its path."""
    amounts, nodes = counted(demand), ledger.nodes
    limits = [nodes[path].limit for path in chain_of(leaf) if path in nodes]
    return any(amounts[name] > limit[name] for limit in limits for name in limit if name in amounts)


MOST_OTHERS = 8
"""The most further alternatives named to the gang admitter."""
HOPELESS, PASSED, BORROWS = 8, 4, 2
"""Ranks of alternatives: no release gives enough quota; the quota fits, and the nodes have no room; no guarantee covers
the demand.
"""


def best_of(
    queues: Queues, leaf: str, demands: Sequence[Demand], waits: Demand | None, uid: str, now: int
) -> tuple[Demand, Sequence[Demand]]:
    """The first of the alternatives that fits now, and the next that fit too, where gangs are placed.

    Where none fits: ``waits``, under which the job waits already, or an alternative with more right to wait for: owed
    before borrowed, borrowed before what has no room on the nodes, this before what no release can give.
    """
    ledger, passed, ranked = queues.ledger, queues.passed.get(uid, {}), list[tuple[int, int, Demand]]()
    free = _free(ledger, leaf)
    by_total = {name: asked for name, asked in demands[0].request.items() if "@" not in name}
    may_be_owed: bool | None = None
    fitting: list[Demand] = []
    for index, demand in enumerate(demands):
        if passed and flavors_text(demand.flavors) in passed:
            rank = PASSED
        elif demand.preemptible and any(demand.request[name] > free[name] for name in free if name in demand.request):
            rank = HOPELESS if _is_hopeless(ledger, leaf, demand) else 0
        elif (short := ledger.shortfall(leaf, demand, queues.proposed, now=now, uid=uid)) is not None:
            rank = HOPELESS if short.hopeless else 0
        else:
            fitting.append(demand)
            if not queues.places or len(fitting) > MOST_OTHERS:
                break
            continue
        if may_be_owed is None:  # The totals are the same under all alternatives.
            may_be_owed = ledger.owed(leaf, structs.replace(demand, request=by_total))
        if rank != HOPELESS:
            rank += _right_to(ledger, leaf, demand) if may_be_owed else BORROWS
        ranked.append((rank, -1 if demand == waits and rank < PASSED else index, demand))
    if fitting:
        return fitting[0], fitting[1:]
    return min(ranked, key=lambda row: row[:2])[2], ()


def _right_to(ledger: Ledger, leaf: str, demand: Demand) -> int:
    """0 for a demand that is owed, BORROWS for a borrower; 1 for a demand owed of any flavor, where other queues
    use too little of these flavors beyond their guarantees: no job leaves there.
    """
    if not ledger.owed(leaf, demand):
        return BORROWS
    if ledger.by_flavor(leaf, demand):
        return 0
    return int(any(ledger.lent(leaf, name) < asked for name, asked in demand.request.items() if "@" in name))


AT_ONCE = 32
"""The most jobs of a shape that change their flavors in one step."""


def give_way(state: SorterState) -> None:
    """Recheck the jobs that wait under one alternative of flavors and may start under another: the first that fit there
    together, queues in the order of their turns.
    """
    ledger, book, scratch = state.queues.ledger, state.queues.book, Scratch()
    trees = {tree.root: (tree, _free(ledger, tree.root)) for tree in ledger.trees.values() if tree.flavors}
    for _, queue in state.lineup.order if trees else ():
        if queue not in book.queues or (root := root_of(queue)) not in trees:
            continue
        tree, free = trees[root]
        claims = _may_claim(ledger, tree, queue)
        hopeful = [*_hopeful(state, tree, free, book.queues[queue], claims=claims)]
        for shape in sorted(hopeful, key=lambda shape: shape.waiting[0]) if len(hopeful) > 1 else hopeful:
            _rechecked(state, shape, scratch)


def _free(ledger: Ledger, path: str) -> dict[str, int]:
    """{resource by flavor: what the root above a path has free}"""
    tree, root = ledger.trees[root_of(path)], ledger.nodes[root_of(path)]
    used: Mapping[str, int] = ledger.used.get(root.path, {})
    return {name: root.limit.get(name, UNBOUNDED) - used.get(name, 0) for name in tree.flavored}


def _may_claim(ledger: Ledger, tree: QuotaTree, queue: str) -> bool:
    """At a glance: whether a node of the queue's path uses less than its guarantee of a resource with flavors."""
    if tree.rules.reclaim == "disabled":
        return False
    for path in chain_of(queue)[:-1]:
        node, used = ledger.nodes.get(path), ledger.used.get(path, {})
        for name in dict.fromkeys(tree.flavored.values()) if node is not None else ():
            if node is not None and used.get(name, 0) < node.owes.get(name, 0):
                return True
    return False


def _hopeful(
    state: SorterState, tree: QuotaTree, free: Mapping[str, int], keys: Iterable[str], *, claims: bool
) -> Iterator[Shape]:
    """At a glance: the waiting shapes with another alternative that may have room at the root, or that is within a
    guarantee while the present one is not. ``claims``: a guarantee of their path has something left.
    """
    shapes, ledger = state.queues.book.shapes, state.queues.ledger
    for key in keys:
        shape = shapes[key]
        if not shape.waiting or shape.open:
            continue
        others = tree.demands.get((key,))
        if others is None:
            others = _others(state, tree, key, shape)
        for _, parts in others:
            for name, asked in parts:
                if asked > free[name]:
                    break
            else:
                yield shape
                break
        else:
            if (
                claims
                and others
                and _right_to(ledger, shape.queue, shape.demand) != 0
                and any(_right_to(ledger, shape.queue, demand) == 0 for demand, _ in others)
            ):
                yield shape


Parts = Sequence[tuple[str, int]]


def _others(state: SorterState, tree: QuotaTree, key: str, shape: Shape) -> Sequence[tuple[Demand, Parts]]:
    """The other alternatives of a shape, with the amounts by flavor: kept with the tree, the same for all its jobs."""
    workload = state.queues.workloads.get(shape.waiting[0].uid)
    demands = demands_of(tree, shape.queue, workload) if workload is not None else ()
    others = [demand for demand in demands if demand.flavors != shape.demand.flavors]
    known = [(demand, [(name, asked) for name, asked in demand.request.items() if "@" in name]) for demand in others]
    if shape.demand.basis and workload is not None:
        tree.demands[key,] = known
    return known


def _rechecked(state: SorterState, shape: Shape, scratch: Scratch) -> None:
    """Recheck the first jobs of a shape. ``scratch``: the demands of jobs that start elsewhere."""
    queues = state.queues
    for place in shape.waiting[:AT_ONCE]:
        change = change_of(state, place.uid)
        if not isinstance(change, _Enters) or change.demand.flavors == shape.demand.flavors:
            return
        if queues.ledger.shortfall(shape.queue, change.demand, queues.proposed, now=state.now, uid=place.uid) is None:
            if queues.ledger.shortfall(shape.queue, change.demand, queues.proposed, scratch) is not None:
                return
            scratch.add(shape.queue, change.demand)
        state.due[place.uid], state.causes[place.uid] = None, Cause(state.seq, 0)


def _is_short(state: SorterState, leaf: str, demand: Demand, uid: str) -> bool:
    """Whether the job's quota is short now: jobs tried at the time of ``short`` may have released
    their charge since.
    """
    return state.queues.ledger.shortfall(leaf, demand, now=state.now, uid=uid) is not None


def _queue(state: SorterState, workload: Workload, enters: _Enters, job: Job | None, cause: Cause) -> WorkloadQueued:
    uid, leaf, demand, priority = workload.ref.uid, enters.leaf, enters.demand, enters.priority
    queued_at = rank = _queued_since(state, workload, job)
    if state.queues.order(leaf) == "learned":
        rank = state.learned.rank(workload, leaf, demand.request, queued_at)
    if behind := state.learned.behind(state.queues.ledger.rules_of(leaf), uid):
        rank += behind
    tree = state.queues.ledger.tree_of(leaf)
    until = enters.until if enters.until > state.now else 0
    late = tree is not None and enters.until and not until and demand != demands_of(tree, leaf, workload)[0]
    waited = flavor_wait_ms(workload.labels) if late else 0
    turns = _turns(tree, leaf, workload) if tree is not None and demand.flavors else {}
    return WorkloadQueued(
        cause=cause,
        ref=workload.ref,
        attempt=state.queues.ledger.attempts.get(uid, 0) + 1,
        queue=leaf,
        **demand.fields,
        priority=priority,
        queued_at=queued_at,
        rank=rank if rank != queued_at else 0,
        generation=workload.generation,
        nodes=nodes_of(tree, demand.flavors),
        flavor_until=until,
        flavor_waited=waited,
        turn=turns.get(flavors_text(demand.flavors), 0),
        others=tuple(
            OnFlavors(other.flavors, nodes_of(tree, other.flavors), turns.get(flavors_text(other.flavors), 0))
            for other in enters.others
        ),
    )


def _turns(tree: QuotaTree, leaf: str, workload: Workload) -> dict[str, int]:
    """{flavors: their place among the alternatives of a workload}"""
    return {flavors_text(one.flavors): turn for turn, one in enumerate(demands_of(tree, leaf, workload))}


def _moves(state: SorterState, uid: str) -> bool:
    """Whether the workload moves to other nodes under its last attempt. Such a job is queued with its charge, reserved
    again for the new attempt.
    """
    leaver = state.queues.ledger.claims.going.get(uid)
    return leaver is not None and leaver.moves and leaver.attempt >= state.queues.ledger.attempts.get(uid, 0)


def _refusal(state: SorterState, workload: Workload, leaf: str | None) -> Refusal | None:
    refusal = refusal_of(state.queues.ledger, workload, leaf)
    aside = state.circles.aside.get(workload.ref.uid) if refusal is None else None
    return set_aside(aside) if aside is not None else refusal


def refusal_of(ledger: Ledger, workload: Workload, leaf: str | None) -> Refusal | None:
    """Why a workload would be in no queue, whether it is in the cluster or not. ``leaf``: its quota, if any."""
    if workload.refusal is not None:
        return Refusal("cannot_suspend", problem=workload.refusal)
    if workload.wishes.hold:
        return Refusal("held", name=workload.wishes.by, text=workload.wishes.reason)
    if ledger.tree is None:
        return Refusal("no_tree")
    if leaf is not None:
        return None
    queue, named = queue_and_quota(quota_name(workload.labels))
    if KAI_ROOT in ledger.trees:
        refusal = kai_refusal(ledger, workload, queue, named)
        if refusal is not None:
            return refusal
    if named:
        return _misnamed(ledger, named)
    return Refusal("unbound", "namespace_unclaimed", ledger.tree.ref.key)


def _misnamed(ledger: Ledger, named: str) -> Refusal:
    """The reason why no work can belong to the quota named by a label."""
    paths = ledger.named.get(named, [])
    if not paths:
        return Refusal("unbound", "quota_missing", named)
    taking = [path for path in paths if not ledger.nodes[path].children]
    if not taking:
        return Refusal("unbound", "quota_has_children", paths[0])
    return Refusal("unbound", "quota_not_unique", named, names=tuple(taking[:NAMES]), count=len(taking))


def _why_leaves(workload: Workload | None, refusal: Refusal | None) -> DequeueReason | None:
    """The reason why a queued workload leaves; None where the workload stays."""
    if workload is None or workload.deleting:
        return "gone"
    if workload.phase == "finished":
        return "finished"
    if not workload.suspended:
        return "started_outside"
    return _LEAVES[refusal.reason] if refusal is not None else None
