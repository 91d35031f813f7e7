"""The desired state of gangs of pods: Events on pods, PodGroups, and the condition for which nodes are added."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from muster.core.gang.declare import status_content
from muster.core.objects.meta import MADE_FOR, SHOWN, digest, rfc3339, sealed
from muster.events.gangs import MAX_PODS_NAMED, GangHeldBack, ends_a_round, lacks_nodes
from muster.model import api
from muster.model.api import ApiResource
from muster.model.gang import PodGroup
from muster.model.keys import Ref
from muster.model.workload import PodState
from muster.told.presentation.desired import DesiredObject, EventNote, ObjectVersion, note_on, shown_text
from muster.told.readmodel.gangsshown import GangHeld, GangShown
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import held_back_code
from muster.told.wording import nodewords, problems

TOLD_CYCLES = 2
"""Rounds in which every pod gets an Event; later rounds write one Event for the whole gang."""


class GangNote(Struct, frozen=True):
    """An Event. ``count`` over 0: the Event is written again and again, with the number of occurrences so far."""

    note: EventNote
    count: int = 0


def gang_events(state: ReadState, key: str) -> list[GangNote]:
    """The Events with the reason why a gang waits, and with the marks of the gang that were not understood."""
    gang = state.gangs.gangs.get(key)
    if gang is None or (not gang.ours and not (gang.held and gang.held.event.reason == "other_scheduler")):
        return []
    notes = []
    if gang.complaint is not None:
        text, ref = "; ".join(map(problems.line, gang.complaint.found)), gang.complaint.ref
        stamp = f"gang-{digest(('complaint', ref.uid, gang.complaint.found))}"
        notes.append(GangNote(_note(state, ref, stamp, "GangMarkIgnored", text)))
    held = gang.held
    if held is None:
        return notes
    refs = _about(gang, held)
    if not refs:
        return notes
    code = held_back_code(held.event)
    if ends_a_round(held.event.reason) and held.event.cycle > TOLD_CYCLES:
        whose = f"{held.event.gang or refs[0].key}: {held.event.waiting or len(refs)} pods"
        note = _note(state, _whole(gang, refs[0]), "gang-series", code, f"{whose} {_words(gang, held)}")
        return [*notes, GangNote(note, held.event.cycle - TOLD_CYCLES)]
    for ref in refs:
        note = _note(state, ref, _stamp(held, ref), code, f"{ref.name} {_words(gang, held)}")
        notes.append(GangNote(note))
    return notes


def _about(gang: GangShown, held: GangHeld) -> list[Ref]:
    """The pods that get an Event: the pods that were tried; for a problem of the gang, all pods that wait or will
    wait.
    """
    waiting = {pod.ref.uid: pod.ref for pod in _pending(gang)}
    if held.event.reason == "broken":
        left = [pod.ref for pod in gang.pods.values() if pod.node and not pod.over]
        return [_whole(gang, min(left, key=lambda ref: ref.name))] if left else []
    if ends_a_round(held.event.reason):
        return [ref for ref in held.event.pods if ref.uid in waiting]
    return list(waiting.values())[:MAX_PODS_NAMED]


def _words(gang: GangShown, held: GangHeld) -> str:
    """The text without the name of the gang."""
    return nodewords.gang_event_text(held.event, gang.counted(), gang.minimum)


def _stamp(held: GangHeld, ref: Ref) -> str:
    """The stamp of an Event. Each pod, round and kind of trouble has one Event, however many processes write."""
    event = held.event
    reason: object = (event.reason, event.problem)
    if ends_a_round(event.reason):
        reason = event.reason if event.reason == "gave_way" else (event.growth, event.refusals)
    return f"gang-{digest((ref.uid, event.cycle, reason))}"


def _note(state: ReadState, ref: Ref, stamp: str, code: str, text: str) -> EventNote:
    kind, _, group = ref.kind.partition(".")
    known = (*api.POD_GROUPS, api.NATIVE_POD_GROUPS[-1])
    version = next((resource.api_version for resource in known if resource.group == group), "v1")
    return note_on(state, Ref(kind, ref.namespace, ref.name, ref.uid), version, stamp, code, text)


def _whole(gang: GangShown, first: Ref) -> Ref:
    """The object on which a gang is shown."""
    pod_group = gang.pod_group
    return pod_group.ref if pod_group is not None else first


# --- PodGroups --------------------------------------------------------------------------------------------------


def pod_groups(state: ReadState, key: str, home: ApiResource | None) -> list[DesiredObject]:
    """The PodGroups of a gang that are not up to date, and a missing PodGroup that labels ask for.

    ``home``: the API group of a new PodGroup; None where the server has no such group. The PodGroups of Kubernetes
    itself
    are never written: kube-scheduler owns the status there.
    """
    gang = state.gangs.gangs.get(key)
    if gang is None or not gang.ours:
        return []
    declared, actions = gang.said_by_pods, []
    readable = [pod_group for pod_group in gang.pod_groups.values() if not pod_group.native]
    asked = declared is not None and declared.way == "labels" and not declared.refusal and declared.minimum > 0
    if asked and declared is not None and not readable and home is not None:
        actions.append(_upsert(state, gang, key, home, None, declared.minimum))
    for pod_group in readable:
        resource = resource_of(pod_group.ref)
        minimum = declared.minimum if asked and declared is not None and pod_group.made else 0
        wanted = _upsert(state, gang, key, resource, pod_group, minimum)
        if wanted.shown != pod_group.shown:
            actions.append(wanted)
    return actions


def surplus(state: ReadState, key: str) -> list[PodGroup]:
    """PodGroups that Muster made for pods that are gone."""
    gang = state.gangs.gangs.get(key)
    if gang is None or gang.pods:
        return []
    return [pod_group for pod_group in gang.pod_groups.values() if pod_group.made]


def resource_of(ref: Ref) -> ApiResource:
    """The resource of a PodGroup, whose kind is qualified by its API group."""
    group = ref.kind.partition(".")[2]
    return next((resource for resource in api.POD_GROUPS if resource.group == group), api.POD_GROUPS[-1])


def _upsert(
    state: ReadState, gang: GangShown, key: str, resource: ApiResource, known: PodGroup | None, minimum: int
) -> DesiredObject:
    """The desired PodGroup. ``minimum``: the desired spec.minMember, where Muster decides the value; else 0."""
    counted = gang.counted()
    least = minimum or gang.minimum
    phase = gang.ended or counted.phase(least)
    status: dict[str, Any] = {
        "phase": phase,
        "running": counted.running,
        "succeeded": counted.succeeded,
        "failed": counted.failed,
    }
    if resource.group == api.POD_GROUPS[0].group:
        status["scheduled"] = counted.bound
        if phase == "Scheduling" and counted.bound >= least:
            status["phase"] = "Scheduled"
    owner = _occupied_by(state, gang)
    if owner:
        status["occupiedBy"] = owner
    if gang.began:
        status["scheduleStartTime"] = rfc3339(gang.began // 1000 * 1000)
    spec = {"minMember": minimum} if minimum else {}
    shown = digest((status, spec))
    namespace, _, name = key.partition("/")
    made = {MADE_FOR: "labels"} if known is None else {}
    return DesiredObject(
        key=f"podgroup/{resource.group}/{key}",
        resource=resource,
        namespace=namespace,
        name=name,
        seen=ObjectVersion(known.ref.uid, known.rv) if known is not None else None,
        shown=shown,
        metadata={"annotations": {SHOWN: sealed(shown, status_content(status)), **made}},
        spec=spec,
        status=status,
    )


def _occupied_by(state: ReadState, gang: GangShown) -> str:
    """namespace/name of the job that owns the pods; empty where the pods have no owner, or several."""
    owners = {pod.owner_uid for pod in gang.pods.values()}
    if len(owners) != 1:
        return ""
    workload = state.queues.workloads.get(next(iter(owners)))
    return workload.ref.key if workload is not None else ""


# --- the condition that nodes are added for ---------------------------------------------------------------------


def conditions(state: ReadState, key: str) -> list[tuple[Ref, str, bytes]]:
    """(pod, digest of the condition, patch of the status): PodScheduled of every pod of a gang that lacks nodes.

    An autoscaler adds nodes for pods that are Unschedulable. A gang that waits for anything else needs no nodes. So
    pods
    become Unschedulable only while more nodes would help. After that, pods show the present reason. A gang has another
    reason than Unschedulable where nodes are asked for as a whole, or where no node pool can help: an autoscaler would
    buy
    nodes for single pods without use.
    """
    gang = state.gangs.gangs.get(key)
    if gang is None or gang.held is None or not gang.lacked:
        return []
    text, reason = shown_text(_lacks(gang.held)), _lacking(gang.held.event)
    stamp = gang.held.at
    return [(pod.ref, digest((reason, text)), _condition(pod, reason, text, stamp)) for pod in _waiting(gang)]


def _lacking(event: GangHeldBack) -> str:
    """The reason of the condition."""
    if not lacks_nodes(event.reason):
        return held_back_code(event)
    if event.refusals:
        return "NoNodePool"
    return "NodesRequested" if event.growth is not None and event.growth.provisioning else "Unschedulable"


def _lacks(held: GangHeld) -> str:
    """The message of the condition."""
    event = held.event
    return nodewords.lacks(event) if lacks_nodes(event.reason) else nodewords.held_back(event)


def _pending(gang: GangShown) -> list[PodState]:
    pods = sorted(gang.pods.values(), key=lambda pod: pod.ref.key)
    return [pod for pod in pods if not (pod.node or pod.over or pod.deleting)]


def _waiting(gang: GangShown) -> list[PodState]:
    return [pod for pod in _pending(gang) if pod.ours and not pod.gated]


def _condition(pod: PodState, reason: str, text: str, at: int) -> bytes:
    stamp = rfc3339(at // 1000 * 1000)
    entry = {"type": "PodScheduled", "status": "False", "reason": reason, "message": text}
    status = {"conditions": [{**entry, "lastTransitionTime": stamp}]}
    return msgspec.json.encode({"metadata": {"uid": pod.ref.uid}, "status": status})
