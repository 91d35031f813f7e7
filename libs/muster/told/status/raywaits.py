"""The waiting demand in the Ray cluster of a job, and the fate of each piece in each worker group, without omission."""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.autoscaling.packing import suited, times_in
from muster.model.elastic import ScaledGroup
from muster.model.raydemand import RayDemand, RayShape
from muster.told.codes.codetable import GroupFate, RayPiece, RayWaits, TroubledPod
from muster.told.codes.values import Scaling
from muster.told.readmodel.readstate import ReadState, Scaled


def ray_waits(state: ReadState, uid: str) -> list[RayWaits]:
    """The waiting demand of each cluster of a job whose head has reported."""
    uids = dict.fromkeys((uid, *state.presence.children.get(uid, ())))
    scaled = (state.scaled.get(uid) for uid in uids)
    return [
        _waits(state, scaled)
        for scaled in scaled
        if scaled is not None and scaled.owner == uid and scaled.heard is not None
    ]


def _waits(state: ReadState, cluster: Scaled) -> RayWaits:
    heard, record = cluster.heard, state.records.get(cluster.owner)
    assert heard is not None
    growth = record.growth if record is not None else Scaling()
    stuck = state.pods.live.get(cluster.ref.uid, {}).get("Unschedulable", {})
    look = _Waiter(cluster, heard.demand, growth, [*stuck.values()])
    return RayWaits(cluster.ref, heard.read_at, tuple(look.pieces()), heard.demand.trouble or None)


class _Waiter:
    """The waiting demand of one cluster, asked of each worker group."""

    def __init__(self, cluster: Scaled, demand: RayDemand, growth: Scaling, stuck: Sequence[TroubledPod]) -> None:
        self._elastic, self._demand, self._growth, self._stuck = cluster.elastic, demand, growth, stuck

    def pieces(self) -> list[RayPiece]:
        pending = self._demand.pending
        alone = [*pending, *(shape for shape in self._demand.infeasible if shape not in pending)]
        waiting = [RayPiece("alone", (shape,), self._fates((shape,))) for shape in alone]
        for gang in self._demand.placement_groups:
            fates = self._fates(gang.bundles)
            waiting.append(RayPiece("placement_group", gang.bundles, fates, gang.name, gang.strategy))
        explicit = self._demand.explicit
        if explicit and (self._growth.asked or self._growth.alarm is not None):
            waiting.append(RayPiece("explicit", explicit, self._fates(explicit)))
        return waiting

    def _fates(self, shapes: Sequence[RayShape]) -> tuple[GroupFate, ...]:
        return tuple(self._fate(group, shapes) for group in self._elastic.groups)

    def _fate(self, group: ScaledGroup, shapes: Sequence[RayShape]) -> GroupFate:
        """Why the group does not take the piece, or how far replicas for the piece have come."""
        held = [shape for shape in shapes if _holds(group, shape)]
        if not held:
            return _too_small(group, shapes[0])
        if not any(suited(group.labels, vector) for vector in held):
            return GroupFate(group.name, "other_labels")
        return self._supply(group)

    def _supply(self, group: ScaledGroup) -> GroupFate:
        """How far new workers of a group are."""
        name, growth = group.name, self._growth
        stuck = [pod for pod in self._stuck if pod.group == name]
        if stuck:
            return GroupFate(
                name, "no_nodes", len(stuck), pod=min(stuck, key=lambda held_up: (held_up.since, held_up.name))
            )
        refusals = growth.denied.refusals if growth.denied is not None else ()
        mine = [refusal for refusal in refusals if refusal.groups.get(name)]
        if mine:  # The smallest piece shows best which amounts the replicas lack.
            return GroupFate(name, "refused", short=min(mine, key=lambda refusal: sum(refusal.groups.values())).short)
        if growth.asked.get(name):
            return GroupFate(name, "asked", growth.asked[name])
        granted, joined = growth.granted.get(name, 0), self._demand.joined.get(name, 0) // group.hosts
        if joined < granted:
            return GroupFate(name, "coming", granted, joined)
        most = self._elastic.ceiling(group)
        return GroupFate(name, "at_most", most) if granted >= most else GroupFate(name, "elsewhere")


def _holds(group: ScaledGroup, shape: RayShape) -> bool:
    """Whether one worker can hold the shape, as the worker is made or grown in place."""
    return any(times_in(offers, shape.resources) > 0 for offers in (group.offers, group.grows_to) if offers)


def _too_small(group: ScaledGroup, shape: RayShape) -> GroupFate:
    offers = {**group.offers, **group.grows_to}
    lacks = sorted(name for name, amount in shape.resources.items() if offers.get(name, 0) < amount)
    name = lacks[0] if lacks else ""
    return GroupFate(
        group.name, "too_small", resource=name, asked=shape.resources.get(name, 0), offers=offers.get(name, 0)
    )
