"""Places held for admitted jobs, the pods that take the places, and groups of pods that share GPU devices.

A device has a group from its first share to its last. The name of a group is made of facts in the log, so every replay
gives the same name, in the form of KAI Scheduler. Keeper pods keep shared devices from the device plugin.

A pod of an admitted job with Muster's scheduler name takes a place held for its pod set. Places kept for new workers of
a Ray cluster are held for the pods once the growth is granted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from muster.core.gang.admitterstate import AdmitterState, Hold, Keeper, hold_of, hold_places
from muster.core.objects.meta import digest
from muster.core.placement.devices import PART, share_on, shares_gpu
from muster.events.base import Cause
from muster.events.elastic import GrowthGranted, GrowthOption
from muster.events.gangs import GpuReservationEnded, PodPlace, PodsPlaced
from muster.model.keys import Position, Ref
from muster.model.places import Placement
from muster.model.placing import PodRules
from muster.model.workload import PodState

# --- groups that share a GPU ------------------------------------------------------------------------------------------


def groups_of(state: AdmitterState, node: str, devices: Iterable[int]) -> tuple[str, ...]:
    """The groups of devices of a node: the present group of a shared device, a new group for any other device.

    Equal states give equal names: all pods that open a device in the same commit are in the same group.
    """
    known = state.ledger.nodes[node]
    return tuple(known.groups.get(device) or _group_id(known.uid, device, state.seq) for device in devices)


def _group_id(node: str, device: int, seq: int) -> str:
    text = digest((node, device, seq)) + digest((seq, device, node))
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def placed_on(state: AdmitterState, ref: Ref, rules: PodRules, node: str, devices: tuple[int, ...]) -> PodPlace:
    """The place of a pod on a node, with the group of each of its devices."""
    if not devices:
        return PodPlace(ref, node)
    share = max(1, share_on(rules, state.ledger.nodes[node].labels) // PART)
    return PodPlace(ref, node, devices, groups_of(state, node, devices), share)


def ends_due(state: AdmitterState) -> Iterator[GpuReservationEnded]:
    """Ends of keeper pods: the keeper is over, or no pod shares its device."""
    for keeper in state.keepers.values() if not state.unsynced else ():
        node = state.ledger.nodes.get(keeper.node)
        used = node is not None and keeper.group in node.groups.values()
        if not keeper.ended and (keeper.over or not used):
            yield GpuReservationEnded(cause=keeper.cause, ref=keeper.ref, node=keeper.node, group=keeper.group)


def keeper_observed(state: AdmitterState, at: Position, pod: PodState) -> None:
    """Note the present state of a keeper pod."""
    known = state.keepers.get(pod.ref.uid)
    if pod.node:
        ended = known is not None and known.ended
        state.keepers[pod.ref.uid] = Keeper(pod.ref, pod.node, pod.keeps, Cause(at.seq, at.item), pod.over, ended)


def ended(state: AdmitterState, _at: Position, event: GpuReservationEnded) -> None:
    if event.ref.uid in state.keepers:
        state.keepers[event.ref.uid].ended = True


# --- pods of jobs -----------------------------------------------------------------------------------------------------


def admitted_job(state: AdmitterState, pod: PodState) -> bool:
    """Whether a pod belongs to a job admitted with places for all pods: such a pod waits for no other pod."""
    return bool(pod.owner_uid) and state.owners.get(pod.owner_uid, pod.owner_uid) in state.whole


def owner_known(state: AdmitterState, pod: PodState) -> bool:
    """Whether the owner of a pod is known; true for a pod without an owner."""
    return not pod.owner_uid or pod.owner_uid in state.owners or pod.owner_uid in state.gangs


def placements_due(state: AdmitterState, until: int) -> Iterator[PodsPlaced]:
    """The held places for pods that have come: a decision per job."""
    by_hold: dict[str, tuple[Hold, list[tuple[str, PodState]]]] = {}
    for key in state.pods.open if state.holds else ():
        for uid in state.pods.gangs[key].waiting:
            pod = state.pods.pods[uid]
            if not pod.ours or pod.gated:
                continue
            hold, name = hold_of(state, pod)
            if hold is not None:
                by_hold.setdefault(hold.ref.uid, (hold, []))[1].append((name, pod))
    for hold, pods in by_hold.values():
        places = tuple(_taken(state, hold, sorted(pods, key=lambda entry: entry[1].ref.name)))
        if places:
            yield PodsPlaced(cause=hold.cause, pods=places, bind_until=until)


def _taken(state: AdmitterState, hold: Hold, pods: list[tuple[str, PodState]]) -> Iterator[PodPlace]:
    left = {key: state.ledger.occupants[key].count for key in hold.places}
    for name, pod in pods:
        key = next((key for key, pod_set in hold.places.items() if pod_set == name and left[key]), None)
        if key is None:
            continue
        occupant = state.ledger.occupants[key]
        if state.ledger.nodes[occupant.node].uid:
            left[key] -= 1
            per_pod = pod.rules.devices if occupant.devices else 0
            devices = tuple(occupant.devices[left[key] * per_pod : (left[key] + 1) * per_pod])
            if shares_gpu(pod.rules) and not devices:
                continue  # The place was held without a share: the pod is placed by itself, with a device.
            yield placed_on(state, pod.ref, pod.rules, occupant.node, devices)


# --- workers ----------------------------------------------------------------------------------------------------------


def grown(state: AdmitterState, at: Position, event: GrowthGranted) -> None:
    """New workers are granted to a cluster: hold the places kept for these workers for their pods."""
    uid, order = event.ref.uid, state.orders.get(event.ref.uid)
    if order is None or order.growth is None:
        return
    gang, times = state.gangs.get(uid), order.growth.times
    left = times - min(event.added.get(name, 0) // count for name, count in order.growth.groups.items())
    if left < times and order.places and gang is not None and uid in state.admitted:
        mine, order.places = _divided(order.places, max(left, 0), times)
        hold = state.holds.get(uid) or Hold(event.ref, event.attempt, 0, Cause(at.seq, at.item))
        hold.until = max(hold.until, at.at + state.placement.hold_ms)
        hold_places(state, hold, gang.steered, mine)
    if left <= 0:
        del state.orders[uid]
    elif left < times:
        order.growth, order.pods = GrowthOption(order.growth.groups, left), order.pods // times * left


def _divided(places: Iterable[Placement], left: int, of: int) -> tuple[list[Placement], tuple[Placement, ...]]:
    """(the places of the granted pods, the other places). ``left`` of ``of`` equal parts of each pod set are not
    granted.
    """
    total: dict[str, int] = {}
    for place in places:
        total[place.pod_set] = total.get(place.pod_set, 0) + place.count
    stay = {name: count // of * left for name, count in total.items()}
    come, rest = list[Placement](), list[Placement]()
    for place in places:
        count = min(stay[place.pod_set], place.count)
        stay[place.pod_set] -= count
        size = len(place.devices) // place.count
        if count:
            rest.append(replace(place, count=count, devices=place.devices[: size * count]))
        if count < place.count:
            come.append(replace(place, count=place.count - count, devices=place.devices[size * count :]))
    return come, tuple(rest)
