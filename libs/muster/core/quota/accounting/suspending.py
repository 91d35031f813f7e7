"""Jobs suspended for their own sake: an admitted job does not come to run, or has lost too many of its pods.

A job placed by kube-scheduler has a PodGroup; its pods with a node are counted. The condition of a PodGroup is no
proof: after True it never says False again. A kube-scheduler that dies after binding the pods does not write it. A
refused order is not repeated at once.

Overuse: a job runs without an admission, or beyond its grant, while its quota is above its max. Where the tree sets
``muster.dev/overuse-timeout``, the excess is taken back after this time. A Ray cluster first releases the workers
beyond its grant, and runs on. Whole jobs are suspended last, and queued: the youngest job first, no more
jobs than needed. The new cluster of an upgrade is no overuse of the serving one: the bridge holds the new cluster until
the quota is granted. A pause of evictions pauses all of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from muster.core.objects.kaiqueue import pod_group_name
from muster.core.quota.accountantstate import AccountantState, Entry, Judged, can_suspend
from muster.core.quota.demand import asks_of, chain_of
from muster.core.quota.ledger.kaitimes import NEVER, grace_ms, is_whole
from muster.core.stage import put
from muster.events.decisions import SuspensionOrdered
from muster.events.elastic import SurplusOrdered
from muster.model.problem import FieldProblem, problem
from muster.model.resources import Vector, add_into, beyond, lowest, positive, total_of
from muster.model.workload import together

Why = Literal["running_timeout", "no_pods", "unschedulable", "stale_gang"]

UNPLACED_MS = 5_000
"""The least time that a gang without places keeps its quota: kube-scheduler may make room, or try again."""

STAYS_MS = 600_000
"""How long a workload is left alone after a failed suspension; doubled each time, ..."""
STAYS_DOUBLED = 5
"""... so many times: victims that leave together with a stuck victim are not suspended over and over."""


def stays_ms(times: int) -> int:
    """How long a workload is left alone after this many failed suspensions, ms."""
    return STAYS_MS << min(max(times - 1, 0), STAYS_DOUBLED)


def ends_at(state: AccountantState, entry: Entry) -> int | None:
    """Log time of the next suspension of the job unless something happens; None without a suspension ahead."""
    return min([at for _, at in _ends(state, entry)], default=None)


def reason_due(state: AccountantState, entry: Entry) -> Why | None:
    """Why the job should be suspended now; None where its controller cannot suspend the job."""
    workload = state.workloads.get(entry.ref.uid)
    if workload is None or not can_suspend(workload):
        return None
    return next((why for why, at in _ends(state, entry) if at <= state.now), None)


def _ends(state: AccountantState, entry: Entry) -> Iterator[tuple[Why, int]]:
    if entry.since and not entry.leaving:
        times: tuple[tuple[Why, int | None], ...] = (
            ("running_timeout", _timeout_at(state, entry)),
            ("no_pods", _lacking_at(state, entry)),
            ("unschedulable", _unplaced_at(state, entry) if entry.unbound_since else None),
        )
        for why, at in times:
            if at is not None:
                yield why, max(at, entry.spared_until)
    stale_at = _stale_at(state, entry) if entry.short_since else None
    if stale_at is not None:
        yield "stale_gang", max(stale_at, entry.spared_until)


def refused(entry: Entry, now: int) -> None:
    """An order to suspend the job was refused."""
    entry.refusals += 1
    entry.spared_until = now + stays_ms(entry.refusals)


# --- it takes too long to run --------------------------------------------------------------------------------------


def _timeout_at(state: AccountantState, entry: Entry) -> int | None:
    limit = state.ledger.rules_of(entry.queue).running_timeout_ms
    return entry.since + limit if limit and not entry.ran else None


LOOKS = 32
"""The first look for a refusal of pods is after this part of ``muster.dev/start-timeout``; the time doubles."""


def note_lack(state: AccountantState, entry: Entry) -> None:
    """Remember since when the workload lacks pods, pods that it does not run without, and all pods.

    A job with a succeeded pod may make fewer pods. A Ray cluster that scales itself runs with its least size.
    """
    workload, pods = state.workloads.get(entry.ref.uid), state.presence.live_pods(entry.ref.uid)
    lacks, least = workload is not None and entry.since > 0 and not entry.leaving and can_suspend(workload), 1
    if workload is not None and pods:
        most, least = state.scaling.pods_of(workload)
        lacks = lacks and pods < most and not entry.succeeded
    elif entry.ran and not entry.made:
        lacks = False  # Its pods are not seen.
    entry.lacks_since = (entry.lacks_since or state.now) if lacks else 0
    entry.small_since = (entry.small_since or state.now) if lacks and pods < least else 0
    entry.podless_since = (entry.podless_since or state.now) if lacks and not pods else 0
    if not lacks:
        entry.looks, entry.refused = 0, False


def _lacking_at(state: AccountantState, entry: Entry) -> int | None:
    """A job with pods that run, or with a succeeded pod, is suspended only where the cluster refuses the others."""
    idle = 0 if entry.succeeded else entry.podless_since
    since = entry.small_since if entry.refused else idle
    limit = state.ledger.rules_of(entry.queue).start_timeout_ms
    return since + limit if limit and since else None


def look_at(state: AccountantState, entry: Entry) -> int | None:
    """Log time of the next look for a refusal of the pods; None where no pod is lacking."""
    limit = state.ledger.rules_of(entry.queue).start_timeout_ms
    return entry.lacks_since + (limit << entry.looks) // LOOKS if limit and entry.lacks_since else None


def looked(state: AccountantState, entry: Entry) -> None:
    """A look is ordered: the next one is in the future."""
    entry.looks += 1
    while (at := look_at(state, entry)) is not None and at <= state.now:
        entry.looks += 1


# --- kube-scheduler does not place it ------------------------------------------------------------------------------


def judged_of(state: AccountantState, entry: Entry) -> Judged | None:
    """The verdict of kube-scheduler on the gang of a job in this attempt.

    The name of the PodGroup identifies the job: every user of a namespace can write owner and annotations. The attempt
    is unknown for a gang that ran before the log began, and where a user has removed the annotation. The PodGroup of an
    earlier attempt is removed before the next resume.
    """
    judged = state.judged.get(f"{entry.ref.namespace}/{pod_group_name(entry.ref)}")
    if judged is None or 0 not in (entry.attempt, judged.attempt, entry.attempt - judged.attempt):
        return None
    return judged


def note_unbound(state: AccountantState, entry: Entry) -> None:
    """Remember since when fewer pods have a node than must start together; for a gang that has run, since when no pod
    has a node.
    """
    if not (entry.together or state.judged or state.members.grouped):
        entry.unbound_since = 0
        return
    judged, workload = judged_of(state, entry), state.workloads.get(entry.ref.uid)
    if judged is not None:
        entry.together = judged.minimum
    elif not entry.together and workload is not None and _names_its_own(state, entry):
        entry.together = together(workload.pod_sets)  # The PodGroup was gone before the charge.
    lacks = bound_of(state, entry) < (min(entry.together, 1) if entry.ran else entry.together)
    entry.unbound_since = (entry.unbound_since or state.now) if lacks else 0


def _names_its_own(state: AccountantState, entry: Entry) -> bool:
    owners = state.presence.family(entry.ref.uid)
    return pod_group_name(entry.ref) in [state.members.grouped.get(owner) for owner in owners]


def bound_of(state: AccountantState, entry: Entry) -> int:
    """The number of the job's pods with a node."""
    owners = state.presence.family(entry.ref.uid)
    return sum(state.members.sets(owners).values())


def _unplaced_at(state: AccountantState, entry: Entry) -> int | None:
    """Soon after kube-scheduler has reported no places; without a report, after the pods had no nodes for too long.

    For a job that has run, only once none of its live pods has a node: the controller's new pods may be fewer than
    ``minCount`` for good.
    """
    if entry.ran and not state.presence.live_pods(entry.ref.uid):
        return None
    judged = judged_of(state, entry)
    if judged is not None and judged.lacks_since and not entry.ran:
        return max(judged.lacks_since, entry.since) + max(state.native_grow_ms, UNPLACED_MS)
    return max(entry.unbound_since, entry.since) + max(state.native_hold_ms, state.native_grow_ms)


def said_of(state: AccountantState, entry: Entry, why: Why) -> FieldProblem | None:
    """The lack of pods, since when. For a gang without places, the verdict of kube-scheduler, or else its progress."""
    if why == "no_pods":
        if entry.podless_since:
            return problem("", "no_pods", seconds=(state.now - entry.podless_since) // 1000)
        seconds, pods = (state.now - entry.small_since) // 1000, state.presence.live_pods(entry.ref.uid)
        return problem("", "rest_refused", seconds=seconds, pods=pods)
    if why != "unschedulable":
        return None
    judged = judged_of(state, entry)
    if judged is not None and judged.lacks_since and not entry.ran:
        return problem("", "said", said=judged.text)
    span_s = (state.now - max(entry.unbound_since, entry.since)) // 1000
    pods, bound = state.presence.live_pods(entry.ref.uid), bound_of(state, entry)
    return problem("", "few_have_nodes", seconds=span_s, bound=bound, pods=pods, together=entry.together)


# --- a gang that was whole has lost pods ---------------------------------------------------------------------------


def note_short(state: AccountantState, entry: Entry) -> None:
    """Remember since when a gang that was whole lacks needed pods."""
    uid, workload = entry.ref.uid, state.workloads.get(entry.ref.uid)
    runs = workload is not None and can_suspend(workload) and not entry.leaving
    if workload is None or not runs or grace_ms(state.ledger, entry.queue, workload) == NEVER:
        entry.short_since = 0
        return
    owners = state.presence.family(uid)
    sets = state.members.sets(owners)
    entry.whole = entry.whole or is_whole(workload, sets)
    short = entry.whole and bool(sets) and not is_whole(workload, sets)
    lacks = short and not any(owner in state.members.done for owner in owners)
    entry.short_since = (entry.short_since or state.now) if lacks else 0


def _stale_at(state: AccountantState, entry: Entry) -> int | None:
    workload = state.workloads.get(entry.ref.uid)
    return entry.short_since + grace_ms(state.ledger, entry.queue, workload) if workload is not None else None


# --- overuse ----------------------------------------------------------------------------------------------------------


def note_overuse(state: AccountantState, entry: Entry) -> None:
    """Remember since when the job overuses its admission, and the time at which the excess is taken back."""
    uid, limit = entry.ref.uid, state.ledger.rules_of(entry.queue).overuse_ms
    if not _uses(state, entry):
        entry.over_since = entry.reduced_at = 0
    elif not entry.over_since:
        entry.over_since = state.now
    at = max(max(entry.over_since, entry.reduced_at) + limit, entry.spared_until)
    put(state.overuse, uid, at if limit and entry.over_since and not entry.leaving else None)


def taken_back(state: AccountantState, ordered: set[str]) -> Iterator[SurplusOrdered | SuspensionOrdered]:
    """The orders due now: workers beyond a grant, then whole jobs. ``ordered``: uids of jobs suspended in this commit
    for another reason.
    """
    if not any(at <= state.now for at in state.overuse.values()):
        return
    excess: dict[str, Vector] = {}
    mine = [state.entries[uid] for uid in state.overuse if uid not in ordered]
    for entry in sorted(mine, key=lambda entry: (not _has_surplus(entry), -entry.over_since, entry.ref.key)):
        uid, whole = entry.ref.uid, entry.reduced_at > 0 or not _has_surplus(entry)
        workload = state.workloads.get(uid)
        if workload is None or "evictions" in state.resting(entry.queue) or (whole and not can_suspend(workload)):
            continue
        chain = [path for path in chain_of(entry.queue) if path in state.ledger.nodes]
        for path in chain:
            if path not in excess:
                excess[path] = _excess(state, path, ordered)
        uses = _uses(state, entry)
        if not any(excess[path].get(name, 0) > 0 for path in chain for name in uses):
            continue
        over = {name: max(excess[path].get(name, 0) for path in chain) for name in uses}
        gives = state.ledger.charges[uid].request if whole else lowest(uses, over)
        for path in chain:  # A younger job goes first, even before its time.
            add_into(excess[path], gives, -1)
        if state.overuse[uid] > state.now:
            continue
        cause = state.causes.get(uid, entry.cause)
        if whole:
            yield SuspensionOrdered(cause=cause, ref=entry.ref, attempt=entry.attempt, reason="overuse")
        else:
            yield SurplusOrdered(
                cause=cause, ref=entry.ref, attempt=entry.attempt, queue=entry.queue, surplus=positive(gives)
            )


def reduced(state: AccountantState, entry: Entry) -> None:
    """Workers beyond the grant are on their way out: the job itself is left alone for as long again."""
    entry.reduced_at = state.now
    note_overuse(state, entry)


def _has_surplus(entry: Entry) -> bool:
    """Whether workers beyond the grant may go, before the whole job does."""
    return bool(entry.fixed or entry.groups) and not (entry.bypassed or entry.reduced_at)


def _uses(state: AccountantState, entry: Entry) -> Vector:
    """The part of the charge that was not admitted, without the new cluster of an upgrade, and without what goes by
    itself: the pods of a RayJob's last try, beside the cluster of its next one.
    """
    charge, workload = state.ledger.charges.get(entry.ref.uid), state.workloads.get(entry.ref.uid)
    if charge is None:
        return {}
    uses = charge.request if entry.bypassed else charge.over
    spared = [state.presence.going(entry.ref.uid)]
    if workload is not None and workload.outgoing:
        spared.append(asks_of(state.ledger.tree_of(entry.queue), workload))
    parts = [name for name in uses if "@" in name]
    for amounts in spared:
        uses = beyond(uses, amounts | {name: amounts.get(total_of(name), 0) for name in parts})
    return uses


def _excess(state: AccountantState, path: str, ordered: set[str]) -> Vector:
    """How far a node is above its max without what leaves or goes by itself; negative amounts below the max."""
    used = state.ledger.used.get(path, {})
    excess = {name: used.get(name, 0) - limit for name, limit in state.ledger.nodes[path].limit.items()}
    if any(amount > 0 for amount in excess.values()):
        for uid, entry in state.entries.items():
            if path in chain_of(entry.queue):
                leaves = entry.leaving or uid in ordered
                add_into(excess, state.ledger.charges[uid].request if leaves else state.presence.going(uid), -1)
    return excess
