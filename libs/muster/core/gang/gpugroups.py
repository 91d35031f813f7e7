"""Groups of pods that share a GPU device: their names, and the pods that keep the devices from the device plugin.

A device has a group from the first share of it to the last. The name is made of facts in the log, so that it is the
same in every replay, and looks like those KAI Scheduler draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.core.gang.state import AdmitterState, Keeper
from muster.core.objects.meta import digest
from muster.core.placement.gpus import share_on
from muster.events.base import Cause
from muster.events.gangs import GpuReservationEnded, PodPlace
from muster.model.keys import Position, Ref
from muster.model.placing import PodRules
from muster.model.workload import PodState


def groups_of(state: AdmitterState, node: str, devices: Iterable[int]) -> tuple[str, ...]:
    """The groups that share devices of a node: those that do already, and new ones for the others.

    Of equal state equal names: pods that open a device in one commit are of one group.
    """
    known = state.ledger.nodes[node]
    return tuple(known.groups.get(each) or _group_id(known.uid, each, state.seq) for each in devices)


def _group_id(node: str, device: int, seq: int) -> str:
    text = digest((node, device, seq)) + digest((seq, device, node))
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def placed_on(state: AdmitterState, ref: Ref, rules: PodRules, node: str, devices: tuple[int, ...]) -> PodPlace:
    """The place of a pod on a node, with the group of each of its devices."""
    if not devices:
        return PodPlace(ref, node)
    share = share_on(rules, state.ledger.nodes[node].labels)
    return PodPlace(ref, node, devices, groups_of(state, node, devices), share)


def ends_due(state: AdmitterState) -> Iterator[GpuReservationEnded]:
    """Devices that are kept without a pod, and pods that keep theirs no more."""
    for keeper in state.keepers.values() if not state.unsynced else ():
        node = state.ledger.nodes.get(keeper.node)
        used = node is not None and keeper.group in node.groups.values()
        if not keeper.ended and (keeper.over or not used):
            yield GpuReservationEnded(cause=keeper.cause, ref=keeper.ref, node=keeper.node, group=keeper.group)


def keeper_observed(state: AdmitterState, at: Position, pod: PodState) -> None:
    """A pod that keeps a device looks like this now."""
    known = state.keepers.get(pod.ref.uid)
    if pod.node:
        ended = known is not None and known.ended
        state.keepers[pod.ref.uid] = Keeper(pod.ref, pod.node, pod.keeps, Cause(at.seq, at.item), pod.over, ended)


def ended(state: AdmitterState, _at: Position, event: GpuReservationEnded) -> None:
    if event.ref.uid in state.keepers:
        state.keepers[event.ref.uid].ended = True
