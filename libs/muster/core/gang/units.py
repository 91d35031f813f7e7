"""What may be tried: the gangs that start together, the pods that count, and what keeps a gang from being tried.

A unit is the gangs of one group. Order: priority, then age, then name.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.gang import jobpods
from muster.core.gang.declare import incomplete, missing, priority_clash
from muster.core.gang.podgang import PodGang, PodGangs
from muster.core.gang.pods import pod_group_of
from muster.core.gang.state import AdmitterState
from muster.core.objects.labels import is_ray_head
from muster.events.gangs import HeldBackReason
from muster.model.demand import Shortfall
from muster.model.places import Shortage
from muster.model.problem import FieldProblem, problem
from muster.model.workload import SCHEDULERS, PodState

MAX_AT_ONCE = 1_500
"""Pods that one decision places at most: it is one message of the log."""
OWNER_MS = 5_000
"""How long a pod waits for its owner to be heard of, which may have a place for it."""


class Why(Struct, frozen=True):
    """Why a gang waits."""

    reason: HeldBackReason
    problem: FieldProblem | None = None
    shortage: Shortage | None = None
    short: Shortfall | None = None
    patient: bool = False
    """What is missing may be on its way."""


class Unit(Struct):
    """Gangs that start together."""

    gangs: list[PodGang]
    rank: tuple[int, int, str]
    """What its place in the order is: the lower, the earlier."""
    pools: dict[str, list[PodState]] = field(default_factory=dict)
    """Key of a gang -> its pods that start together, by name."""
    needs: dict[str, int] = field(default_factory=dict)
    """Key of a gang -> how many of them it needs to start."""
    alone: list[PodState] = field(default_factory=list)
    """Pods that start on their own: their gang has its minimum, or is none."""


def units(state: AdmitterState) -> list[Unit | PodGang]:
    """Everything with pods that wait, first the ones to be tried first; of a parked gang only the gang."""
    found: list[tuple[tuple[int, int, str], Unit | PodGang]] = []
    done: set[str] = set()
    pods = state.pods
    for key in pods.open:
        if key in done:
            continue
        gang = pods.gangs[key]
        if gang.parked is not None:
            found.append((gang.parked.rank, gang))
            continue
        unit = unit_of(state, gang)
        done.update(each.key for each in unit.gangs)
        found.append((unit.rank, unit))
    found.sort(key=lambda each: each[0])
    return [each for _, each in found]


def unit_of(state: AdmitterState, of: PodGang) -> Unit:
    """A gang with pods that wait, and those that start together with it."""
    pods = state.pods
    gangs = [pods.gangs[each] for each in of.group if each in pods.gangs and pods.gangs[each].group == of.group]
    waiting = [pods.pods[uid] for gang in gangs for uid in gang.waiting]
    group = pod_group_of(pods, gangs[0].key)
    created = group.created if group is not None and group.created else min(pod.created for pod in waiting)
    lowest = min(pod.priority or 0 for pod in waiting)
    unit = Unit(gangs, (-lowest, created, gangs[0].key))
    taken = 0
    for gang in gangs:
        pool: list[PodState] = []
        need = _need(gang)
        for uid in gang.waiting:
            pod = pods.pods[uid]
            if not may_be_tried(state, gang, pod):
                continue
            if not need or uid in gang.granted or jobpods.admitted_job(state, pod):
                unit.alone.append(pod)
            else:
                pool.append(pod)
        if need:
            unit.pools[gang.key] = sorted(pool, key=lambda pod: pod.ref.name)[: max(need, MAX_AT_ONCE - taken)]
            unit.needs[gang.key] = need
            taken += len(unit.pools[gang.key])
    # The head of a Ray cluster first: its workers wait for it.
    unit.alone.sort(key=lambda pod: (not is_ray_head(pod.labels), pod.ref.namespace, pod.ref.name))
    return unit


def _need(gang: PodGang) -> int:
    """How many pods a gang must start with at once; 0 when pods of it start on their own."""
    said = gang.declared
    return 0 if said is None or said.refusal is not None else max(missing(said.policy, said.minimum, gang.counted), 0)


def may_be_tried(state: AdmitterState, gang: PodGang, pod: PodState) -> bool:
    """Whether a pod that waits may be given a node at all now."""
    if not pod.ours or pod.gated or resting(state.pods, pod.ref.uid, state.now):
        return False
    if gang.declared is not None and gang.declared.refusal is not None and not jobpods.admitted_job(state, pod):
        return False
    return jobpods.owner_known(state, pod) or state.now >= gang.since + OWNER_MS


def resting(pods: PodGangs, uid: str, now: int) -> bool:
    """Whether the API server refused to bind a pod a short while ago."""
    rest = pods.rests.get(uid)
    return rest is not None and rest.until > now


def problems(state: AdmitterState, unit: Unit) -> dict[str, Why]:
    """Key of a gang -> what keeps it from being tried."""
    own = {gang.key: why for gang in unit.gangs if (why := _own_problem(state, unit, gang)) is not None}
    if len(unit.gangs[0].group) < 2 or not unit.needs:
        return own
    known = [state.pods.gangs.get(key) for key in unit.gangs[0].group]
    said = {gang.key: gang.declared for gang in known if gang is not None and gang.declared is not None}
    found = dict(own)
    for gang in unit.gangs:
        if gang.key in own or gang.declared is None:
            continue
        lacks = incomplete(said, gang.key)
        other = next((key for key in gang.group if key in own), "")
        if lacks is not None or other:
            lacks = lacks or problem("", "gang_of_group_waits", own[other].problem, gang=other)
            found[gang.key] = Why("group_incomplete", lacks, patient=not other or own[other].patient)
    return found


def _own_problem(state: AdmitterState, unit: Unit, gang: PodGang) -> Why | None:
    pods, said = state.pods.pods, gang.declared
    waiting = [pods[uid] for uid in gang.waiting]
    rest = next((pod for pod in waiting if resting(state.pods, pod.ref.uid, state.now)), None)
    if rest is not None:
        why = state.pods.rests[rest.ref.uid].problem or problem("", "said", said="")
        return Why("bind_refused", replace(why, path=str(rest.ref)))
    gated = sum(pod.gated for pod in waiting)
    if said is None:
        return Why("gated") if gated else None
    if said.refusal is not None:
        return Why("refused", said.refusal)
    foreign = next((pod for pod in waiting if not pod.ours), None)
    if foreign is not None:
        names = {"pod": str(foreign.ref), "scheduler": foreign.scheduler, "ours": SCHEDULERS[0]}
        return Why("other_scheduler", problem("", "not_our_scheduler", **names), patient=True)
    need, have = unit.needs.get(gang.key, 0), len(unit.pools.get(gang.key, ()))
    if not need:
        return Why("gated", problem("", "pods_gated", count=gated, gang=gang.key)) if gated else None
    alive = [pods[uid] for uid, stage in gang.pods.items() if stage in ("waiting", "placed", "bound")]
    if len({pod.priority or 0 for pod in alive}) > 1:
        return Why("priority_clash", priority_clash(gang.key, [(pod.ref.name, pod.priority or 0) for pod in alive])[1])
    if sum(unit.needs.values()) > MAX_AT_ONCE:
        count = sum(unit.needs.values())
        return Why("refused", problem("", "too_many_at_once", count=count, most=MAX_AT_ONCE))
    if need <= have:
        return None
    if gated and need <= have + gated:
        return Why("gated", problem("", "pods_gated", count=gated, gang=gang.key))
    return Why("too_few_pods", problem("", "too_few_pods", gang=gang.key, needs=need, has=have), patient=True)
