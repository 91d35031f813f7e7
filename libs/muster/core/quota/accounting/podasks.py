"""Pods of no job wait for their quota: the accountant's answers for pods with places from the gang admitter.

Pods that start together are charged together, or not at all. Pods that do not fit are denied once, and charged as soon
as they fit. A pod of no counted quota may be placed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from muster.core.objects.gpushares import charged
from muster.core.placement.devices import shares_gpu
from muster.core.quota.accountantstate import AccountantState
from muster.core.quota.demand import Scratch, chain_of
from muster.core.quota.ledger import standalone
from muster.core.quota.ledger.standalone import PodsOpen
from muster.events.base import Cause, Decision
from muster.events.gangs import PodsDenied, PodsProposed, PodsReserved
from muster.model.demand import Demand, Shortfall
from muster.model.keys import Position
from muster.model.placing import GPU
from muster.model.resources import Vector, add_into
from muster.model.workload import PodState


def proposed(state: AccountantState, at: Position, event: PodsProposed) -> None:
    drop(state, event.key)
    together, beside = (
        {ref.uid: ref for ref in refs if ref.uid in state.standalone or is_left_behind(state, ref.uid)}
        for refs in (event.pods, event.beside)
    )
    if together or beside:
        state.asks[event.key] = PodsOpen(event.gang, together, beside, event.priority, Cause(at.seq, at.item))
        state.asked_by.update(dict.fromkeys((*together, *beside), event.key))


def is_left_behind(state: AccountantState, uid: str) -> bool:
    """Whether a pod belongs to the charge of a job. A pod left behind by its job (``--cascade=orphan``) still does."""
    owner = state.presence.pod_owner.get(uid, "")
    return state.presence.owner_of.get(owner, owner) in state.entries


def counted(state: AccountantState, pod: PodState) -> PodState:
    """A pod with its shares of GPUs: of the devices of its node, before it has one of the largest within reach."""
    if not shares_gpu(pod.rules):
        return pod
    memory = state.forest.device_of(pod.node, pod.rules)
    request = dict(sorted({**pod.request, GPU: charged(pod.rules, memory)}.items()))
    return replace(pod, request=request)


def note_sharing(state: AccountantState, uid: str, pod: PodState | None) -> None:
    """Remember a pod that shares GPUs; None: the pod is gone."""
    before = state.sharing.pop(uid, None)
    on_node = state.sharing_on.get(before.node) if before is not None else None
    if before is not None and on_node is not None and on_node.pop(uid, 0) is None and not on_node:
        del state.sharing_on[before.node]
    if pod is not None and shares_gpu(pod.rules) and not pod.over:
        state.sharing[uid] = pod
        if pod.rules.gpu_memory and pod.node:
            state.sharing_on.setdefault(pod.node, {})[uid] = None


def reserved(state: AccountantState, _at: Position, event: PodsReserved) -> None:
    for ref in event.pods:
        answered(state, ref.uid)


def denied(state: AccountantState, _at: Position, event: PodsDenied) -> None:
    ask = state.asks.get(state.asked_by.get(event.pod.uid, ""))
    if ask is not None:
        ask.denied = event


def answered(state: AccountantState, uid: str) -> None:
    """The pod waits for no answer any more."""
    key = state.asked_by.pop(uid, "")
    ask = state.asks.get(key)
    if ask is not None:
        ask.together.pop(uid, None)
        ask.beside.pop(uid, None)
        if not ask.together and not ask.beside:
            del state.asks[key]


def drop(state: AccountantState, key: str) -> None:
    """An earlier proposal with this key is void."""
    ask = state.asks.pop(key, None)
    for uid in (*ask.together, *ask.beside) if ask is not None else ():
        state.asked_by.pop(uid, None)


# --- decide -------------------------------------------------------------------------------------------------------


def answers(state: AccountantState, scratch: Scratch) -> Iterator[Decision]:
    """The pods that may be placed: pods charged in part come first, then the highest priority, then the oldest
    proposal.
    """

    def in_part(ask: PodsOpen) -> bool:
        return any(uid in state.entries for uid in ask.together)

    def order(ask: PodsOpen) -> tuple[bool, int, Cause]:
        return not in_part(ask), -ask.priority, ask.cause

    for ask in sorted(state.asks.values(), key=order) if state.asks else ():
        # A full commit has only the first charges of the proposal: a denial of the whole says nothing about the rest.
        if ask.denied is not None and not in_part(ask) and not _room_again(state, ask.denied):
            continue
        refused: PodsDenied | None = None
        for uids in ([[*ask.together]] if ask.together else []) + [[uid] for uid in ask.beside]:
            short = _denial(state, ask, uids, scratch)
            if short is not None:
                refused = refused or short
                if uids[0] in ask.together:
                    break  # The other pods would hold quota idle until the start.
                continue
            for uid in _uncharged(state, uids):
                adopted = standalone.adoption(state.ledger, state.standalone[uid], "reserved")
                scratch.add(adopted.queue, Demand(adopted.request, 1, adopted.preemptible))
                yield adopted
            yield PodsReserved(
                cause=ask.cause, gang=ask.gang, pods=tuple((ask.together.get(uid) or ask.beside[uid]) for uid in uids)
            )
        if refused is not None and _is_news(ask, refused):
            yield refused


def _uncharged(state: AccountantState, uids: Iterable[str]) -> list[str]:
    """The pods of a counted quota without a charge; a pod left behind by its job has a charge."""
    return [
        uid
        for uid in uids
        if uid in state.standalone
        and uid not in state.entries
        and standalone.leaf_of(state.ledger, state.standalone[uid]) is not None
    ]


def _denial(state: AccountantState, ask: PodsOpen, uids: list[str], scratch: Scratch) -> PodsDenied | None:
    """The denial of these pods as a whole."""
    asked: dict[tuple[str, bool], tuple[Vector, list[str]]] = {}
    for pod in (state.standalone[uid] for uid in uids if uid in state.standalone and uid not in state.entries):
        if name := standalone.no_leaf(state.ledger, pod):
            return PodsDenied(cause=ask.cause, gang=ask.gang, pod=pod.ref, queue=name, unknown=True)
    for uid in _uncharged(state, uids):
        pod = state.standalone[uid]
        leaf = standalone.leaf_of(state.ledger, pod) or ""
        preemptible = standalone.is_preemptible_at(state.ledger, pod, leaf)
        request, alike = asked.setdefault((leaf, preemptible), ({}, []))
        add_into(request, pod.request)
        alike.append(uid)
    beside = Scratch()
    for (leaf, preemptible), (request, alike) in asked.items():
        paused = "admissions" in state.resting(leaf)
        demand = Demand(request, len(alike), preemptible, jobs=len(alike))
        short = None if paused else state.ledger.shortfall(leaf, demand, scratch, beside, now=state.now)
        if paused or short is not None:
            return PodsDenied(
                cause=ask.cause,
                gang=ask.gang,
                pod=state.standalone[alike[0]].ref,
                queue=leaf,
                short=short,
            )
        firm = not (preemptible and state.ledger.by_shares(leaf))
        beside.add(leaf, replace(demand, preemptible=not firm))
    return None


def _room_again(state: AccountantState, refusal: PodsDenied) -> bool:
    """Whether a denied proposal is worth another look: with room, or where the refusing limit does not count
    any more.
    """
    short, pod = refusal.short, state.standalone.get(refusal.pod.uid)
    if refusal.unknown:
        return pod is None or standalone.no_leaf(state.ledger, pod) != refusal.queue
    if short is None:
        return "admissions" not in state.resting(refusal.queue)
    leaf = standalone.leaf_of(state.ledger, pod) if pod is not None else None
    room = state.ledger.room(refusal.queue, short.path, short.resource, of_min=short.of_min)
    return room is None or room >= short.asked or short.path not in chain_of(refusal.queue) or leaf != refusal.queue


def _is_news(ask: PodsOpen, refusal: PodsDenied) -> bool:
    was = ask.denied
    return was is None or (was.queue, _where(was.short)) != (refusal.queue, _where(refusal.short))


def _where(short: Shortfall | None) -> tuple[str, str, int] | None:
    return (short.path, short.resource, short.asked) if short is not None else None
