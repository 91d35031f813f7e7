"""The request of a job for nodes, the present places of a job, and the places after a move.

Every search for places of a job uses the request made here: any smaller request would find room that is not enough. For
moves, a view supposes jobs gone, and the moved jobs start again on other nodes. The search for victims
(``core/victimsearch``) finds the jobs to move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from muster.core.gang.admitterstate import AdmitterState, Gang, QueuedAs, holder_of
from muster.core.placement.devices import PART, shares_gpu
from muster.core.placement.place import place
from muster.core.placement.view import Ask, View
from muster.events.decisions import PreemptionProposed, QuotaReserved
from muster.events.elastic import GrowthOption
from muster.model.places import Move, Placement
from muster.model.placing import GPU, PodRules
from muster.model.problem import problem
from muster.model.resources import Vector, add_into
from muster.model.strategies import Resource, Strategy, strategies
from muster.model.workload import PodSet, least

# --- asks -------------------------------------------------------------------------------------------------------------


def laid_out(state: AdmitterState, event: QuotaReserved | PreemptionProposed) -> None:
    """The queue of the job sets the layout of its pods from now on."""
    gang = state.gangs.get(event.ref.uid)
    if gang is not None:
        gang.placement = event.placement
    if gang is not None or event.ref.uid in state.queued:
        state.queued.setdefault(event.ref.uid, QueuedAs()).placement = event.placement


def asks_of(state: AdmitterState, gang: Gang) -> list[Ask]:
    """The request of a whole gang: every member needed for the start, and the auxiliary pods."""
    return [_ask(state, pods, gang) for pods in (*gang.steered, *gang.auxiliary) if pods.count]


def asks_of_claimant(
    state: AdmitterState, uid: str, growth: GrowthOption | None, pods: int, layout: str | None = None
) -> list[Ask]:
    """The request of a claimant: of the whole gang, or of ``pods`` new workers of a growing cluster.

    ``layout``: the layout that the queue asks for, as in QuotaReserved; None: as last decided.
    """
    gang = state.gangs.get(uid)
    if gang is None:
        return []
    if layout is not None:
        gang = replace(gang, placement=layout)
    return asks_of(state, gang) if growth is None else asks_of_growth(state, gang, growth, pods)


def asks_of_growth(state: AdmitterState, gang: Gang, growth: GrowthOption, pods: int) -> list[Ask]:
    """The request of the new workers of a Ray cluster; empty where unknown. All pieces of the growth are equal.

    ``pods``: the number of workers. For a piece with several groups the request is known where a replica is a single
    pod.
    """
    replicas = {name.lower(): count * growth.times for name, count in growth.groups.items()}
    hosts, rest = divmod(pods, sum(replicas.values()))
    sets = [pod_set for pod_set in gang.steered if pod_set.name in replicas]
    if rest or len(sets) < len(replicas) or (hosts != 1 and len(sets) > 1):
        return []
    return [_ask(state, replace(pod_set, count=replicas[pod_set.name] * hosts, minimum=None), gang) for pod_set in sets]


def _ask(state: AdmitterState, pods: PodSet, gang: Gang) -> Ask:
    request = pods.request if pods.takes is None else pods.takes
    rules = in_force(state, f"{gang.namespace}/{gang.name}-{pods.name}", pods.rules)
    ask = Ask(pods.name, least((pods,)), request, gang.namespace, rules, gang.topology)
    strategy = strategy_of(state, ask, gang.placement)
    return ask if strategy is None else replace(ask, strategy=strategy)


def in_force(state: AdmitterState, name: str, rules: PodRules) -> PodRules:
    """The rules of a pod in this cell. ``name``: namespace and name of the pod, or of its job and pod set."""
    if not shares_gpu(rules) or state.placement.gpu_sharing:
        return rules
    return replace(rules, share=0, gpu_memory=0, unsupported=problem("", "gpu_sharing_off", pod=name))


def strategy_of(state: AdmitterState, ask: Ask, layout: str = "") -> Strategy | None:
    """The layout of the pods of an ask, where different from ``placement.mode``; otherwise None.

    The layout of the queue (``said``) counts first, then the layout for pods without GPUs, for such pods.
    """
    takes: Resource = "gpu" if ask.request.get(GPU) or shares_gpu(ask.rules) else "cpu"
    return strategies(layout).get(takes) or (state.placement.cpu if takes == "cpu" else None)


# --- moving -----------------------------------------------------------------------------------------------------------


def occupants_of(state: AdmitterState, uid: str) -> list[str]:
    """Keys of the occupants of a workload: its pods, and the places held for these pods."""
    held = state.holds[uid].places if uid in state.holds else {}
    keys = dict.fromkeys((*held, uid, *state.ledger.owned.get(uid, ())))
    return [key for key in keys if key in state.ledger.occupants]


def jobs_on(state: AdmitterState, node: str) -> dict[str, list[str]]:
    """{workload uid: keys of its occupants on a node}."""
    by_uid: dict[str, list[str]] = {}
    for key in state.ledger.nodes[node].occupants if node in state.ledger.nodes else ():
        uid = holder_of(state, key) or state.ledger.occupants[key].owner
        if uid:
            by_uid.setdefault(uid, []).append(key)
    return by_uid


def leave(state: AdmitterState, view: View, uids: Iterable[str]) -> None:
    """Remove the workloads from the view: their pods and their held places."""
    for uid in uids:
        for key in occupants_of(state, uid):
            view.give(state.ledger.occupants[key])


def placements(view: View, mark: tuple[int, int]) -> tuple[Placement, ...]:
    """The places taken in the view since a mark."""
    return tuple(Placement(place.ask.name, place.node, place.count, place.devices) for place in view.taken[mark[1] :])


def elsewhere(state: AdmitterState, view: View, uids: Sequence[str], mode: Strategy) -> tuple[Move, ...] | None:
    """New places for all jobs removed from a view, beside the other work; None where a job finds no place."""
    moves: dict[str, Move] = {}
    for uid in sorted(uids, key=lambda uid: (-_size(state, uid), uid)):
        here = view.mark()
        if place(view, asks_of(state, state.gangs[uid]), mode) is not None:
            return None
        keys = occupants_of(state, uid)
        before = tuple(sorted({state.ledger.occupants[key].node for key in keys}))
        moves[uid] = Move(uid, before, placements(view, here))
    return tuple(moves[uid] for uid in uids)


def relocated(state: AdmitterState, moves: Sequence[Move]) -> tuple[Move, ...]:
    """The moves without jobs that would start again on the same nodes: these jobs need no suspension."""
    occupants = state.ledger.occupants

    def stays(move: Move) -> bool:
        now, then = Counter[str](), Counter[str]()
        for key in occupants_of(state, move.uid):
            now[occupants[key].node] += occupants[key].count
        for target in move.places:
            then[target.node] += target.count
        return now == then and not any(target.devices for target in move.places)

    return tuple(move for move in moves if not stays(move))


def may_move(state: AdmitterState, uid: str) -> bool:
    """Whether a job may move: all pods of its request are on nodes, and no more, and the job is in no order."""
    gang = state.gangs.get(uid)
    if gang is None or gang.waits or gang.held or uid in state.orders:
        return False
    occupants = state.ledger.occupants
    pods = sum(occupants[key].count for key in occupants_of(state, uid))
    return pods > 0 and pods == sum(ask.count for ask in asks_of(state, gang))


def may_fit(state: AdmitterState, view: View, asks: Sequence[Ask]) -> bool:
    """Whether the nodes have as much free in all as the asks want: moves do not free more."""
    asked: Vector = {}
    for ask in asks:
        add_into(asked, ask.request, ask.count)
    free: Vector = {}
    for name in state.ledger.nodes:
        slot = view.slot(name)
        if slot is not None:
            group = state.ledger.classes[slot.group]
            for resource, left in zip(group.resources, slot.free, strict=True):
                free[resource] = free.get(resource, 0) + max(left, 0)
            free[GPU] = free.get(GPU, 0) + sum(slot.shared.values()) // PART
    return all(free.get(resource, 0) >= amount for resource, amount in asked.items())


def _size(state: AdmitterState, uid: str) -> int:
    """The size of a job: larger jobs are placed first."""
    return sum(sum(ask.request.values()) * ask.count for ask in asks_of(state, state.gangs[uid]))
