"""What the gang of a job asks of the nodes, as this cluster and its queue have it.

All that look for its places ask for this: with less they would find room that is none.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.core.gang.queued import QueuedAs
from muster.core.gang.state import AdmitterState, Gang
from muster.core.placement.gpus import shares_gpu
from muster.core.placement.view import Ask
from muster.events.decisions import PreemptionProposed, QuotaReserved
from muster.events.elastic import GrowthOption
from muster.model.placing import GPU, PodRules
from muster.model.problem import problem
from muster.model.strategies import Resource, Strategy, strategies
from muster.model.workload import PodSet, least


def laid_out(state: AdmitterState, event: QuotaReserved | PreemptionProposed) -> None:
    """Its queue says from here on how its pods are laid out."""
    gang = state.gangs.get(event.ref.uid)
    if gang is not None:
        gang.placement = event.placement
    if gang is not None or event.ref.uid in state.queued:
        state.queued.setdefault(event.ref.uid, QueuedAs()).placement = event.placement


def asks_of(state: AdmitterState, gang: Gang) -> list[Ask]:
    """What a whole gang asks for: every member it needs to start, and its auxiliary pods."""
    return [_ask(state, pods, gang) for pods in (*gang.pod_sets, *gang.auxiliary) if pods.count]


def asks_of_claimant(state: AdmitterState, uid: str, growth: GrowthOption | None, pods: int) -> list[Ask]:
    """The request of a claimant: of the whole gang, or of ``pods`` new workers of a cluster that grows."""
    gang = state.gangs.get(uid)
    if gang is None:
        return []
    return asks_of(state, gang) if growth is None else asks_of_growth(state, gang, growth, pods)


def asks_of_growth(state: AdmitterState, gang: Gang, growth: GrowthOption, pods: int) -> list[Ask]:
    """What the workers ask for that a Ray cluster wants, piece by piece the same; none where that is not known.

    ``pods``: how many they are. Of a piece of several groups that is known where a replica is one pod.
    """
    replicas = {name.lower(): count * growth.times for name, count in growth.groups.items()}
    hosts, rest = divmod(pods, sum(replicas.values()))
    sets = [each for each in gang.pod_sets if each.name in replicas]
    if rest or len(sets) < len(replicas) or (hosts != 1 and len(sets) > 1):
        return []
    return [_ask(state, replace(each, count=replicas[each.name] * hosts, minimum=None), gang) for each in sets]


def _ask(state: AdmitterState, pods: PodSet, gang: Gang) -> Ask:
    request = pods.request if pods.takes is None else pods.takes
    rules = in_force(state, f"{gang.namespace}/{gang.name}-{pods.name}", pods.rules)
    ask = Ask(pods.name, least((pods,)), request, gang.namespace, rules, gang.topology)
    strategy = strategy_of(state, ask, gang.placement)
    return ask if strategy is None else replace(ask, strategy=strategy)


def in_force(state: AdmitterState, name: str, rules: PodRules) -> PodRules:
    """The rules of a pod as they count here; ``name``: its namespace and name, or that of its job and its set."""
    if not shares_gpu(rules) or state.placement.gpu_sharing:
        return rules
    return replace(rules, share=0, gpu_memory=0, unsupported=problem("", "gpu_sharing_off", pod=name))


def strategy_of(state: AdmitterState, ask: Ask, said: str = "") -> Strategy | None:
    """How the pods of an ask are laid out, where that differs from ``placement.mode``.

    By the word of its queue (``said``), else by that for pods without GPUs, if it is of these.
    """
    takes: Resource = "gpu" if ask.request.get(GPU) or shares_gpu(ask.rules) else "cpu"
    return strategies(said).get(takes) or (state.placement.cpu if takes == "cpu" else None)
