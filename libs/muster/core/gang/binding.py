"""Pods with a node and without a binding: a pod loses its node when the node is gone or full, or after too much time.

The room of such a pod is free after the actuator's report of a failed binding: a binding sent may have been applied,
with the report still on its way.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from muster.core.gang import admitterstate, heldplaces, nodeclaims, podgangs
from muster.core.gang.admitterstate import AdmitterState
from muster.core.gang.podgangs import Placed
from muster.core.gang.podunits import BROKEN_MS, GRACE_MS, OWNER_MS, STARVED_MS, TELL_AGAIN_MS, park, round_ends
from muster.core.placement.needs import PODS
from muster.core.placement.nodeledger import Occupant
from muster.core.stage import Violation
from muster.events.base import Cause
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.gangs import GangHeldBack, PodPlace, PodsPlaced, PodsReleased, PodsReleaseReason
from muster.model.keys import Position
from muster.model.resources import Vector, add_into


def placed(state: AdmitterState, at: Position, event: PodsPlaced) -> None:
    """The pods of the decision have a node; no pod has, where a pod is gone by now."""
    if any(place.ref.uid not in state.pods.gang_of for place in event.pods):
        return
    came = min((state.pods.gangs[state.pods.gang_of[place.ref.uid]].since for place in event.pods), default=0)
    amounts: Vector = {}
    for place in event.pods:
        pod = state.pods.pods.get(place.ref.uid)
        if pod is None or not podgangs.place_pod(state.pods, place, Cause(at.seq, at.item), event.bind_until):
            continue
        admitterstate.arrived(state, replace(pod, node=place.node))
        if not heldplaces.admitted_job(state, pod):  # The places of a job are counted when the job is admitted.
            add_into(amounts, pod.request)
        rules = replace(pod.rules, labels=pod.labels)
        occupant = Occupant(
            place.node,
            pod.ref.namespace,
            pod.request,
            1,
            rules,
            list(place.devices),
            passing=True,
            groups=list(place.groups),
            owner=admitterstate.workload_of(state, pod),
        )
        state.ledger.settle(pod.ref.uid, occupant)
        state.ledger.mix.learn(pod.request, pod.rules, 1)
    podgangs.passed(state.pods, event.gangs)
    if amounts:
        nodeclaims.passed(state, came, 0, amounts)


def released(state: AdmitterState, _at: Position, event: PodsReleased) -> None:
    for place in event.pods:
        podgangs.release(state.pods, place)


def held_back(state: AdmitterState, at: Position, event: GangHeldBack) -> None:
    gang = podgangs.held_back(state.pods, at, event, state.pools_rv)
    if gang is not None:
        park(state, gang)


def applied(state: AdmitterState, _at: Position, event: EffectApplied) -> None:
    if event.action == "bind":
        podgangs.bind_applied(state.pods, event.ref.uid, event.cause)


def failed(state: AdmitterState, at: Position, event: EffectFailed) -> None:
    if event.action == "bind" and podgangs.bind_failed(state.pods, event, at.at):
        state.ledger.evict(event.ref.uid)


def releases_due(state: AdmitterState) -> Iterator[PodsReleased]:
    """The nodes that pods lose before their binding."""
    lost: dict[tuple[PodsReleaseReason, Cause], list[PodPlace]] = {}
    lacking: dict[str, Vector] = {}
    for placed in reversed(list(state.pods.placed.values())):
        reason = _lost(state, placed, lacking)
        if reason is not None:
            lost.setdefault((reason, placed.cause), []).append(placed.place)
    for (reason, cause), places in lost.items():
        gangs = dict.fromkeys(state.pods.gang_of[place.ref.uid] for place in places)
        named = tuple(key for key in gangs if state.pods.gangs[key].declared is not None)
        yield PodsReleased(cause=cause, gangs=named, reason=reason, pods=tuple(reversed(places)))


def _lost(state: AdmitterState, placed: Placed, lacking: dict[str, Vector]) -> PodsReleaseReason | None:
    """``lacking``: node -> missing amounts, less the amounts of pods that lose the node."""
    if placed.applied or placed.released:
        return None
    node = state.ledger.nodes[placed.place.node]
    if not node.uid:
        return "node_gone"
    if placed.until <= state.now:
        return "not_bound"
    if placed.place.node not in lacking:
        lacking[placed.place.node] = {
            name: amount - node.allocatable.get(name, 0)
            for name, amount in node.used.items()
            if amount > node.allocatable.get(name, 0)
        }
    short, asked = lacking[placed.place.node], state.ledger.occupants[placed.place.ref.uid].request
    if not any(short.get(name, 0) > 0 for name in (*asked, PODS)):
        return None
    add_into(short, {**asked, PODS: 1000}, -1)
    return "no_room"


def deadlines(state: AdmitterState) -> Iterator[int]:
    """When something may be due for pods though nothing happens."""
    pods, now = state.pods, state.now
    yield from nodeclaims.deadlines(state)
    for placed in pods.placed.values():
        if not placed.applied and not placed.released:
            yield placed.until
    yield from (rest.until for rest in pods.rests.values() if rest.until > now)
    yield from (vain.until for vain in state.in_vain.values() if vain.until > now)
    for key in pods.broken:
        if now < pods.gangs[key].changed + BROKEN_MS:
            yield pods.gangs[key].changed + BROKEN_MS
    for key in pods.open:
        gang = pods.gangs[key]
        times = [gang.since + OWNER_MS, gang.since + GRACE_MS]
        if gang.cycle_since:
            times.append(round_ends(gang))
        if gang.growth is not None:
            times.append(gang.growth_until)
        if gang.told is not None and gang.told.refused:
            times.append(gang.told.at + TELL_AGAIN_MS)
        if gang.claimant.since:
            times += [gang.claimant.since + STARVED_MS, nodeclaims.may_claim_from(gang.claimant)]
        yield from (at for at in times if at > now)


def check(state: AdmitterState) -> Iterator[Violation]:
    """I3: a pod with a node takes room there, and a waiting pod takes no room anywhere."""
    pods, occupants = state.pods, state.ledger.occupants
    owned = {(occupant.owner, key) for key, occupant in occupants.items() if occupant.owner}
    if owned != {(owner, key) for owner, keys in state.ledger.owned.items() for key in keys}:
        yield Violation("I3", f"{len(owned)} occupants are of workloads, and the index of them says otherwise")
    for uid, placed in pods.placed.items():
        if uid not in occupants or occupants[uid].node != placed.place.node:
            yield Violation("I3", f"{placed.place.ref} has {placed.place.node} and takes no room there")
    for key in pods.open:
        leaked = [uid for uid in pods.gangs[key].waiting if uid in occupants]
        if leaked:
            yield Violation("I3", f"pods of {key} wait and take room: {leaked[:5]}")
