"""Units of pod gangs: which unit may be tried, which gang is parked, and when a notice is due.

A unit is the gangs of a group that start together. Order: priority, then age, then name. For each unit: the pods that
count, and the obstacles to a try.

A parked gang found no place and has not changed since. Its request is kept, so no look at its pods is needed while
other gangs with the same request find no place either. Only a plain gang is parked: every waiting pod is needed, asks
for its own node room alone, and waits for nothing else. Any change of the gang ends the parking.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.gang import heldplaces
from muster.core.gang.admitterstate import AdmitterState
from muster.core.gang.declare import incomplete, missing, priority_clash
from muster.core.gang.podgangs import Parked, PodGang, PodGangs, pod_group_of
from muster.core.objects.meta import is_ray_head
from muster.core.placement.matching import pod_labels_asked
from muster.events.gangs import MAX_PODS_NAMED, GangHeldBack, HeldBackReason, lacks_nodes
from muster.model.demand import Shortfall
from muster.model.places import Shortage
from muster.model.problem import FieldProblem, problem
from muster.model.workload import SCHEDULERS, PodState

# --- notices ----------------------------------------------------------------------------------------------------------


TELL_AGAIN_MS = 60_000
"""The shortest pause between notices with the same reason and other numbers."""
GRACE_MS = 10_000
"""The time for the pods of a gang to come before the first notice of missing pods."""
BROKEN_MS = 60_000
"""The time for a gang to replace lost pods before a notice."""
STARVED_MS = 20 * 60_000
"""The time of admissions before a waiting gang until the gang counts as starved."""
LONGEST_ROUND = 6
"""The number of rounds with twice the length of the round before."""


def told_lately(state: AdmitterState, gang: PodGang) -> bool:
    """Whether a notice of missing places was made shortly before, and no news is due."""
    told = gang.told
    if told is None or not lacks_nodes(told.reason) or state.now >= told.at + TELL_AGAIN_MS or over(state, gang):
        return False
    # News is due at once where another gang took the room, where the nodes named to the gang do not come,
    # and where other pools are declared now.
    return not (passed(gang) or elsewhere(state, gang))


def gave_way(state: AdmitterState, gang: PodGang) -> HeldBackReason:
    """The reason to tell of a gang that another gang passed: ``gave_way``, and ``starved`` once the gang has waited for
    ``STARVED_MS``.
    """
    since = gang.claimant.since
    starved = since and state.now >= since + STARVED_MS
    return "starved" if starved else "gave_way"


def over(state: AdmitterState, gang: PodGang) -> bool:
    """Whether the round of the gang is over."""
    return bool(gang.cycle_since) and state.now >= round_ends(gang)


def passed(gang: PodGang) -> bool:
    """Whether another gang took the room since the notice of missing places."""
    return gang.told is not None and gang.told.reason == "no_nodes" and bool(gang.by)


def elsewhere(state: AdmitterState, gang: PodGang) -> bool:
    """Whether nodes named to a gang do not come, or the declaration of pools has changed since the notice."""
    told = gang.told
    if told is None or (told.growing and gang.growth is None):
        return told is not None
    return told.pools != state.pools_rv


def broken(state: AdmitterState) -> Iterator[GangHeldBack]:
    """A notice for each started gang with fewer pods than its minimum, made only once."""
    for key in state.pods.broken:
        gang = state.pods.gangs[key]
        if state.now >= gang.changed + BROKEN_MS and (gang.told is None or gang.told.reason != "broken"):
            yield GangHeldBack(
                cause=gang.cause,
                gang=key,
                cycle=gang.cycle,
                reason="broken",
                problem=problem("", "pods_lost", running=gang.count("placed", "bound"), lacks=gang.lacks),
                minimum=gang.lacks,
            )


def named(state: AdmitterState, gang: PodGang) -> list[str]:
    """The waiting pods named in an event, as uids."""
    pods = state.pods.pods
    return sorted(gang.waiting, key=lambda uid: pods[uid].ref.name)[:MAX_PODS_NAMED]


def round_ends(gang: PodGang) -> int:
    """Log time (ms) at which the round of a gang is over."""
    first = gang.declared.timeout_ms if gang.declared is not None else 600_000
    return gang.cycle_since + (first << min(max(gang.cycle - 1, 0), LONGEST_ROUND))


# --- units ------------------------------------------------------------------------------------------------------------


MAX_AT_ONCE = 1_500
"""The most pods in a decision, which is a single message of the log."""
OWNER_MS = 5_000
"""The wait of a pod for news of its owner, which may have a place for the pod."""


class Why(Struct, frozen=True):
    """Why a gang waits."""

    reason: HeldBackReason
    problem: FieldProblem | None = None
    shortage: Shortage | None = None
    short: Shortfall | None = None
    patient: bool = False
    """The missing pods may be on their way."""


class Unit(Struct):
    """Gangs that start together."""

    gangs: list[PodGang]
    rank: tuple[int, int, str]
    """The place in the order; the lowest is tried first."""
    pools: dict[str, list[PodState]] = field(default_factory=dict)
    """Key of a gang -> its pods that start together, by name."""
    needs: dict[str, int] = field(default_factory=dict)
    """Key of a gang -> the number of these pods needed for the start."""
    alone: list[PodState] = field(default_factory=list)
    """Pods that start singly: their gang has its minimum, or no gang is declared."""


def units(state: AdmitterState) -> list[Unit | PodGang]:
    """All gangs with waiting pods in the order of tries; units, and parked gangs without their unit."""
    ordered: list[tuple[tuple[int, int, str], Unit | PodGang]] = []
    done: set[str] = set()
    pods = state.pods
    for key in pods.open:
        if key in done:
            continue
        gang = pods.gangs[key]
        if gang.parked is not None:
            ordered.append((gang.parked.rank, gang))
            continue
        unit = unit_of(state, gang)
        done.update(member.key for member in unit.gangs)
        ordered.append((unit.rank, unit))
    ordered.sort(key=lambda entry: entry[0])
    return [unit for _, unit in ordered]


def unit_of(state: AdmitterState, of: PodGang) -> Unit:
    """The unit of a gang with waiting pods: all gangs of its group."""
    pods = state.pods
    gangs = [pods.gangs[member] for member in of.group if member in pods.gangs and pods.gangs[member].group == of.group]
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
            if not need or uid in gang.granted or heldplaces.admitted_job(state, pod):
                unit.alone.append(pod)
            else:
                pool.append(pod)
        if need:
            unit.pools[gang.key] = sorted(pool, key=lambda pod: pod.ref.name)[: max(need, MAX_AT_ONCE - taken)]
            unit.needs[gang.key] = need
            taken += len(unit.pools[gang.key])
    # The head of a Ray cluster first: its workers wait for the head.
    unit.alone.sort(key=lambda pod: (not is_ray_head(pod.labels), pod.ref.namespace, pod.ref.name))
    return unit


def _need(gang: PodGang) -> int:
    """The number of pods that a gang must start with at once; 0 where its pods start singly."""
    declared = gang.declared
    return (
        0
        if declared is None or declared.refusal is not None
        else max(missing(declared.policy, declared.minimum, gang.counted), 0)
    )


def may_be_tried(state: AdmitterState, gang: PodGang, pod: PodState) -> bool:
    """Whether a waiting pod may have a node now."""
    if not pod.ours or pod.gated or resting(state.pods, pod.ref.uid, state.now):
        return False
    if gang.declared is not None and gang.declared.refusal is not None and not heldplaces.admitted_job(state, pod):
        return False
    return heldplaces.owner_known(state, pod) or state.now >= gang.since + OWNER_MS


def resting(pods: PodGangs, uid: str, now: int) -> bool:
    """Whether the API server refused to bind a pod a short while ago."""
    rest = pods.rests.get(uid)
    return rest is not None and rest.until > now


def problems(state: AdmitterState, unit: Unit) -> dict[str, Why]:
    """{key of a gang: obstacle to a try}."""
    own = {gang.key: why for gang in unit.gangs if (why := _own_problem(state, unit, gang)) is not None}
    if len(unit.gangs[0].group) < 2 or not unit.needs:
        return own
    known = [state.pods.gangs.get(key) for key in unit.gangs[0].group]
    declared = {gang.key: gang.declared for gang in known if gang is not None and gang.declared is not None}
    whys = dict(own)
    for gang in unit.gangs:
        if gang.key in own or gang.declared is None:
            continue
        lacks = incomplete(declared, gang.key)
        other = next((key for key in gang.group if key in own), "")
        if lacks is not None or other:
            lacks = lacks or problem("", "gang_of_group_waits", own[other].problem, gang=other)
            whys[gang.key] = Why("group_incomplete", lacks, patient=not other or own[other].patient)
    return whys


def _own_problem(state: AdmitterState, unit: Unit, gang: PodGang) -> Why | None:
    pods, declared = state.pods.pods, gang.declared
    waiting = [pods[uid] for uid in gang.waiting]
    rest = next((pod for pod in waiting if resting(state.pods, pod.ref.uid, state.now)), None)
    if rest is not None:
        why = state.pods.rests[rest.ref.uid].problem or problem("", "said", said="")
        return Why("bind_refused", replace(why, path=str(rest.ref)))
    gated = sum(pod.gated for pod in waiting)
    if declared is None:
        return Why("gated") if gated else None
    if declared.refusal is not None:
        return Why("refused", declared.refusal)
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


# --- parked -----------------------------------------------------------------------------------------------------------


def key_of(shapes: Iterable[tuple[str, int]]) -> str:
    """A text equal for equal requests: (shape, number of pods) in order."""
    return repr(list(shapes))


def park(state: AdmitterState, gang: PodGang) -> None:
    """Keep the request of a gang that found no place just now, where the request is plain."""
    gang.parked = None
    declared, told = gang.declared, gang.told
    if declared is None or told is None or not lacks_nodes(told.reason) or not gang.waiting or len(gang.group) > 1:
        return
    unit = unit_of(state, gang)
    pool = unit.pools.get(gang.key, [])
    if not unit.needs.get(gang.key) == len(pool) == len(gang.waiting) or problems(state, unit):
        return
    owners = tuple(dict.fromkeys(pod.owner_uid for pod in pool if pod.owner_uid))
    if pod_labels_asked(pod.rules for pod in pool) or (owners and state.now < gang.since + OWNER_MS):
        return
    alike: dict[str, list[str]] = {}
    for pod in pool:
        alike.setdefault(state.pods.shapes[pod.ref.uid], []).append(pod.ref.name)
    ordered = sorted(alike.items())
    key = key_of((shape, len(names)) for shape, names in ordered)
    gang.parked = Parked(key, unit.rank, tuple(names[0] for _, names in ordered), owners)


def is_parked(state: AdmitterState, gang: PodGang) -> bool:
    """Whether the parked request still holds: the job of the pods may have been admitted with places for the pods."""
    parked = gang.parked
    return parked is not None and not any(state.owners.get(uid, uid) in state.whole for uid in parked.owners)
