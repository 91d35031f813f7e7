"""Workers that a Ray cluster of a fixed size gives back, because they run beyond the grant of their quota.

The last worker group goes first, the youngest worker of the group first, until the ordered amounts are covered. One
write lowers ``replicas``; the operator deletes the pods.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.autoscaling.bridgestate import BridgeState, Surplus
from muster.events.base import Cause, Decision
from muster.events.elastic import GateSet, SurplusOrdered
from muster.model.elastic import Counts
from muster.model.keys import Position
from muster.model.resources import add_into


def ordered(state: BridgeState, at: Position, event: SurplusOrdered) -> None:
    """A cluster is to give back workers beyond its grant."""
    grant = state.grants.get(event.ref.uid)
    if grant is not None and grant.attempt == event.attempt:
        state.surplus[event.ref.uid] = Surplus(event.attempt, event.surplus, Cause(at.seq, at.item))


def decisions(state: BridgeState) -> Iterator[Decision]:
    """The writes due; an order for a cluster without such workers has no write."""
    for owner, order in state.surplus.items():
        grant, cluster = state.grants.get(owner), state.clusters.get(state.cluster_of(owner))
        if grant is None or cluster is None or not cluster.fixed or cluster.ref.uid in state.gates:
            continue
        stay = _stay(state, cluster.ref.uid, order)
        if stay:
            yield GateSet(
                cause=order.cause,
                ref=cluster.ref,
                owner=grant.ref,
                attempt=grant.attempt,
                groups=(),
                most={},
                ceilings={},
                stay=stay,
            )


def _stay(state: BridgeState, cluster: str, order: Surplus) -> Counts:
    """{worker group: pods that stay}, for the groups that give back pods."""
    rest, stay = dict(order.amounts), dict[str, int]()
    for group, pods in reversed([*state.workers.get(cluster, {}).items()]):
        live = sorted((pod for pod in pods.values() if not pod.deleting), key=lambda pod: (-pod.created, pod.ref.name))
        gone = 0
        for pod in live:
            if not any(amount > 0 and pod.request.get(name) for name, amount in rest.items()):
                break
            add_into(rest, pod.request, -1)
            gone += 1
        if gone:
            stay[group] = len(live) - gone
    return dict(sorted(stay.items()))
