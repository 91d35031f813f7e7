"""One event in words, from the event alone: what ``muster tail`` prints, whatever came before.

What needs the state around an event (positions, what is free, who gave it back) is in core.story.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from muster.core.wording import explain, explain_claims, explain_nodes, problems, refusals, telling_nodes, telling_ray
from muster.core.wording.explain_shares import told_shares
from muster.core.wording.terms import terms
from muster.core.workloads.registry import suspend_field
from muster.events import alarms, claims, clearing, effects, elastic, facts, gangs, growing, system
from muster.events import decisions as d
from muster.events.base import Event
from muster.events.charges import ChargeChanged
from muster.events.envelope import Commit
from muster.events.raydemand import RayDemandObserved
from muster.events.shares import SharesChanged
from muster.model.keys import Ref
from muster.model.resources import Vector, format_vector
from muster.model.text import counted, shorten, span
from muster.model.workload import PodSet, Workload

MAX_TEXT = 400


class EventWords(Struct, frozen=True):
    """An event in words: ``queued``, the job it is about, and the rest of the sentence."""

    word: str
    subject: str
    text: str


def tell(event: Event) -> EventWords:
    """Any event of the log in words."""
    word, say = _WORDS[type(event)]
    if isinstance(event, effects.EffectApplied | effects.EffectFailed):
        word = (_DONE if isinstance(event, effects.EffectApplied) else _NOT_DONE)[event.action]
    return EventWords(word, subject_of(event), shorten(say(event), MAX_TEXT))


def tell_of(commit: Commit, index: int) -> EventWords:
    """One event of a commit in words; one that names no object is about the stage that said it."""
    told = tell(commit.events[index])
    if isinstance(commit.events[index], system.LeaderStarted | system.TimeReached):
        return EventWords(told.word, f"{commit.stage}/{commit.shard}", told.text)
    return told


_HOLDERS = ("workload", "pod", "child", "node", "tree", "pod_group")


def ref_of(event: Event) -> Ref | None:
    """The object an event is about, None when it is about none or several."""
    for holder in (event, *(getattr(event, name, None) for name in _HOLDERS)):
        ref = getattr(holder, "ref", None)
        if isinstance(ref, Ref):
            return ref
    return None


def subject_of(event: Event) -> str:
    """What an event is about, as people name it: jobs by ``namespace/name``, anything else with its kind."""
    if isinstance(event, d.CandidatesProposed):
        first = event.candidates[0].ref.key if event.candidates else ""
        return f"{first} +{len(event.candidates) - 1}" if len(event.candidates) > 1 else first
    if isinstance(event, growing.NodesRequested | growing.NodesRequestWithdrawn):
        return event.ref.key if event.ref is not None else event.gangs[0] if event.gangs else event.name
    if isinstance(event, facts.Synced):
        return event.kind
    if isinstance(event, facts.SyncStarted):
        return ", ".join(event.kinds)
    if isinstance(event, gangs.PodsPlaced | gangs.PodsReleased):
        return event.gangs[0] if event.gangs else str(event.pods[0].ref) if event.pods else ""
    if isinstance(event, gangs.PodsProposed | gangs.PodsReserved | gangs.PodsDenied):
        beside = event.beside if isinstance(event, gangs.PodsProposed) else ()
        pods = (event.pod,) if isinstance(event, gangs.PodsDenied) else (*event.pods, *beside)
        return event.gang or str(pods[0])
    if isinstance(event, gangs.GangHeldBack | gangs.NodesClaimed | gangs.NodesClaimEnded):
        pods = event.pods if isinstance(event, gangs.GangHeldBack) else ()
        return event.gang or (str(pods[0]) if pods else "")
    ref = ref_of(event)
    if ref is None:
        return ""
    return ref.key if ref.kind.endswith("Job") else str(ref)


# --- phrases that others use too ----------------------------------------------------------------------------------


def asks(workload: Workload, profile: str = "ack") -> str:
    """What a workload asks for, in all and per pod set."""
    need = workload.need.get(profile) or next(iter(workload.need.values()), {})
    return f"{format_vector(need)}{_sets(workload.pod_sets)}"


def _sets(pod_sets: tuple[PodSet, ...]) -> str:
    if not pod_sets:
        return ""
    shown = "; ".join(f"{pods.name} {pods.count} × {format_vector(pods.request)}" for pods in pod_sets[:8])
    more = f"; and {len(pod_sets) - 8} more" if len(pod_sets) > 8 else ""
    return f" ({shown}{more})"


def denied(event: d.QuotaDenied) -> str:
    """Why a proposal was denied."""
    if event.short is None:
        return "what was proposed is no longer so: looked at again"
    return explain.waiting_for_quota(event.short).text


def before(event: system.Genesis) -> str:
    """What came before a generation of the log, and who rolled it over; nothing for the first."""
    if not event.parent:
        return ""
    if not event.state:
        return f"; the log before it, {event.parent}, is lost"
    who = f" by {event.by}" if event.by else ""
    return f"; log {event.parent} was rolled over{who}{f': {event.reason}' if event.reason else ''}"


def placement(event: system.PlacementChosen) -> str:
    """How gangs are placed from here on."""
    if event.mode == "off":
        return "gangs are admitted by quota alone"
    if event.mode == "native":
        kept = f"; one that it has no places for keeps its quota for {span(event.grow_ms)}" if event.grow_ms else ""
        return f"gangs are admitted by quota, and placed by kube-scheduler{kept}"
    how = "packed" if event.mode == "pack" else "spread"
    if event.cpu not in (None, event.mode):
        how += f", and {'packed' if event.cpu == 'pack' else 'spread'} where they take no GPU"
    return f"gangs are placed on nodes, {how}; places are held for {span(event.hold_ms)}"


def outcome(event: facts.WorkloadFinished) -> str:
    detail = f" ({event.detail})" if event.detail else ""
    return f"{event.outcome or 'over'}{detail}"


def tree_summary(event: d.QuotaTreeAccepted) -> str:
    """How large a tree is, and what its root may use."""
    nodes = event.tree.nodes
    root = format_vector(nodes[0].limit) if nodes else ""
    warned = f"; {'; '.join(map(problems.line, event.warnings[:5]))}" if event.warnings else ""
    return f"{counted(len(nodes), 'queue')}, in all {root}{warned}"


def broken_rules(event: d.QuotaTreeRejected) -> str:
    """Which rules a refused tree breaks."""
    shown = "; ".join(map(problems.line, event.violations[:3]))
    more = f"; and {len(event.violations) - 3} more" if len(event.violations) > 3 else ""
    return f"refused as a whole, the last good tree stays in force: {shown}{more}"


def _observed(event: facts.WorkloadObserved) -> str:
    workload = event.workload
    stands = "suspended" if workload.suspended else "not suspended"
    detail = f" ({workload.detail})" if workload.detail else ""
    refused = f"; cannot be queued: {problems.line(workload.refusal)}" if workload.refusal is not None else ""
    return f"{stands}, {workload.phase}{detail}; asks for {asks(workload)}{refused}"


def _pod(event: facts.PodObserved) -> str:
    pod = event.pod
    stands = "over" if pod.over else "running" if pod.running else "pending"
    where = f" on {pod.node}" if pod.node else ""
    return f"{stands}{where}"


def _request(queue: str, request: Vector) -> str:
    return f"{format_vector(request)} at {queue}"


def _queue_object(event: facts.QueueObserved) -> str:
    priority = f", priority {event.priority}" if event.priority else ""
    return f"stands for {event.path or 'no quota'}, policy {event.policy or 'unset'}{priority}"


def _applied(event: effects.EffectApplied) -> str:
    if event.action == "bind":
        return "bound to its node"
    if event.action in ("request_nodes", "withdraw_nodes"):
        return "nodes are asked for" if event.action == "request_nodes" else "nodes are asked for no longer"
    if event.action == "free_gpu":
        return "the pod that kept a GPU is deleted"
    if event.action == "remove_worker":
        return "the pod of the worker is deleted"
    if event.action == "gate":
        return f"maxReplicas is what is granted as of resourceVersion {event.rv}"
    field, value = suspend_field(event.ref.kind), str(event.action == "suspend").lower()
    return f"{field} is {value} as of resourceVersion {event.rv}"


_DONE = {
    "resume": "resumed",
    "suspend": "suspended",
    "bind": "bound",
    "request_nodes": "nodes asked",
    "withdraw_nodes": "request gone",
    "free_gpu": "gpu freed",
    "gate": "max written",
    "remove_worker": "pod deleted",
}
_NOT_DONE = {
    "resume": "not resumed",
    "suspend": "not stopped",
    "bind": "not bound",
    "request_nodes": "not asked",
    "withdraw_nodes": "not removed",
    "free_gpu": "gpu kept",
    "gate": "max not set",
    "remove_worker": "not deleted",
}
"""What the API server was asked to do to an object, once it has, or has not."""
_FAILED = {"resume": explain.NOT_RESUMED, "suspend": explain.NOT_SUSPENDED, "bind": explain.NOT_BOUND}


def _failed(event: effects.EffectFailed) -> str:
    if event.action in ("request_nodes", "withdraw_nodes"):
        refused = explain.NOT_ASKED if event.action == "request_nodes" else explain.NOT_WITHDRAWN
        return refused + (f": {event.message}" if event.message else "")
    if event.action == "free_gpu":
        return explain.GPU_KEPT + (f": {event.message}" if event.message else "")
    if event.action == "gate":
        return telling_ray.not_written(event)
    if event.action == "remove_worker":
        return telling_ray.not_removed(event)
    words = _FAILED[event.action]
    return words[event.reason] + (f": {event.message}" if event.message else "")


def _proposed(event: d.CandidatesProposed) -> str:
    shown = ", ".join(f"{each.ref.key} at {each.queue}" for each in event.candidates[:5])
    more = f", and {len(event.candidates) - 5} more" if len(event.candidates) > 5 else ""
    return f"{counted(len(event.candidates), 'job')} to try now: {shown}{more}"


def _victims(victims: tuple[d.Victim, ...]) -> str:
    shown = ", ".join(f"{each.ref.key} ({format_vector(each.request)} at {each.queue})" for each in victims[:5])
    more = f", and {len(victims) - 5} more" if len(victims) > 5 else ""
    return f"{shown}{more}"


def _preemption(event: d.PreemptionProposed) -> str:
    if not event.victims and not event.partial:
        return f"{_request(event.queue, event.request)} should be held for it: it has waited too long"
    whole = f"{_victims(event.victims)} should give way to it" if event.victims else ""
    parts = f"{telling_ray.parts(event.partial)} should be given back to it" if event.partial else ""
    told = " and ".join(each for each in (whole, parts) if each)
    return f"{told}; {explain.WITHHELD[event.withheld]}" if event.withheld else told


def _for_what(event: d.EvictionOrdered) -> str:
    if event.kind == "service":
        return "goes ahead of jobs that have had more GPU time"
    lower = sum(each.priority is not None for each in event.victims)
    lower += sum(each.priority is not None for each in event.partial)
    if not lower:
        return f"gets its {terms(event.queue).right}"
    ahead = f"goes ahead of lower priority in its queue (it has {event.priority})"
    whole = lower == len(event.victims) + len(event.partial)
    return ahead if whole else f"gets its {terms(event.queue).right} and {ahead}"


def _ordered(event: d.EvictionOrdered) -> str:
    whole = f"{_victims(event.victims)} suspended" if event.victims else ""
    parts = f"{telling_ray.parts(event.partial)} taken back" if event.partial else ""
    return f"{' and '.join(each for each in (whole, parts) if each)} so that it {_for_what(event)}"


def _recharged(event: ChargeChanged) -> str:
    said = f"{_request(event.queue, event.request)} from here on"
    return f"{said}: {format_vector(event.over)} runs beyond what was granted" if event.over else f"{said}, as granted"


def _gone(_event: facts.ObjectGone) -> str:
    return "no longer exists"


_Say = Callable[[Any], str]

_WORDS: Mapping[type[Event], tuple[str, _Say]] = {
    system.Genesis: ("genesis", lambda e: f"log {e.log_id}, generation {e.generation}{before(e)}"),
    system.LeaderStarted: ("leading", lambda e: f"process {e.process} leads from here on"),
    system.TimeReached: ("time", lambda _: "a deadline has passed"),
    system.LogNearlyFull: (
        "nearly full",
        lambda e: f"the log is {e.percent} % full: nothing is queued or admitted until a new generation is in force",
    ),
    system.PlacementChosen: ("placement", lambda e: placement(e)),
    system.RulesetActivated: ("ruleset", lambda e: f"rule set {e.number} is in force"),
    facts.SyncStarted: ("listing", lambda _: "nothing is admitted until all of them are listed"),
    facts.KindsConfigured: ("configured", lambda e: f"these kinds are queued: {', '.join(e.kinds)}"),
    facts.Synced: (
        "listed",
        lambda e: (
            "the cluster does not serve this kind" if e.absent else counted(e.objects, "object exists", "objects exist")
        ),
    ),
    facts.WorkloadObserved: ("observed", _observed),
    facts.WorkloadStarted: ("running", lambda e: e.detail),
    facts.WorkloadFinished: ("finished", outcome),
    facts.WorkloadGone: ("gone", _gone),
    facts.ChildObserved: ("observed", lambda _: "exists"),
    facts.ChildGone: ("gone", _gone),
    facts.PodObserved: ("observed", _pod),
    facts.PodGone: ("gone", _gone),
    facts.PodGroupObserved: ("observed", lambda e: explain_nodes.group_seen(e.pod_group)),
    facts.PodGroupGone: ("gone", _gone),
    facts.NodeObserved: ("observed", lambda e: f"has {format_vector(e.node.allocatable)}"),
    facts.NodeGone: ("gone", _gone),
    facts.KaiQueueObserved: ("observed", lambda e: f"as of resourceVersion {e.queue.rv}"),
    facts.KaiQueueGone: ("gone", _gone),
    facts.QuotaTreeObserved: ("observed", lambda e: f"as of resourceVersion {e.rv}"),
    facts.QuotaTreeGone: ("gone", _gone),
    facts.QueueObserved: ("observed", _queue_object),
    facts.QueueGone: ("gone", _gone),
    facts.QueueUnitObserved: ("observed", lambda e: f"shows {e.phase or 'nothing yet'}"),
    facts.QueueUnitGone: ("gone", _gone),
    facts.PriorityClassObserved: ("observed", lambda e: f"value {e.value}" + (", the default" if e.is_default else "")),
    facts.PriorityClassGone: ("gone", _gone),
    facts.NodePoolsObserved: ("observed", telling_nodes.node_pools),
    facts.NodePoolsGone: ("gone", _gone),
    facts.NodesRequestObserved: (
        "observed",
        lambda e: f"{e.phase or 'not answered yet'}{f': {e.message}' if e.message else ''}",
    ),
    facts.NodesRequestGone: ("gone", _gone),
    facts.ObjectUnreadable: ("unreadable", lambda e: problems.line(e.problem)),
    RayDemandObserved: ("demand", telling_ray.demand),
    d.WorkloadQueued: (
        "queued",
        lambda e: f"asks for {_request(e.queue, e.request)}, priority {e.priority}, attempt {e.attempt}",
    ),
    d.WorkloadDequeued: ("left", lambda e: f"leaves {e.queue}: {explain.DEQUEUED[e.reason]}"),
    d.WorkloadRefused: ("refused", lambda e: refusals.refused(e.refusal, e.ref.kind, e.ref.key)),
    d.CandidatesProposed: ("proposed", _proposed),
    d.QuotaTreeAccepted: ("in force", tree_summary),
    d.QuotaTreeRejected: ("refused", broken_rules),
    d.QuotaTreeRemoved: ("removed", lambda _: "nothing is admitted until another tree is applied"),
    d.QuotaReserved: (
        "reserved",
        lambda e: f"{_request(e.queue, e.request)} from here on{explain_claims.beside(e.beside, e.run_ms, e.promised)}",
    ),
    d.QuotaMoved: ("moved", lambda e: f"{_request(e.queue, e.request)} from here on, before at {e.before}"),
    d.QuotaDenied: ("denied", denied),
    d.WorkloadAdopted: ("adopted", lambda e: f"{_request(e.queue, e.request)}: {explain.ADOPTED[e.reason]}"),
    ChargeChanged: ("charged", _recharged),
    SharesChanged: ("shares", told_shares),
    d.SuspensionRecorded: ("suspended", lambda _: explain.SUSPENDED_OUTSIDE.text),
    d.QuotaReleased: ("released", lambda e: f"{_request(e.queue, e.request)}: {explain.RELEASED[e.reason]}"),
    d.PreemptionProposed: ("preemption", _preemption),
    d.ReclaimDeferred: ("deferred", lambda e: explain.DEFERRED[e.reason].format(e.resource, terms(e.path).where)),
    d.EvictionOrdered: ("reclaims", _ordered),
    clearing.ClearingProposed: ("clearing", telling_nodes.clearing_proposed),
    clearing.ClearingTried: ("tried", telling_nodes.clearing_tried),
    clearing.ClearingOrdered: ("clears", telling_nodes.clearing_ordered),
    claims.ClaimOpened: (
        "claims",
        lambda e: f"{_request(e.queue, e.request)} is held for it: it has waited too long{explain_claims.opened(e)}",
    ),
    claims.PlanTried: (
        "tried",
        lambda e: f"with its victims gone it would find {'its' if e.fits else 'no'} places on the nodes",
    ),
    claims.PlanStale: ("stale", lambda e: f"no job is suspended for it: {explain.STALE[e.reason].format(e.holder)}"),
    claims.ClaimEnded: ("claim ends", lambda e: explain.CLAIM_ENDED[e.outcome]),
    claims.VictimStays: ("stays", lambda e: explain.STAYS[e.reason]),
    d.SuspensionOrdered: (
        "suspends",
        lambda e: explain.suspended(e.reason, problems.line(e.problem) if e.problem is not None else ""),
    ),
    d.GangAdmitted: ("admitted", lambda e: f"at {e.queue}, attempt {e.attempt}{telling_nodes.placed(e)}"),
    d.GangAwaitingNodes: ("lacks nodes", telling_nodes.lacks_nodes),
    d.GangDeferred: ("no nodes", telling_nodes.lacks_nodes),
    d.PlacesFound: ("room", telling_nodes.room),
    d.PlacesReleased: ("places free", telling_nodes.given_back),
    gangs.PodsProposed: ("asks quota", telling_nodes.pods_proposed),
    gangs.PodsReserved: ("may start", lambda e: f"{counted(len(e.pods), 'pod')} charged, or counted in no quota"),
    gangs.PodsDenied: ("denied", telling_nodes.pods_denied),
    gangs.PodsPlaced: ("placed", telling_nodes.pods_placed),
    gangs.PodsReleased: ("pods free", telling_nodes.pods_released),
    gangs.GangHeldBack: ("held back", telling_nodes.held_back),
    gangs.NodesClaimed: (
        "claims nodes",
        lambda e: f"what becomes free on {counted(len(e.places), 'node')} is kept for it: it has waited too long",
    ),
    gangs.NodesClaimEnded: ("claim ends", lambda e: explain_nodes.NODES_CLAIM_ENDED[e.outcome]),
    gangs.GpuReservationEnded: (
        "frees gpu",
        lambda e: f"nobody shares its GPU of {e.node} any more (group {e.group}): the device plugin gets it back",
    ),
    growing.NodesRequested: ("wants nodes", telling_nodes.nodes_requested),
    growing.NodesRequestWithdrawn: ("asks no more", telling_nodes.nodes_withdrawn),
    elastic.GrowthRequested: ("wants more", telling_ray.requested),
    elastic.GrowthGranted: ("may grow", telling_ray.granted),
    elastic.GrowthDenied: ("may not grow", telling_ray.denied),
    elastic.GrowthWithdrawn: ("gives back", telling_ray.withdrawn),
    elastic.GateSet: ("limits", telling_ray.gate),
    elastic.WorkersChosen: ("takes back", telling_ray.chosen),
    elastic.WorkersKept: ("keeps all", telling_ray.kept),
    elastic.WorkersRemoved: ("deletes", telling_ray.removed),
    alarms.AlarmRaised: ("alarm", telling_ray.alarm),
    alarms.AlarmCleared: ("well again", lambda e: f"nothing is wrong with {e.cluster} any more"),
    effects.EffectApplied: ("resumed", _applied),
    effects.EffectFailed: ("not resumed", _failed),
}
"""What each event is called, and how the rest of its sentence is made; a test holds it complete."""


def word_of(kind: type[Event]) -> str:
    """What events of a type are called."""
    return _WORDS[kind][0]


def words() -> list[str]:
    """Every word there is, each once."""
    return sorted({*(word for word, _ in _WORDS.values()), *_DONE.values(), *_NOT_DONE.values()})
