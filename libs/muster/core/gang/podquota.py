"""Quota of standalone pods with places: the admitter proposes the pods to the accountant, and charged pods are placed.
Where the cluster has no object of a quota, no pod waits. A quota not judged yet counts: the accountant judges the quota
first, and answers after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from muster.core.gang.admitterstate import AdmitterState
from muster.core.gang.podunits import Unit, Why
from muster.core.observed.presence import is_alone
from muster.events.facts import KaiQueueGone, KaiQueueObserved, QuotaTreeGone, QuotaTreeObserved
from muster.events.gangs import PodPlace, PodsDenied, PodsProposed, PodsReserved
from muster.model.keys import Position, Ref
from muster.model.problem import problem
from muster.model.workload import PodState


def quota_observed(state: AdmitterState, _at: Position, event: QuotaTreeObserved | KaiQueueObserved) -> None:
    ref = event.queue.ref if isinstance(event, KaiQueueObserved) else event.ref
    state.quotas[ref.uid] = None


def quota_gone(state: AdmitterState, _at: Position, event: QuotaTreeGone | KaiQueueGone) -> None:
    state.quotas.pop(event.ref.uid, None)


def proposed(state: AdmitterState, _at: Position, event: PodsProposed) -> None:
    pods = state.pods
    pods.refusals.pop(event.key, None)
    for uid in pods.proposals.pop(event.key, {}):
        pods.proposed.pop(uid, None)
    together = {ref.uid: True for ref in event.pods} | {ref.uid: False for ref in event.beside}
    known = {uid: starts for uid, starts in together.items() if uid in pods.pods}
    if known:
        pods.proposals[event.key] = known
        pods.proposed.update(dict.fromkeys(known, event.key))


def reserved(state: AdmitterState, _at: Position, event: PodsReserved) -> None:
    for ref in event.pods:
        if ref.uid in state.pods.pods:
            state.pods.reserved[ref.uid] = None
        state.pods.settled(ref.uid)


def denied(state: AdmitterState, _at: Position, event: PodsDenied) -> None:
    key = state.pods.proposed.get(event.pod.uid)
    if key is not None:
        state.pods.refusals[key] = event


# --- decide -------------------------------------------------------------------------------------------------------


def owes(state: AdmitterState, pod: PodState) -> bool:
    """Whether a pod waits for its quota."""
    return bool(state.quotas) and pod.ref.uid not in state.pods.reserved and is_alone(pod, state.owners)


def without_refused(state: AdmitterState, unit: Unit) -> tuple[Unit, dict[str, None]]:
    """(the unit without the pods refused by their quota, the uids of these pods)."""
    key = unit.gangs[0].key
    if key not in state.pods.refusals:
        return unit, {}
    proposed = state.pods.proposals[key]
    tried = [*unit.alone, *(pod for pool in unit.pools.values() for pod in pool)]
    refused = {pod.ref.uid: None for pod in tried if pod.ref.uid in proposed and owes(state, pod)}
    pools = {key: [pod for pod in pool if pod.ref.uid not in refused] for key, pool in unit.pools.items()}
    whole = all(len(pool) >= unit.needs[key] for key, pool in pools.items())  # Together, or not at all.
    alone = [pod for pod in unit.alone if pod.ref.uid not in refused]
    return replace(unit, pools=pools if whole else {}, needs=unit.needs if whole else {}, alone=alone), refused


def charged(state: AdmitterState, unit: Unit, places: list[PodPlace]) -> list[PodPlace]:
    """The places of pods that wait for no quota. Of pods that start together: all places, or none."""
    settled = [place for place in places if not owes(state, state.pods.pods[place.ref.uid])]
    if len(settled) < len(places):
        pods = {place.ref.uid for place in settled}
        for key, pool in unit.pools.items():
            if sum(pod.ref.uid in pods for pod in pool) < unit.needs[key]:
                together = {pod.ref.uid for pool in unit.pools.values() for pod in pool}
                return [place for place in settled if place.ref.uid not in together]
    return settled


def proposal(
    state: AdmitterState, unit: Unit, places: Iterable[PodPlace], refused: Mapping[str, None]
) -> Iterator[PodsProposed]:
    """A proposal of the unit's pods with places that wait for quota; none where the open proposal covers the pods."""
    owing = {place.ref.uid for place in places if owes(state, state.pods.pods[place.ref.uid])} | refused.keys()
    if not owing:
        return
    starts: set[str] = set()
    for key, pool in unit.pools.items():
        starts.update([pod.ref.uid for pod in pool if pod.ref.uid in owing][: unit.needs[key]])
    key, proposed = unit.gangs[0].key, state.pods.proposals.get(unit.gangs[0].key, {})
    asked = {uid: uid in starts for uid in owing}
    if asked.items() <= proposed.items():
        return
    asked = {**proposed, **asked}
    yield PodsProposed(
        cause=max(gang.cause for gang in unit.gangs),
        gang=key if unit.gangs[0].declared is not None else "",
        pods=_refs(state, (uid for uid, together in asked.items() if together)),
        beside=_refs(state, (uid for uid, together in asked.items() if not together)),
        priority=-unit.rank[0],
    )


def held_up(state: AdmitterState, refused: Iterable[str]) -> Iterable[str]:
    """The gangs of refused pods."""
    return dict.fromkeys(state.pods.gang_of[uid] for uid in refused)


def why(state: AdmitterState, unit: Unit) -> Why:
    """The reason why the pods wait: a queue that is paused or takes no pods, or a shortfall."""
    refusal = state.pods.refusals[unit.gangs[0].key]
    if refusal.short is None:
        return Why(
            "no_quota", problem("", "queue_takes_no_pods" if refusal.unknown else "queue_paused", queue=refusal.queue)
        )
    return Why("no_quota", short=refusal.short)


def _refs(state: AdmitterState, uids: Iterable[str]) -> tuple[Ref, ...]:
    return tuple(sorted((state.pods.pods[uid].ref for uid in uids), key=lambda ref: (ref.namespace, ref.name)))
