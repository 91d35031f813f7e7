"""Pods of admitted jobs that name our scheduler: each gets one of the places that are held for its set."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.gang.gpugroups import placed_on
from muster.core.gang.state import AdmitterState, Hold, hold_of
from muster.core.placement.gpus import shares_gpu
from muster.events.gangs import PodPlace, PodsPlaced
from muster.model.workload import PodState


def admitted_job(state: AdmitterState, pod: PodState) -> bool:
    """Whether a pod belongs to a job that was admitted with places for all of it: it waits for no other pod."""
    return bool(pod.owner_uid) and state.owners.get(pod.owner_uid, pod.owner_uid) in state.whole


def owner_known(state: AdmitterState, pod: PodState) -> bool:
    """Whether the owner of a pod has been heard of, if that is one of the kinds we know."""
    return not pod.owner_uid or pod.owner_uid in state.owners or pod.owner_uid in state.gangs


def placements_due(state: AdmitterState, until: int) -> Iterator[PodsPlaced]:
    """Pods that have come for a place: one decision for those of one job."""
    found: dict[str, tuple[Hold, list[tuple[str, PodState]]]] = {}
    for key in state.pods.open if state.holds else ():
        for uid in state.pods.gangs[key].waiting:
            pod = state.pods.pods[uid]
            if not pod.ours or pod.gated:
                continue
            hold, name = hold_of(state, pod)
            if hold is not None:
                found.setdefault(hold.ref.uid, (hold, []))[1].append((name, pod))
    for hold, pods in found.values():
        places = tuple(_taken(state, hold, sorted(pods, key=lambda each: each[1].ref.name)))
        if places:
            yield PodsPlaced(cause=hold.cause, pods=places, bind_until=until)


def _taken(state: AdmitterState, hold: Hold, pods: list[tuple[str, PodState]]) -> Iterator[PodPlace]:
    left = {key: state.ledger.occupants[key].count for key in hold.places}
    for name, pod in pods:
        key = next((key for key, each in hold.places.items() if each == name and left[key]), None)
        if key is None:
            continue
        occupant = state.ledger.occupants[key]
        if state.ledger.nodes[occupant.node].uid:
            left[key] -= 1
            each = pod.rules.devices if occupant.devices else 0
            devices = tuple(occupant.devices[left[key] * each : (left[key] + 1) * each])
            if shares_gpu(pod.rules) and not devices:
                continue  # The place was held without a share: it is placed by itself, with a device.
            yield placed_on(state, pod.ref, pod.rules, occupant.node, devices)
