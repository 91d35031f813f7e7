"""New nodes of node pools: the nodes missing for a gang, and the jobs that wait for new nodes.

A ``Growing`` serves a single commit: nodes promised to a gang are not promised to the next. A job with quota and
without a place either keeps its quota and waits for nodes, or releases the quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from muster.core.gang.admitterstate import AdmitterState, Reservation, Vain, queued_as
from muster.core.gang.jobplaces import asks_of
from muster.core.placement.needs import NodeClass, Slot, enter
from muster.core.placement.nodeledger import Node, NodeLedger
from muster.core.placement.place import place, refused_by
from muster.core.placement.view import Ask, View
from muster.events.base import Decision
from muster.events.decisions import GangAwaitingNodes, GangDeferred
from muster.events.facts import NodePoolsGone, NodePoolsObserved, Synced
from muster.events.growing import NodesRequestWithdrawn, for_whom
from muster.model.keys import Position
from muster.model.places import Shortage
from muster.model.placing import HOSTNAME
from muster.model.pools import Growth, NodePool, PoolNodes, PoolRefusal, PoolRefusalReason
from muster.model.quota import Flavors
from muster.model.resources import add_into
from muster.model.workload import PodSet

# --- growing ----------------------------------------------------------------------------------------------------------


Counts = Mapping[str, int]
"""{pool: nodes more}"""


class Growing:
    """The nodes that pools may still add. ``pools`` is empty where no valid pool is declared."""

    def __init__(self, state: AdmitterState) -> None:
        self._state = state
        self.pools = [pool for pool in state.pools.values() if pool.refusal is None]
        self._has: dict[str, int] | None = None
        self._promised: dict[str, dict[str, int]] | None = None
        """job or gang -> {pool: promised nodes}"""
        self._total: dict[str, int] = {}

    def plan(self, view: View, asks: Sequence[Ask], whose: str, gangs: tuple[str, ...]) -> Growth | list[PoolRefusal]:
        """The nodes missing for a gang; where no pool can help, the refusal of each pool.

        ``whose``: uid of the job, or the gang that represents ``gangs``, which start together.
        """
        refusals: list[PoolRefusal] = []
        left = self._left(whose)
        for provisioning, pools in self._by_class(bool(gangs)):
            closed = self._closed(provisioning, pools, whose, bool(gangs))
            if closed:
                refusals += closed
                continue
            least = _least(view, asks, pools, left)
            if least is not None and not least[0]:
                return []  # In this order of search the gang has its places: no new nodes are needed.
            if least is not None:
                growth = _growth(asks, pools, *least, provisioning, gangs)
                self._promise(whose, {added.pool: added.nodes for added in growth.pools})
                return growth
            refusals += [self._refusal(view, asks, pool, pools, left, whose) for pool in pools]
        return sorted(refusals, key=lambda refusal: refusal.pool)

    def _by_class(self, pods_exist: bool) -> list[tuple[str, list[NodePool]]]:
        by_class: dict[str, list[NodePool]] = {}
        for pool in self.pools:
            # Without a provisioner, nodes are added for existing pods without a node.
            by_pods = pods_exist and self._state.unserved
            by_class.setdefault("" if by_pods else pool.provisioning, []).append(pool)
        return sorted(by_class.items(), key=lambda entry: entry[1][0].name)

    def _closed(self, provisioning: str, pools: list[NodePool], whose: str, pods_exist: bool) -> list[PoolRefusal]:
        """Why nodes of this class cannot be asked for at all now."""
        failed = self._state.in_vain.get(whose, Vain(0))
        why: PoolRefusalReason
        if not provisioning and not pods_exist:
            why = "needs_pods"
        elif provisioning and self._state.unserved:
            why = "not_served"
        elif failed.until > self._state.now and any(pool.name in failed.pools for pool in pools):
            return [
                PoolRefusal(pool.name, "in_vain", needs=failed.pools.get(pool.name, 0), until=failed.until)
                for pool in pools
            ]
        else:
            return []
        return [PoolRefusal(pool.name, why) for pool in pools]

    def _refusal(
        self, view: View, asks: Sequence[Ask], pool: NodePool, others: list[NodePool], left: Counts, whose: str
    ) -> PoolRefusal:
        """The reason why a pool cannot help, together with the other pools of its class."""
        pods = sum(ask.count for ask in asks)
        least = _least(view, asks, [pool, *(other for other in others if other is not pool)], {**left, pool.name: pods})
        if least is not None:
            has, promised = self._existing()[pool.name], self._promised_to_others(whose).get(pool.name, 0)
            return PoolRefusal(pool.name, "full", pool.most, has, promised, least[0].get(pool.name, 0))
        code, detail = _obstacle(view, asks, pool)
        odd = next((ask.rules.unsupported for ask in asks if ask.rules.unsupported is not None), None)
        odd = odd if code == "unsupported" else None
        return PoolRefusal(pool.name, "unsuitable", obstacle=code, detail=detail, unsupported=odd)

    # --- what is left -----------------------------------------------------------------------------------------

    def _left(self, whose: str) -> dict[str, int]:
        """{pool: the most nodes still to be asked for}."""
        has, promised = self._existing(), self._promised_to_others(whose)
        return {pool.name: max(pool.most - has[pool.name] - promised.get(pool.name, 0), 0) for pool in self.pools}

    def _existing(self) -> dict[str, int]:
        if self._has is None:
            has = {pool.name: 0 for pool in self.pools}
            for node in self._state.ledger.nodes.values():
                for pool in self.pools if node.uid else ():
                    has[pool.name] += pool.labels.items() <= node.labels.items()
            self._has = has
        return self._has

    def _promised_to_others(self, whose: str) -> dict[str, int]:
        if self._promised is None:
            self._promised = {}
            for key, nodes in promises(self._state).items():
                self._promise(key, nodes)
        own = self._promised.get(whose, {})
        return {pool: count - own.get(pool, 0) for pool, count in self._total.items()}

    def _promise(self, whose: str, nodes: dict[str, int]) -> None:
        assert self._promised is not None
        add_into(self._total, self._promised.get(whose, {}), -1)
        add_into(self._total, nodes)
        self._promised[whose] = nodes


def promises(state: AdmitterState) -> dict[str, dict[str, int]]:
    """{job or gang that waits for nodes of pools: {pool: promised nodes}}."""
    promised: dict[str, dict[str, int]] = {}
    for uid, reservation in state.reservations.items():
        if reservation.growth is not None and not reservation.deferred:
            promised[uid] = {added.pool: added.nodes for added in reservation.growth.pools}
    for key in state.pods.open:
        growth = state.pods.gangs[key].growth
        if growth is not None:
            promised[growth.key] = {added.pool: added.nodes for added in growth.pools}
    return promised


# --- nodes that might be ----------------------------------------------------------------------------------------


def _least(
    view: View, asks: Sequence[Ask], pools: Iterable[NodePool], left: Counts
) -> tuple[dict[str, int], dict[str, int]] | None:
    """({pool: nodes}, {ask: pods on new nodes}) with the fewest nodes; None where all left nodes are not enough."""
    pods = sum(ask.count for ask in asks)
    pools = list(pools)
    counts = {pool.name: min(left[pool.name], pods) for pool in pools}
    best = _try(view, asks, pools, counts)
    if best is None:
        return None
    for pool in pools:
        low, high = 0, counts[pool.name]
        while low < high:
            middle = (low + high) // 2
            tried = _try(view, asks, pools, {**counts, pool.name: middle})
            if tried is None:
                low = middle + 1
            else:
                high, best = middle, tried
        counts[pool.name] = high
    return {name: count for name, count in counts.items() if count}, best


def _try(view: View, asks: Sequence[Ask], pools: Sequence[NodePool], counts: Counts) -> dict[str, int] | None:
    """{ask: pods on new nodes} where all pods find a place; otherwise None."""
    grown = _grown(view, pools, counts)
    mark = grown.mark()
    if place(grown, asks, "pack") is not None:
        return None
    on_new: dict[str, int] = {}
    for taken in grown.taken[mark[1] :]:
        if taken.node not in view.ledger.nodes:
            on_new[taken.ask.name] = on_new.get(taken.ask.name, 0) + taken.count
    return on_new


def _grown(view: View, pools: Sequence[NodePool], counts: Counts) -> View:
    """The view with further empty nodes. Unchanged parts are shared with the base view."""
    base = view.ledger
    ledger = NodeLedger(
        nodes=dict(base.nodes),
        count=base.count,
        occupants=base.occupants,
        namespaces=base.namespaces,
        averse=base.averse,
        classes=dict(base.classes),
        asked=base.asked,
        scale=dict(base.scale),
        mix=base.mix,
    )
    for pool in pools:
        _add(ledger, pool, counts[pool.name])
    grown = view.onto(ledger)
    grown.late = frozenset(_class(pool) for pool in pools)
    return grown


def _class(pool: NodePool) -> str:
    return f"pool {pool.name}"


def _add(ledger: NodeLedger, pool: NodePool, count: int) -> None:
    resources, group = sorted(pool.allocatable), _class(pool)
    labels = {key: pool.labels[key] for key in sorted(ledger.asked) if key in pool.labels}
    kind = ledger.classes[group] = NodeClass(resources, labels, pool.taints, schedulable=True, ready=True)
    free = [pool.allocatable[resource] for resource in resources]
    for name, amount in pool.allocatable.items():
        if name in ledger.scale:
            ledger.scale[name] = max(ledger.scale[name], amount)
    for index in range(count):
        name = f"{pool.name}/{index:06}"  # No real node has such a name.
        node = Node(f"new {name}", pool.allocatable, {HOSTNAME: name, **pool.labels}, pool.taints, True, True)
        node.slot = Slot(group, list(free))
        ledger.nodes[name] = node
        ledger.count += 1
        enter(kind.buckets, node.slot, name)


def _obstacle(view: View, asks: Sequence[Ask], pool: NodePool) -> tuple[str, str]:
    """(code, detail) of the obstacle for pods on an empty node of a pool."""
    grown = _grown(view, [pool], {pool.name: 1})
    obstacles = (refused_by(grown, ask, _class(pool)) for ask in asks)
    return next((obstacle for obstacle in obstacles if obstacle[0]), ("", ""))


def _growth(
    asks: Sequence[Ask],
    pools: Sequence[NodePool],
    counts: Counts,
    pods: Counts,
    provisioning: str,
    gangs: tuple[str, ...],
) -> Growth:
    return Growth(
        pools=tuple(PoolNodes(name, counts[name]) for name in sorted(counts)),
        pod_sets=tuple(PodSet(ask.name, pods[ask.name], ask.request, ask.rules) for ask in asks if ask.name in pods),
        provisioning=provisioning,
        wait_ms=max(pool.wait_ms for pool in pools if pool.name in counts),
        gangs=gangs,
    )


# --- waiting ----------------------------------------------------------------------------------------------------------


TELL_EVERY_MS = 60_000
"""The shortest pause between two notices of changed obstacles for a waiting gang."""
REQUESTS = "provisioningrequests"


def pools_observed(state: AdmitterState, _at: Position, event: NodePoolsObserved) -> None:
    state.pools = {pool.name: pool for pool in event.pools}
    state.pools_uid, state.pools_rv = event.ref.uid, event.rv


def pools_gone(state: AdmitterState, _at: Position, event: NodePoolsGone) -> None:
    if event.ref.uid == state.pools_uid:
        state.pools, state.pools_uid, state.pools_rv = {}, "", 0


def synced(state: AdmitterState, _at: Position, event: Synced) -> None:
    if event.kind == REQUESTS:
        state.unserved = event.absent


def withdrawn(state: AdmitterState, at: Position, event: NodesRequestWithdrawn) -> None:
    """The asked nodes do not come: gangs that waited for these nodes wait for other nodes, or not at all."""
    state.in_vain = {key: vain for key, vain in state.in_vain.items() if vain.until > at.at}
    if not event.retry_at:
        return
    reservation = state.reservations.get(event.ref.uid) if event.ref is not None else None
    if reservation is not None:
        reservation.growth, reservation.until = None, 0
    for key in event.gangs:
        gang = state.pods.gangs.get(key)
        if gang is not None:
            gang.growth, gang.growth_until = None, 0
    state.in_vain[for_whom(event)] = Vain(event.retry_at, {added.pool: added.nodes for added in event.pools})


def _on_others(state: AdmitterState, view: View, uid: str) -> tuple[bool, tuple[Flavors, ...]]:
    """Whether a job without a place under its flavors has room under others with quota, and the others without room."""
    gang, mode, without = state.gangs[uid], state.placement.strategy, list[Flavors]()
    others = queued_as(state.queued, uid).others
    for other in others:
        mark = view.mark()
        if mode is None or place(view, asks_of(state, replace(gang, nodes=other.nodes)), mode) is not None:
            without.append(other.flavors)
        view.undo(mark)
    return len(without) < len(others), tuple(without)


def waits(
    state: AdmitterState,
    reservation: Reservation,
    short: Shortage,
    asks: Sequence[Ask],
    view: View,
    growing: Growing,
) -> Decision | None:
    """The reason why a gang without a place waits; None where the reason has been reported."""
    cause, ref, attempt, queue = reservation.cause, reservation.ref, reservation.attempt, reservation.queue
    growth, refusals = reservation.growth, list[PoolRefusal]()
    room, without = _on_others(state, view, ref.uid)
    if room:
        return GangDeferred(cause=cause, ref=ref, attempt=attempt, queue=queue, shortage=short, without=without)
    if growing.pools and growth is None:
        plan = growing.plan(view, asks, ref.uid, ())
        if isinstance(plan, Growth):
            until = state.now + max(state.placement.grow_ms, plan.wait_ms)
            return GangAwaitingNodes(
                cause=cause, ref=ref, attempt=attempt, queue=queue, shortage=short, until=until, growth=plan
            )
        refusals = plan
    until = reservation.until or state.now + state.placement.grow_ms
    if until <= state.now or refusals:
        if growth is not None:
            refusals = [PoolRefusal(added.pool, "in_vain", needs=added.nodes) for added in growth.pools]
        return GangDeferred(
            cause=cause,
            ref=ref,
            attempt=attempt,
            queue=queue,
            shortage=short,
            refusals=tuple(refusals),
            without=without,
        )
    if reservation.until and (reservation.shortage == short or state.now < reservation.told + TELL_EVERY_MS):
        return None
    return GangAwaitingNodes(
        cause=cause, ref=ref, attempt=attempt, queue=queue, shortage=short, until=until, growth=growth
    )
