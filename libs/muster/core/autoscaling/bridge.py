"""The autoscaler bridge: requests the missing nodes of a gang at once, and keeps Ray clusters within their grants.

The admitter names the missing nodes and their pools. The bridge decides the request for these nodes, and the end of the
request: the gang has its places, no gang needs the nodes, or the nodes do not come. After a failed request the bridge
asks again after a pause, twice as long each time. ``gate.py`` decides about Ray clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, assert_never

from muster.core.autoscaling import clusterfolds, gate
from muster.core.autoscaling.bridgestate import BridgeState, NodesAsked, NodesNeeded, NodesRest, Sighted, templates_of
from muster.core.gang.declare import declared_by
from muster.core.objects.meta import digest
from muster.core.stage import NEWEST, Arm, Stage, Violation, arms_of, first
from muster.events.base import Cause, Decision, Event
from muster.events.decisions import GangAdmitted, GangAwaitingNodes, GangDeferred, QuotaReleased, QuotaReserved
from muster.events.effects import EffectFailed
from muster.events.facts import NodesRequestGone, NodesRequestObserved, PodGone, PodObserved, WorkloadGone
from muster.events.gangs import GangHeldBack, PodsPlaced, lacks_nodes
from muster.events.growing import NodesRequested, NodesRequestWithdrawn, WithdrawalReason, for_whom
from muster.model.keys import Position
from muster.model.pools import Growth
from muster.model.problem import problem

PAUSE_MS = 60_000
"""Pause before a failed request for nodes is made again; doubled each time."""
LONGEST_PAUSE = 5
"""Most doublings of the pause."""
MAX_BASE = 40


class AutoscalerBridge(Stage[BridgeState]):
    """The stage ``autoscaler_bridge``."""

    name: ClassVar[str] = "autoscaler_bridge"
    kept: ClassVar[type[BridgeState]] = BridgeState
    newest_ruleset: ClassVar[int] = NEWEST

    def arms(self) -> Mapping[type[Event], Arm]:
        return arms_of(self, clusterfolds)

    # --- jobs -------------------------------------------------------------------------------------------------

    def _reserved(self, state: BridgeState, _at: Position, event: QuotaReserved) -> None:
        state.reserved[event.ref.uid] = event.attempt

    def _released(self, state: BridgeState, _at: Position, event: QuotaReleased) -> None:
        if state.reserved.get(event.ref.uid, event.attempt) <= event.attempt:
            state.reserved.pop(event.ref.uid, None)
            _no_need(state, event.ref.uid, "changed")

    def _admitted(self, state: BridgeState, _at: Position, event: GangAdmitted) -> None:
        if state.reserved.get(event.ref.uid) == event.attempt:
            del state.reserved[event.ref.uid]
            _no_need(state, event.ref.uid, "met")

    def _awaiting(self, state: BridgeState, at: Position, event: GangAwaitingNodes) -> None:
        uid, growth = event.ref.uid, event.growth
        if state.reserved.get(uid) != event.attempt:
            return
        if growth is None or not growth.provisioning:
            _no_need(state, uid, "changed")
            return
        known = state.needs.get(uid)
        same = known is not None and (known.growth, known.attempt) == (growth, event.attempt)
        cause = known.cause if known is not None and same else Cause(at.seq, at.item)
        state.needs[uid] = NodesNeeded(cause, growth, event.ref.namespace, event.ref, event.attempt, (event.ref,))

    def _deferred(self, state: BridgeState, _at: Position, event: GangDeferred) -> None:
        if state.reserved.get(event.ref.uid) == event.attempt:
            _no_need(state, event.ref.uid, "expired")

    def _workload_gone(self, state: BridgeState, _at: Position, event: WorkloadGone) -> None:
        state.reserved.pop(event.ref.uid, None)
        _no_need(state, event.ref.uid, "gone")
        state.rests.pop(event.ref.uid, None)

    # --- gangs of pods ----------------------------------------------------------------------------------------

    def _pod(self, state: BridgeState, _at: Position, event: PodObserved) -> None:
        pod = event.pod
        if not pod.ours:
            return
        declared = declared_by(pod)
        _leave(state, pod.ref.uid)
        if declared is not None and not (pod.node or pod.over or pod.deleting):
            state.gang_of[pod.ref.uid] = declared.gang
            state.members.setdefault(declared.gang, {})[pod.ref.uid] = None
        _tidy(state)

    def _pod_gone(self, state: BridgeState, _at: Position, event: PodGone) -> None:
        _leave(state, event.ref.uid)
        _tidy(state)

    def _held_back(self, state: BridgeState, at: Position, event: GangHeldBack) -> None:
        growth = event.growth
        if growth is None or not growth.provisioning:
            for key in [key for key, need in state.needs.items() if event.gang in need.growth.gangs]:
                _no_need(state, key, "changed")
            return
        if event.gang != growth.key or not lacks_nodes(event.reason) or event.gang not in state.members:
            return
        known = state.needs.get(growth.key)
        if known is None or known.growth != growth:
            namespace = growth.key.partition("/")[0]
            owners = tuple(ref for ref in event.pods if ref.namespace == namespace)
            state.needs[growth.key] = NodesNeeded(Cause(at.seq, at.item), growth, namespace, owners=owners)

    def _placed(self, state: BridgeState, _at: Position, event: PodsPlaced) -> None:
        if any(place.ref.uid in state.seen.ended for place in event.pods):
            return  # Void as a whole.
        for gang in event.gangs:
            for key in [key for key, need in state.needs.items() if gang in need.growth.gangs]:
                _no_need(state, key, "met")

    # --- what is asked for ------------------------------------------------------------------------------------

    def _requested(self, state: BridgeState, at: Position, event: NodesRequested) -> None:
        key = for_whom(event)
        need = state.needs.get(key)
        asked = NodesAsked(event.name, _as_need(event), Cause(at.seq, at.item), templates_of(event), event.tries)
        if need is None or need.attempt != event.attempt:
            asked.ending = "gone"  # While this was stored: it is taken back.
        state.asked[key] = asked
        state.names[f"{event.namespace}/{event.name}"] = key

    def _withdrawn(self, state: BridgeState, at: Position, event: NodesRequestWithdrawn) -> None:
        where = f"{event.namespace}/{event.name}"
        key = state.names.pop(where, None)
        if any(f"{sighted.ref.namespace}/{sighted.ref.name}" == where for sighted in state.sighted.values()):
            state.removed[where] = None
        if key is None or key not in state.asked:
            return
        asked = state.asked.pop(key)
        if event.retry_at:
            state.rests[key] = NodesRest(asked.tries, event.retry_at)
            state.needs.pop(key, None)  # The admitter says again what is needed.
        elif event.reason in ("met", "gone"):
            state.rests.pop(key, None)

    def _observed(self, state: BridgeState, at: Position, event: NodesRequestObserved) -> None:
        state.sighted[event.ref.uid] = Sighted(event.ref, Cause(at.seq, at.item), event.templates)
        asked = state.asked.get(state.names.get(event.ref.key, ""))
        if asked is not None and asked.ending is None and event.phase in ("failed", "lapsed"):
            asked.ending = "failed" if event.phase == "failed" else "lapsed"
            asked.problem = problem("", "said", said=event.message) if event.message else None

    def _request_gone(self, state: BridgeState, _at: Position, event: NodesRequestGone) -> None:
        state.sighted.pop(event.ref.uid, None)
        state.removed.pop(event.ref.key, None)
        asked = state.asked.get(state.names.get(event.ref.key, ""))
        if asked is not None and asked.ending is None:
            asked.ending = "deleted"

    def _failed(self, state: BridgeState, _at: Position, event: EffectFailed) -> None:
        if event.action != "request_nodes":
            return
        asked = state.asked.get(state.names.get(event.ref.key, ""))
        if asked is not None and asked.cause == event.cause and asked.ending is None:
            asked.ending, asked.problem = "failed", event.problem

    # --- decide -----------------------------------------------------------------------------------------------

    def decide(self, state: BridgeState) -> list[Decision]:
        """Withdrawals first, then requests."""
        return first(self._due(state))

    def _due(self, state: BridgeState) -> Iterator[Decision]:
        for asked in state.asked.values():
            reason = asked.ending or ("expired" if 0 < asked.need.until <= state.now else None)
            if reason is not None:
                yield _withdrawal(state, asked, reason)
        if not state.admitting:
            return
        for sighted in state.sighted.values():
            if sighted.ref.key not in state.names and sighted.ref.key not in state.removed:
                yield NodesRequestWithdrawn(
                    cause=sighted.cause,
                    name=sighted.ref.name,
                    namespace=sighted.ref.namespace,
                    reason="unknown",
                    templates=sighted.templates,
                )
        for key, need in state.needs.items():
            rest = state.rests.get(key)
            if key not in state.asked and (rest is None or rest.until <= state.now):
                yield _request(state, key, need, rest.times + 1 if rest is not None else 1)
        yield from gate.decisions(state)

    def next_deadline(self, state: BridgeState) -> int | None:
        """When a request is given up, or a pause is over."""
        times = [asked.need.until for asked in state.asked.values() if asked.need.until]
        times += gate.deadlines(state)
        times += [rest.until for key, rest in state.rests.items() if key in state.needs and key not in state.asked]
        return min((at for at in times if at > state.now), default=None)

    def check(self, state: BridgeState) -> list[Violation]:
        """I21: every request is for a claimant that lacks nodes, and every request has a name of its own."""
        names = [f"{asked.need.namespace}/{asked.name}" for asked in state.asked.values()]
        if len(set(names)) != len(names) or set(names) != state.names.keys():
            return [
                Violation("I21", f"nodes are asked for by {sorted(names)[:5]}, known are {sorted(state.names)[:5]}")
            ]
        return []


def _no_need(state: BridgeState, key: str, why: WithdrawalReason) -> None:
    """No claimant lacks the nodes any more."""
    state.needs.pop(key, None)
    asked = state.asked.get(key)
    if asked is not None and asked.ending is None:
        asked.ending = why


def _leave(state: BridgeState, uid: str) -> None:
    gang = state.gang_of.pop(uid, None)
    if gang is not None:
        del state.members[gang][uid]


def _tidy(state: BridgeState) -> None:
    """A gang without waiting pods needs nothing."""
    for gang in [gang for gang, pods in state.members.items() if not pods]:
        del state.members[gang]
        for key in [key for key, need in state.needs.items() if need.ref is None and gang in need.growth.gangs]:
            _no_need(state, key, "gone")
        state.rests.pop(gang, None)


def _withdrawal(state: BridgeState, asked: NodesAsked, reason: WithdrawalReason) -> NodesRequestWithdrawn:
    need = asked.need
    pause = PAUSE_MS * 2 ** min(asked.tries - 1, LONGEST_PAUSE)
    return NodesRequestWithdrawn(
        cause=asked.cause,
        name=asked.name,
        namespace=need.namespace,
        ref=need.ref,
        attempt=need.attempt,
        gangs=need.growth.gangs,
        pools=need.growth.pools,
        reason=reason,
        problem=asked.problem,
        retry_at=state.now + pause if _asks_again(reason) else 0,
        templates=asked.templates,
    )


def _asks_again(reason: WithdrawalReason) -> bool:
    """Whether the nodes are still needed, so that they are requested again after a pause."""
    match reason:
        case "expired" | "failed" | "lapsed" | "deleted":
            return True
        case "met" | "gone" | "changed" | "unknown":
            return False
    assert_never(reason)


def _request(state: BridgeState, key: str, need: NodesNeeded, tries: int) -> NodesRequested:
    called = (
        (need.ref.name if need.ref is not None else key.rpartition("/")[2])[:MAX_BASE].strip("-.").replace(".", "-")
    )
    return NodesRequested(
        cause=need.cause,
        name=f"{called}-{digest((state.log_id, key, need.cause, tries))}",
        namespace=need.namespace,
        ref=need.ref,
        attempt=need.attempt,
        gangs=need.growth.gangs,
        pools=need.growth.pools,
        provisioning=need.growth.provisioning,
        pod_sets=need.growth.pod_sets,
        owners=need.owners,
        until=0 if need.ref is not None else state.now + need.growth.wait_ms,
        tries=tries,
    )


def _as_need(event: NodesRequested) -> NodesNeeded:
    """The need behind a request for nodes."""
    growth = Growth(event.pools, event.pod_sets, event.provisioning, gangs=event.gangs)
    return NodesNeeded(event.cause, growth, event.namespace, event.ref, event.attempt, event.owners, event.until)
