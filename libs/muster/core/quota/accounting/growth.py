"""Growth and shrinking of Ray clusters that scale themselves: the accountant's answers to the bridge.

The requested growth is granted piece by piece. Each piece gets the first of its alternatives within limits and claims,
a placement group as a whole. The rest is denied once, with the refusing limit of each piece, and granted when there is
room. A piece within a guarantee claims this room (``quota/rayclaims.py``). Proposed jobs come before growth.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import structs

from muster.core.quota.accountantstate import AccountantState, Entry, OpenGrowth, Return
from muster.core.quota.accounting.rechecks import over_of, recheck, runs_as
from muster.core.quota.candidates import Basis, basis
from muster.core.quota.claims import is_down, times
from muster.core.quota.demand import Scratch, chain_of
from muster.core.quota.rayclaims import cost_of, demand_of_growth, may_grow
from muster.events.base import Cause, Decision
from muster.events.decisions import EvictionOrdered
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import (
    GateSet,
    GrowthDenied,
    GrowthGranted,
    GrowthOption,
    GrowthRefusal,
    GrowthRequested,
    GrowthWithdrawn,
    Recharge,
    WorkersKept,
)
from muster.model.demand import Demand, Shortfall
from muster.model.elastic import PENDING, Counts, ReplicaCost
from muster.model.keys import Position, Ref
from muster.model.resources import add_into, beyond, positive
from muster.model.workload import ChildState

# --- folds --------------------------------------------------------------------------------------------------------


def requested(state: AccountantState, at: Position, event: GrowthRequested) -> None:
    """A new request replaces the cluster's earlier request."""
    entry = state.entries.get(event.ref.uid)
    wanted = event.units or event.ref.uid in state.ledger.claims.by_uid
    if wanted and entry is not None and entry.attempt == event.attempt:
        state.growths[event.ref.uid] = OpenGrowth(event, Cause(at.seq, at.item))
    else:
        state.growths.pop(event.ref.uid, None)
    recheck(state, event.ref.uid)


def denied(state: AccountantState, _at: Position, event: GrowthDenied) -> None:
    growth = state.growths.get(event.ref.uid)
    if growth is not None and growth.asked.attempt == event.attempt:
        growth.denied = event


def started(state: AccountantState, child: ChildState) -> None:
    """The granted new cluster of an upgrade starts: its pods are charged as they are from here on."""
    if not child.held:
        state.opened.pop(child.ref.uid, None)


def pending_gone(state: AccountantState, cluster: str) -> str | None:
    """The new cluster of an upgrade is gone before it started: nothing is asked for it. Returns its service."""
    for growth in state.growths.values():
        if growth.asked.pending is not None and growth.asked.pending.uid == cluster:
            left = tuple(unit for unit in growth.asked.units if PENDING not in unit.groups)
            growth.asked = structs.replace(growth.asked, units=left, pending=None)
    return state.opened.pop(cluster, None)


def take_over(state: AccountantState, at: Position, entry: Entry, event: Recharge) -> None:
    """The grant from here on. A request on top of another grant is void."""
    uid = event.ref.uid
    if isinstance(event, GrowthGranted) and event.pending is not None:
        entry.upgrading, entry.incoming = event.pending.uid, beyond(event.grant, entry.request)
        if not state.presence.children.get(uid, {}).get(event.pending.uid):  # Else the cluster runs already.
            state.opened[event.pending.uid] = uid
        entry.outgoing, entry.outgoing_pods = dict(entry.request), entry.pods
    entry.groups, entry.request = dict(event.groups), event.grant
    entry.aside, entry.pods = event.aside, event.grant_pods
    state.growths.pop(uid, None)
    if isinstance(event, GrowthWithdrawn):
        state.returns.pop(uid, None)
        state.ledger.shrunk(uid, event.groups, at.at)
    if entry.cut and is_down(entry.groups, entry.cut):
        entry.cut = {}


def parts_ordered(state: AccountantState, event: EvictionOrdered) -> None:
    """An order to release workers."""
    for part in event.partial:
        entry = state.entries.get(part.ref.uid)
        if entry is not None and entry.attempt == part.attempt:
            entry.cut = dict(part.left)


def kept(state: AccountantState, at: Position, event: WorkersKept) -> None:
    """A cluster cannot release more: no claim awaits the rest. Workers under the order stay granted."""
    entry = state.entries.get(event.ref.uid)
    if event.unasked:
        given = state.returns.get(event.ref.uid)
        if given is not None and given.ordered.claimant is None and given.ordered.attempt == event.attempt:
            del state.returns[event.ref.uid]
        return
    if entry is not None and entry.attempt == event.attempt:
        entry.cut = {}
    state.ledger.victim_stays(event.ref.uid, event.attempt, at.at)


def gate_set(state: AccountantState, at: Position, event: GateSet) -> None:
    entry = state.entries.get(event.owner.uid)
    if event.granted and entry is not None and entry.attempt == event.attempt:
        state.returns[event.owner.uid] = Return(event, Cause(at.seq, at.item))


def gate_written(state: AccountantState, at: Position, event: EffectApplied | EffectFailed) -> None:
    """``maxReplicas`` of a cluster is lowered, or cannot be."""
    for uid, given in state.returns.items() if event.action == "gate" else ():
        if not given.done and given.cause == event.cause:
            if isinstance(event, EffectApplied):
                given.cause, given.done = Cause(at.seq, at.item), True
            else:
                del state.returns[uid]
            return


# --- decisions ----------------------------------------------------------------------------------------------------


Asked = tuple[Entry, OpenGrowth]
"""(the charge of a cluster, the growth that it asks for)"""


def withdrawals(state: AccountantState, scratch: Scratch) -> Iterator[Decision]:
    """Unused grants, once ``maxReplicas`` is lowered and the workers to be removed are gone."""
    for uid, given in state.returns.items():
        entry = state.entries.get(uid)
        if not given.done or entry is None or uid in state.due_release or _lives(state, given):
            continue
        removed = {
            name: entry.groups[name] - left
            for name, left in given.ordered.granted.items()
            if entry.groups.get(name, 0) > left
        }
        negative = {name: -count for name, count in removed.items()}
        common = _recharge(state, entry, negative, given.ordered.each)
        _charge(state, uid, common, scratch)
        yield GrowthWithdrawn(
            cause=given.cause,
            cluster=given.ordered.ref,
            removed=removed,
            claimant=given.ordered.claimant,
            **common,
        )


def _lives(state: AccountantState, given: Return) -> bool:
    """Whether a pod to be removed still exists."""
    return any(pod.uid in state.presence.pod_owner for pods in given.ordered.workers.values() for pod in pods)


def answers(state: AccountantState, scratch: Scratch, asked: Sequence[Asked]) -> Iterator[Decision]:
    """The grants for the growth of ``asking``; the highest priority first, among equals the first request."""
    for entry, growth in sorted(asked, key=lambda pair: (-state.priorities.get(pair[0].ref.uid, 0), pair[1].cause)):
        added, refusals = _fitting(state, entry, growth, scratch)
        if added:
            common = _recharge(state, entry, added, growth.asked.each, growth.asked.start)
            _charge(state, entry.ref.uid, common, scratch)
            yield GrowthGranted(
                cause=growth.cause,
                cluster=growth.asked.cluster,
                added=added,
                pending=growth.asked.pending if PENDING in added else None,
                **common,
            )
        elif refusals and _is_news(growth, refusals):
            yield _denial(entry, growth, refusals)


def owed(state: AccountantState, asked: Sequence[Asked]) -> Iterator[tuple[Ref, str, Demand]]:
    """(cluster, queue, charge) of the growth of ``asking``: of each piece the first alternative that a guarantee
    covers, as many times as covered.
    """
    for entry, growth in asked:
        tree = state.ledger.tree_of(entry.queue)
        if tree is None:
            continue
        given, charge = basis(state.ledger, entry.ref.uid), state.ledger.charges[entry.ref.uid]
        for unit in growth.asked.units:
            for option in (GrowthOption(unit.groups), *unit.otherwise):
                once = structs.replace(option, times=1)
                one = demand_of_growth(growth.asked, once, tree, charge)
                covered = _covered(given, entry.queue, one, unit.times * option.times)
                if covered:
                    yield entry.ref, entry.queue, times(one, covered)
                    break


def _covered(given: Basis, queue: str, one: Demand, most: int) -> int:
    """How many times a guarantee covers a demand, up to ``most``."""
    return bisect_left(range(1, most + 1), True, key=lambda count: not given.owed_at(queue, times(one, count)))


def asking(state: AccountantState) -> list[Asked]:
    """The growth to be answered now: of denied growth only where a piece may fit, or where its refusing limit does not
    count any more.
    """

    @cache  # For any number of clusters.
    def again(queue: str, path: str, resource: str, asked: int, of_min: bool) -> bool:
        room = state.ledger.room(queue, path, resource, of_min=of_min)
        return room is None or room >= asked or path not in chain_of(queue)

    def is_due(entry: Entry, denial: GrowthDenied | None) -> bool:
        shorts = [refusal.short for refusal in denial.refusals] if denial is not None else []
        return denial is None or any(
            again(entry.queue, short.path, short.resource, short.asked, short.of_min) for short in shorts
        )

    return [
        (entry, growth)
        for uid, growth in state.growths.items()
        if (entry := state.entries.get(uid)) is not None
        and uid not in state.due_change  # The grant builds on the charge of the next commit.
        and is_due(entry, growth.denied)
        and may_grow(state, entry, growth)
    ]


def _fitting(
    state: AccountantState, entry: Entry, growth: OpenGrowth, scratch: Scratch
) -> tuple[Counts, list[GrowthRefusal]]:
    """(replicas that fit, the refusals of the rest): unit by unit, alternative by alternative."""
    added: Counts = {}
    refusals: list[GrowthRefusal] = []
    for unit in growth.asked.units:
        left = unit.times
        if PENDING in unit.groups and added:
            continue  # A new cluster begins with its own size: it is asked for again, alone.
        for option in (GrowthOption(unit.groups), *unit.otherwise):
            if not left:
                break
            fits, short = _most(state, entry, growth, added, option.groups, left * option.times, scratch)
            added = _plus(added, option.groups, fits)
            left -= -(-fits // option.times)  # The cluster asks again for the rest of a part.
            if short is not None:
                refusals.append(GrowthRefusal(option.groups, short))
    return {name: count for name, count in sorted(added.items()) if count}, refusals


def _most(
    state: AccountantState,
    entry: Entry,
    growth: OpenGrowth,
    added: Counts,
    groups: Counts,
    times: int,
    scratch: Scratch,
) -> tuple[int, Shortfall | None]:
    """(how often the groups fit on top, the shortfall of one time more)."""
    low, high, short = 0, times, _shortfall(state, entry, growth, _plus(added, groups, times), scratch)
    if short is None:
        return times, None
    while low + 1 < high:  # What fits n times fits fewer times, too.
        middle = (low + high) // 2
        refusal = _shortfall(state, entry, growth, _plus(added, groups, middle), scratch)
        low, high, short = (middle, high, short) if refusal is None else (low, middle, refusal)
    return low, short


def _shortfall(
    state: AccountantState, entry: Entry, growth: OpenGrowth, added: Counts, scratch: Scratch
) -> Shortfall | None:
    """The first limit that refuses the additional charge."""
    uid = entry.ref.uid
    charge, claim = state.ledger.charges[uid], state.ledger.claims.by_uid.get(uid)
    common = _recharge(state, entry, added, growth.asked.each, growth.asked.start)
    pods = max(common["pods"] - charge.pods, 0)
    more = Demand(beyond(common["request"], charge.request), pods, charge.preemptible, jobs=0)
    own = uid if claim is not None and claim.is_for(uid, added) else ""
    short = state.ledger.shortfall(entry.queue, more, scratch, uid=own)
    return short or (_overused(state, entry, growth, added) if not more.request else None)


def _overused(state: AccountantState, entry: Entry, growth: OpenGrowth, added: Counts) -> Shortfall | None:
    """The shortfall of growth that runs already beyond its grant: granted only where no limit is passed."""
    for path in chain_of(entry.queue):
        costs = (growth.asked.each[group] for group in added)
        for name in sorted({name for cost in costs for name in cost.takes or cost.request}):
            room = state.ledger.headroom(path, name)
            if room is not None and room < 0:
                limit = state.ledger.limit(state.ledger.nodes[path], name) or 0
                return Shortfall(path, name, 0, limit - room, limit)
    return None


def _is_news(growth: OpenGrowth, refusals: list[GrowthRefusal]) -> bool:
    known = growth.denied.refusals if growth.denied is not None else ()
    return _told(known) != _told(refusals)


def _told(refusals: Iterable[GrowthRefusal]) -> list[tuple[Counts, str, str, int]]:
    """The parts of refusals worth an event: used amounts change all the time."""
    return [(refusal.groups, refusal.short.path, refusal.short.resource, refusal.short.asked) for refusal in refusals]


def _denial(entry: Entry, growth: OpenGrowth, refusals: list[GrowthRefusal]) -> GrowthDenied:
    first = refusals[0]
    return GrowthDenied(
        cause=growth.cause,
        ref=entry.ref,
        attempt=entry.attempt,
        queue=entry.queue,
        cluster=growth.asked.cluster,
        groups=first.groups,
        reason="exceeds_limit" if first.short.hopeless else "insufficient_quota",
        short=first.short,
        others=tuple(refusals[1:]),
    )


# --- amounts --------------------------------------------------------------------------------------------------------


def _plus(counts: Counts, groups: Counts, times: int) -> Counts:
    total = dict(counts)
    for name, count in groups.items():
        total[name] = total.get(name, 0) + count * times
    return total


def _recharge(
    state: AccountantState, entry: Entry, added: Counts, costs: Mapping[str, ReplicaCost], start: Counts | None = None
) -> dict[str, Any]:
    """The common fields of a grant and its withdrawal. ``added``: replicas on top; negative counts are taken away.
    ``start``: the replicas of a new cluster, where the cluster scales itself.
    """
    tree = state.ledger.tree_of(entry.queue)
    groups, grant, aside, pods = dict(entry.groups), dict(entry.request), dict(entry.aside), entry.pods
    for name, count in added.items():
        share = costs[name]
        if name == PENDING:
            groups = dict(start or {})
        else:
            groups[name] = max(groups.get(name, 0) + count, 0)
        if name != PENDING and not (groups[name] or share.hosts):
            del groups[name]  # No pod may grow by this size any more.
        cost = share.counted(tree)
        add_into(grant, cost_of(tree, share, name, entry.flavors), count)
        add_into(aside, beyond(share.runs(tree), cost), count)
        pods += count * share.hosts
    grant, aside = positive(grant), positive(aside)
    request = runs_as(state, entry, grant, aside)
    return {
        "ref": entry.ref,
        "attempt": entry.attempt,
        "queue": state.ledger.charges[entry.ref.uid].queue,
        "groups": dict(sorted(groups.items())),
        "grant": grant,
        "aside": aside,
        "grant_pods": max(pods, 0),
        "request": request,
        "pods": max(pods, state.presence.live_pods(entry.ref.uid), 0),
        "over": over_of(state, entry, request, grant),
    }


def _charge(state: AccountantState, uid: str, common: Mapping[str, Any], scratch: Scratch) -> None:
    """Put the new charge into the scratch."""
    before = state.ledger.charges[uid]
    scratch.add(before.queue, before.demand, -1)
    scratch.add(before.queue, Demand(common["request"], common["pods"], before.preemptible))
