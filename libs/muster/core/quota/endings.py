"""The end of a charge: the proof that nothing of a workload runs any more, and how long to wait where no proof can
come. The end of a claim without an admission, and of the wait for a victim.

One rule for all kinds. A kind says only whether its controller's last status is at rest (``settled``).
"""

from __future__ import annotations

from muster.core.observed.presence import PATIENCE_MS
from muster.core.quota import rayclaims
from muster.core.quota.accountantstate import AccountantState, Entry, moved
from muster.core.quota.claims import LEAVES_WITHIN_MS, Claim
from muster.core.quota.demand import chain_of, demand_of
from muster.core.quota.ledger.quotaledger import leaf_of, waits
from muster.core.workloads.registry import child_shards
from muster.events.claims import ClaimOutcome
from muster.events.effects import FailureReason
from muster.events.reasons import ReleaseReason
from muster.model.closed import total
from muster.model.resources import total_of
from muster.model.workload import Workload

CHILD_GRACE_MS = 60_000
"""How long an ended workload stays charged without proof: its named child was never seen (counted from the moment at
which nothing of it is seen), or its controller was not seen to act on the resume (counted from the resume: a controller
that acted while the watcher was away has left nothing, and a slow one makes its pods within this time).
"""

SETTLE_GRACE_MS = 30_000
"""How long nothing is seen of a suspended workload before its charge ends, where its controller can prove no end."""

_FAILED: dict[FailureReason, ReleaseReason] = {
    "gone": "gone",
    "spec_changed": "superseded",
    "superseded": "superseded",
    "withdrawn": "superseded",
    "refused": "resume_failed",
}
total(_FAILED, FailureReason, "libs/muster/core/quota/endings.py (_FAILED)")


def release_reason(state: AccountantState, entry: Entry) -> ReleaseReason | None:
    """Why the charge is over; None while in force."""
    uid = entry.ref.uid
    if state.presence.occupies(uid) or uid in state.standalone:
        return None
    workload = state.workloads.get(uid)
    if workload is None or (workload.deleting and workload.phase != "finished"):
        return (entry.suspension or "gone") if _certain(state, entry) else None
    if workload.phase == "finished":
        return "finished" if _certain(state, entry) else None
    if not workload.suspended:
        return None
    if not entry.resumed_rv:
        if entry.deferred:
            return "no_nodes"
        if entry.failed is not None:
            return _FAILED[entry.failed]
        return None if entry.admitted else _withdrawn(state, entry, workload)
    if workload.rv > entry.resumed_rv and workload.phase == "waiting":
        over = (workload.settled and entry.acted) or _waited(state, entry, SETTLE_GRACE_MS)
        if entry.leaving == "moved" and _is_about_to_be_queued(state, entry, workload):
            return None
        return (entry.suspension or "suspended_outside") if over else None
    return None


def comes_back(state: AccountantState, entry: Entry, workload: Workload) -> bool:
    """Whether a workload suspended to move still wants to run at its charged leaf."""
    here = leaf_of(state.ledger, workload) == entry.queue
    return here and workload.waits and "admissions" not in state.resting(entry.queue)


def _is_about_to_be_queued(state: AccountantState, entry: Entry, workload: Workload) -> bool:
    """Whether a workload suspended to move has no new attempt yet for its reserved charge."""
    queued = state.ledger.attempts.get(entry.ref.uid, 0) > entry.attempt
    return not queued and comes_back(state, entry, workload) and not _waited(state, entry, SETTLE_GRACE_MS)


def _withdrawn(state: AccountantState, entry: Entry, workload: Workload) -> ReleaseReason | None:
    """Why a reservation should not be admitted any more."""
    if state.ledger.attempts.get(entry.ref.uid, 0) > entry.attempt or moved(state, entry):
        return "superseded"
    if workload.wishes.hold:
        return "held"
    return "paused" if "admissions" in state.resting(entry.queue) else None


def note_acted(state: AccountantState, entry: Entry) -> None:
    """Remember whether the controller was seen to act on the newest resume, and whether it has a finalizer there.

    The controller writes each status on a certain resourceVersion of the object. A status at rest after a status at
    work proves that the controller has seen the suspension between the two. A status at rest from before the resume
    proves nothing: after a quick second suspension the controller has nothing to write. The
    controller writes the end of a job, so an end proves that the controller has seen the resume.
    """
    workload = state.workloads.get(entry.ref.uid)
    entry.made = entry.made or state.presence.live_pods(entry.ref.uid) > 0  # Also of a workload that is gone.
    if workload is None:
        return
    if workload.guarded or not workload.deleting:
        entry.guarded = workload.guarded
    if not entry.resumed_rv or workload.rv < entry.resumed_rv:
        entry.acted = entry.made = False
        return
    if not workload.settled or workload.phase == "finished":
        entry.acted = True
    elif not workload.suspended:
        entry.acted = False


def idle_deadline(state: AccountantState, entry: Entry) -> int | None:
    """Log time at which a charge without any sign of life counts as over; None where the charge does not wait
    for this.
    """
    if not entry.idle_since:
        return None
    workload = state.workloads.get(entry.ref.uid)
    if workload is not None and workload.phase == "waiting" and not workload.ends:
        return entry.idle_since + SETTLE_GRACE_MS
    begin = entry.since if _is_seen(state, entry) else entry.idle_since
    over = max(entry.idle_since, begin + CHILD_GRACE_MS)
    return min(over, entry.idle_since + PATIENCE_MS) if _is_let_go(state, entry) else over


def _is_let_go(state: AccountantState, entry: Entry) -> bool:
    """Whether the controller has taken its finalizer off the deleted object: no pods will come, and the news of older
    children comes within PATIENCE_MS, once everything is listed.
    """
    workload = state.workloads.get(entry.ref.uid)
    return entry.guarded and state.synced and (workload is None or not workload.guarded)


def note_idle(state: AccountantState, entry: Entry) -> None:
    """Remember since when nothing is seen of a charge without a certain end; a proof may never come."""
    workload = state.workloads.get(entry.ref.uid)
    over = workload is None or workload.ends
    waits = workload is not None and workload.phase == "waiting" and 0 < entry.resumed_rv < workload.rv
    lives = state.presence.occupies(entry.ref.uid) or entry.ref.uid in state.standalone
    # The end of a suspended workload may never be proven: others suspended the workload before its controller acted on
    # the resume, or its operator writes no condition for a suspension.
    unproven = workload is not None and waits and (workload.settled or workload.switch.annotation)
    idle = not lives and (over or unproven)
    entry.idle_since = (entry.idle_since or state.now) if idle else 0


def _certain(state: AccountantState, entry: Entry) -> bool:
    """Whether an ended workload surely holds nothing: its child was seen and is gone, a list newer than the end lacks
    the child, or no child was ever named.

    The controller must also have acted on the resume, or have made pods: otherwise the pods of a deleted workload may
    still come. Without this proof the end is certain at the deadline.
    """
    if _is_seen(state, entry) and (entry.acted or entry.made or not entry.resumed_rv):
        return True
    over_at = idle_deadline(state, entry)
    return over_at is not None and state.now >= over_at


def _is_seen(state: AccountantState, entry: Entry) -> bool:
    """Whether the end of the child is known, or there was none."""
    return state.last_child.get(entry.ref.uid) == entry.child or not entry.child or _is_unlisted(state, entry)


def _is_unlisted(state: AccountantState, entry: Entry) -> bool:
    """Whether the children were listed after the end of the workload, whose child no reader has seen.

    A child is made before its workload ends; both kinds are versioned by one store.
    """
    workload = state.workloads.get(entry.ref.uid)
    if workload is None or workload.phase != "finished":
        return False
    return min((state.listed.get(shard, 0) for shard in child_shards(entry.ref.kind)), default=0) >= workload.rv


def _waited(state: AccountantState, entry: Entry, grace_ms: int) -> bool:
    return bool(entry.idle_since) and state.now >= entry.idle_since + grace_ms


# --- claims -----------------------------------------------------------------------------------------------------------


def why_over(state: AccountantState, claim: Claim) -> ClaimOutcome | None:
    """Why a claim ends without an admission, at any time; None while in force."""
    if claim.growth is not None:
        return rayclaims.why_growth_over(state, claim) or (None if _can_be_served(state, claim) else "unsatisfiable")
    workload = state.workloads.get(claim.uid)
    if workload is None or not workload.suspended or workload.phase not in ("waiting", "suspending"):
        return "gone"
    outcome = unjustified(state, workload, claim.queue)
    if outcome is not None:
        return outcome
    tree, priority = state.ledger.tree_of(claim.queue), state.priorities.get(claim.uid)
    if demand_of(tree, workload, priority, queue=claim.queue, flavors=claim.demand.flavors) != claim.demand:
        return "changed"
    if not _can_be_served(state, claim):
        return "unsatisfiable"
    return None


def unjustified(state: AccountantState, workload: Workload, queue: str) -> ClaimOutcome | None:
    """Why no quota should be held for a waiting workload, after any wait and with any guarantee."""
    if not waits(workload):
        return "held"
    if leaf_of(state.ledger, workload) != queue:
        return "moved"
    return "paused" if "admissions" in state.resting(queue) else None


def _can_be_served(state: AccountantState, claim: Claim) -> bool:
    """Whether the limits, and the guarantee behind the claim, would admit the claimant on an empty cluster."""
    ledger, request = state.ledger, claim.demand.request
    above = [ledger.nodes[path] for path in chain_of(claim.queue) if path in ledger.nodes]
    if any(amount > node.limit[name] for node in above for name, amount in request.items() if name in node.limit):
        return False
    if claim.kind == "guarantee" and ledger.by_shares(claim.queue):
        return True  # A fair share moves with the requests of other queues.
    if claim.kind == "service":
        return bool(ledger.rules_of(claim.queue).least_attained_ms)
    if claim.kind == "age":
        return ledger.rules_of(claim.queue).ages
    if claim.kind != "guarantee":
        return ledger.nodes[claim.queue].preempts
    names = ledger.guaranteed_of(claim.queue, request)
    return any(
        all(
            request[name] <= node.guaranteed.get(name, 0)
            or ("@" in name and node.of_any_flavor(total_of(name), request) >= 0)
            for name in names
        )
        for node in above[:-1]
    )


def is_lost(state: AccountantState, uid: str) -> bool:
    """Whether a workload has pods on a node that is not ready: their end is not seen until the node is back."""
    unready = state.forest.unready
    return bool(unready) and any(name in unready for name in state.members.on(state.presence.family(uid)))


def overdue_at(entry: Entry | None) -> int | None:
    """Log time (ms) at which a victim counts as overdue, after a suspension or an expected end."""
    if entry is not None and entry.ends_by:
        return entry.ends_by
    suspended = entry is not None and entry.leaving and entry.suspended_rv
    return entry.suspended_at + LEAVES_WITHIN_MS if entry is not None and suspended else None
