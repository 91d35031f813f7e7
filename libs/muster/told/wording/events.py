"""Events in words.

Events about the whole cell: the log, the quota tree, the placement; and the phases of a gang of pods.

A sentence is made of the event and, where the read model noted one, of the happening: positions, usage and waiting
times are known there. ``muster tail`` has the event alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from muster.core.objects.meta import rfc3339
from muster.core.workloads.registry import suspend_field
from muster.events import alarms, claims, effects, elastic, facts, gangs, growing, system
from muster.events import decisions as d
from muster.events.base import Event
from muster.events.charges import ChargeChanged
from muster.events.envelope import Commit
from muster.events.raydemand import RayDemandObserved
from muster.events.shares import SharesChanged
from muster.model.api import PODS
from muster.model.closed import total
from muster.model.keys import Ref
from muster.model.language import listed, say
from muster.model.resources import Vector, format_vector
from muster.model.text import counted, few, lower, shorten, span
from muster.told.codes.happenings import Happening
from muster.told.codes.values import Counted
from muster.told.wording import events_jobs, explain, meanings, nodewords, pods, problems, raywords, reasons
from muster.told.wording.explain import terms
from muster.told.wording.queuewords import told_shares

# --- the cell ---------------------------------------------------------------------------------------------------------


def genesis(event: system.Genesis) -> str:
    """Where a generation of the log begins, and why; the first has no reason."""
    begins = say("log {log_id} begins, generation {generation}", log_id=event.log_id, generation=event.generation)
    if not event.parent:
        return begins
    if not event.state:
        return say("{begins}; the log before it, {parent}, is lost", begins=begins, parent=event.parent)
    by = say(" by {by}", by=event.by) if event.by else ""
    return say(
        "{begins}; log {parent} was rolled over{by}{reason}",
        begins=begins,
        parent=event.parent,
        by=by,
        reason=say(": {reason}", reason=event.reason) if event.reason else "",
    )


def _spread(mode: str | None) -> str:
    return say("packed") if mode == "pack" else say("spread")


def placement(event: system.PlacementChosen) -> str:
    """The rule by which gangs are placed from here on."""
    if event.mode == "off":
        return say("gangs are admitted by quota alone")
    if event.mode == "native":
        kept = (
            say("; a gang without places keeps its quota for {grow_ms}", grow_ms=span(event.grow_ms))
            if event.grow_ms
            else ""
        )
        return say("gangs are admitted by quota, and placed by kube-scheduler{kept}", kept=kept)
    how = _spread(event.mode)
    if event.cpu not in (None, event.mode):
        how += say(", and {how} where they take no GPU", how=_spread(event.cpu))
    return say("gangs are placed on nodes, {how}; places are held for {hold_ms}", how=how, hold_ms=span(event.hold_ms))


def tree_accepted(event: d.QuotaTreeAccepted) -> str:
    """The size of a tree, and the limit of the root."""
    nodes = event.tree.nodes
    root = format_vector(nodes[0].limit) if nodes else ""
    warned = (
        say("; {warnings}", warnings=say("; ").join(map(problems.line, event.warnings[:5]))) if event.warnings else ""
    )
    return say(
        "in force with {nodes}, in all {root}{warned}", nodes=counted(len(nodes), "queue"), root=root, warned=warned
    )


def tree_rejected(event: d.QuotaTreeRejected) -> str:
    """The rules that a refused tree breaks."""
    shown = say("; ").join(map(problems.line, event.violations[:3]))
    more = say("; and {hidden} more", hidden=len(event.violations) - 3) if len(event.violations) > 3 else ""
    return say("refused as a whole, the last good tree stays in force: {shown}{more}", shown=shown, more=more)


def ready(jobs: int) -> str:
    """All kinds are listed. ``jobs``: their number."""
    return say("the cluster is fully known ({jobs}): jobs are admitted from here on", jobs=counted(jobs, "job"))


def gang_phase(phase: str, pods: Counted, minimum: int) -> tuple[str, str]:
    """A gang of pods runs, finished or failed: (word, sentence). ``minimum``: the pods that the gang needs."""
    takes = say(" (it needs {minimum})", minimum=minimum) if minimum != pods.pods else ""
    match phase:
        case "Finished":
            return "finished", say(
                "{succeeded} of its {pods} succeeded{takes}",
                succeeded=pods.succeeded,
                pods=counted(pods.pods, "pod"),
                takes=takes,
            )
        case "Failed":
            return "failed", say(
                "{failed} of its {pods} failed{takes}", failed=pods.failed, pods=counted(pods.pods, "pod"), takes=takes
            )
        case _:
            return "running", say(
                "{running} of its {pods} run{takes}", running=pods.running, pods=counted(pods.pods, "pod"), takes=takes
            )


# --- events -----------------------------------------------------------------------------------------------------------


MAX_TEXT = 400


class EventWords(Struct, frozen=True):
    """An event in words: a word such as ``queued``, the subject, and the sentence."""

    word: str
    subject: str
    text: str


class HappeningWords(NamedTuple):
    """A happening in words."""

    word: str
    text: str


ALONE = Happening(at=0, seq=0, item=0, what="", weight="detail")
"""The happening of an event about which nothing more is known."""


def tell(event: Event) -> EventWords:
    """Any event of the log in words."""
    return EventWords(_word(event), subject_of(event), shorten(_EVENTS[type(event)][1](event, ALONE), MAX_TEXT))


def tell_of(commit: Commit, index: int) -> EventWords:
    """One event of a commit in words. For an event without an object, the subject is the stage that wrote the event."""
    words = tell(commit.events[index])
    if isinstance(commit.events[index], system.LeaderStarted | system.TimeReached):
        return EventWords(words.word, f"{commit.stage}/{commit.shard}", words.text)
    return words


def line(happening: Happening) -> HappeningWords:
    """A happening of a job or a gang in words."""
    change = events_jobs.CHANGES.get(happening.what)
    if change is not None:
        return HappeningWords(change[0], change[1](happening))
    event = happening.event
    assert event is not None, happening
    return HappeningWords(_word(event), _EVENTS[type(event)][1](event, happening))


def _word(event: Event) -> str:
    if isinstance(event, effects.EffectApplied | effects.EffectFailed):
        return (_DONE if isinstance(event, effects.EffectApplied) else _NOT_DONE)[event.action]
    if isinstance(event, d.QuotaDenied) and event.short is None:
        return STALE
    return _EVENTS[type(event)][0]


STALE = "stale"
"""The word for a refusal because the proposal was stale: the word says nothing about the quota."""

_HOLDERS = ("workload", "pod", "child", "node", "tree", "pod_group")


def ref_of(event: Event) -> Ref | None:
    """The object of an event; None for an event about no object or several."""
    for holder in (event, *(getattr(event, name, None) for name in _HOLDERS)):
        ref = getattr(holder, "ref", None)
        if isinstance(ref, Ref):
            return ref
    return None


def subject_of(event: Event) -> str:
    """The object of an event: jobs by ``namespace/name``, other objects with their kind."""
    if isinstance(event, d.CandidatesProposed):
        first = event.candidates[0].ref.key if event.candidates else ""
        return f"{first} +{len(event.candidates) - 1}" if len(event.candidates) > 1 else first
    if isinstance(event, growing.NodesRequested | growing.NodesRequestWithdrawn):
        return event.ref.key if event.ref is not None else event.gangs[0] if event.gangs else event.name
    if isinstance(event, facts.Synced):
        return event.kind
    if isinstance(event, facts.SyncStarted):
        return listed(event.kinds)
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


def _pod(event: facts.PodObserved) -> str:
    pod = event.pod
    phase = say("finished") if pod.over else say("running") if pod.running else say("pending")
    where = say(" on {node}", node=pod.node) if pod.node else ""
    why = (
        say("; {code}: {matter}", code=pod.trouble.code, matter=pods.matter(pod.trouble))
        if pod.trouble is not None
        else ""
    )
    return f"{phase}{where}{why}"


def _request(queue: str, request: Vector) -> str:
    return say("{request} at {queue}", request=format_vector(request), queue=queue)


def _queue_object(event: facts.QueueObserved) -> str:
    priority = say(", priority {priority}", priority=event.priority) if event.priority else ""
    return say(
        "is the queue of {path}, policy {policy}{priority}",
        path=event.path or say("no quota"),
        policy=event.policy or say("unset"),
        priority=priority,
    )


def _applied(event: effects.EffectApplied) -> str:
    if event.action == "bind":
        return say("bound to its node")
    if event.action in ("request_nodes", "withdraw_nodes"):
        return (
            say("nodes are requested") if event.action == "request_nodes" else say("the request for nodes is withdrawn")
        )
    if event.action == "free_gpu":
        return say("the pod that kept a GPU is deleted")
    if event.action == "remove_worker":
        return say("the pod of the worker is deleted")
    if event.action == "read_refusal":
        none = say("no Event names a refusal of its pods")
        return problems.line(event.problem) if event.problem is not None else none
    if event.action == "gate":
        return say("the RayCluster follows the grant as of resourceVersion {rv}", rv=event.rv)
    if event.ref.kind == PODS.kind:
        return say("the pod is evicted, and ends")
    field, value = suspend_field(event.ref.kind), str(event.action == "suspend").lower()
    return say("{field} is {value} as of resourceVersion {rv}", field=field, value=value, rv=event.rv)


_DONE = {
    "resume": "resumed",
    "suspend": "suspended",
    "bind": "bound",
    "request_nodes": "nodes asked",
    "withdraw_nodes": "request gone",
    "free_gpu": "gpu freed",
    "gate": "max written",
    "remove_worker": "pod deleted",
    "read_refusal": "looked",
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
    "read_refusal": "not looked",
}
"""The word for a refused write to an object."""
for _name, _words in (("_DONE", _DONE), ("_NOT_DONE", _NOT_DONE)):
    total(_words, effects.Action, f"libs/muster/told/wording/events.py ({_name})")
_FAILED = {
    "resume": reasons.NOT_RESUMED,
    "suspend": reasons.NOT_SUSPENDED,
    "bind": reasons.NOT_BOUND,
    "gate": reasons.NOT_GATED,
}


def _failed(event: effects.EffectFailed) -> str:
    if event.action == "remove_worker" and event.reason == "gone":
        return say("the pod is gone") + problems.after(event.problem)
    words = _FAILED.get(event.action)
    why = say(words[event.reason] if words is not None else reasons.NOT_DONE[event.action])
    return why + problems.after(event.problem)


def _proposed(event: d.CandidatesProposed) -> str:
    names = [say("{key} at {queue}", key=candidate.ref.key, queue=candidate.queue) for candidate in event.candidates]
    return say("{jobs} to try now: {names}", jobs=counted(len(names), "job"), names=few(names))


def _preemption(event: d.PreemptionProposed) -> str:
    if event.short is None:
        return nodewords.room_proposed(event)
    if not event.victims and not event.partial:
        return say(
            "{request} is proposed to be held for it: {why}",
            request=_request(event.queue, event.request),
            why=explain.held_by(event.kind),
        )
    proposed = say("proposed {leaving}", leaving=nodewords.leaving(event)) + nodewords.fits_on(event)
    return (
        say("{proposed}; {why}", proposed=proposed, why=say(reasons.WITHHELD[event.withheld]))
        if event.withheld
        else proposed
    )


def _for_what(event: d.EvictionOrdered) -> str:
    right = _by_what_right(event)
    return (
        right
        if event.growth is None
        else say("grows by {option} and so {right}", option=raywords.option(event.growth), right=right)
    )


def _by_what_right(event: d.EvictionOrdered) -> str:
    if event.kind == "service":
        return say("goes ahead of jobs that have had more GPU time")
    ahead_of = sum(victim.priority is not None for victim in event.victims)
    ahead_of += sum(victim.priority is not None for victim in event.partial)
    if not ahead_of:
        return say("gets its {right}", right=terms(event.queue).right)
    ahead = say("goes ahead of lower priority in its queue (it has {priority})", priority=event.priority)
    whole = ahead_of == len(event.victims) + len(event.partial)
    return ahead if whole else say("gets its {right} and {ahead}", right=terms(event.queue).right, ahead=ahead)


def _ordered(event: d.EvictionOrdered, around: Happening) -> str:
    if event.for_nodes:
        return nodewords.room_made(event, around)
    ending, evicted = [give for give in event.gives if give.ends_by], event.evicted
    whole = say("{victims} suspended", victims=nodewords.listed_victims(evicted, around.more)) if evicted else ""
    moved = say("{moved} moved", moved=nodewords.moved(event)) if event.moves else ""
    ends = (
        say(
            "the end of {victims} awaited",
            victims=nodewords.listed_victims(ending, 0 if evicted else around.more),
        )
        if ending
        else ""
    )
    parts = say("{parts} released", parts=raywords.parts(event.partial)) if event.partial else ""
    return say(
        "{parts} so that it {purpose}",
        parts=say(" and ").join(part for part in (whole, moved, ends, parts) if part),
        purpose=_for_what(event),
    )


def _gone(_event: facts.ObjectGone) -> str:
    return say("no longer exists")


_Say = Callable[[Any, Happening], str]


def _alone(say: Callable[[Any], str]) -> _Say:
    """A sentence made from the values of the event alone, without other events around."""
    return lambda event, _around: say(event)


_EVENTS: Mapping[type[Event], tuple[str, _Say]] = {
    system.Genesis: ("log", _alone(genesis)),
    system.LeaderStarted: ("leading", lambda e, _: say("process {process} leads from here on", process=e.process)),
    system.TimeReached: ("time", lambda _e, _: say("a deadline has passed")),
    system.LogNearlyFull: (
        "log",
        lambda e, _: say(
            "the log is {percent} % full: nothing is queued or admitted until a new generation is in force",
            percent=e.percent,
        ),
    ),
    system.PlacementChosen: ("placement", _alone(placement)),
    system.RulesetActivated: ("ruleset", lambda e, _: say("rule set {number} is in force", number=e.number)),
    facts.SyncStarted: ("listing", lambda _e, _: say("nothing is admitted until all of them are listed")),
    facts.KindsConfigured: (
        "configured",
        lambda e, _: say("these kinds are queued: {kinds}", kinds=listed(e.kinds)),
    ),
    facts.Synced: (
        "listed",
        lambda e, _: (
            say("the cluster does not serve this kind")
            if e.absent
            else counted(e.objects, "object exists", "objects exist")
        ),
    ),
    facts.WorkloadObserved: ("observed", events_jobs.observed),
    facts.WorkloadAbridged: ("observed", lambda _e, _: say("has changed")),
    facts.WorkloadStarted: ("running", events_jobs.started),
    facts.WorkloadFinished: ("finished", events_jobs.finished),
    facts.WorkloadGone: ("gone", events_jobs.gone),
    facts.ChildObserved: ("observed", lambda _e, _: say("exists")),
    facts.ChildGone: ("gone", _alone(_gone)),
    facts.PodObserved: ("observed", _alone(_pod)),
    facts.PodGone: ("gone", _alone(_gone)),
    facts.PodGroupObserved: ("observed", lambda e, _: nodewords.group_seen(e.pod_group)),
    facts.PodGroupGone: ("gone", _alone(_gone)),
    facts.NodeObserved: (
        "observed",
        lambda e, _: say("has {allocatable}", allocatable=format_vector(e.node.allocatable)),
    ),
    facts.NodeGone: ("gone", _alone(_gone)),
    facts.KaiQueueObserved: ("observed", lambda e, _: say("as of resourceVersion {rv}", rv=e.queue.rv)),
    facts.KaiQueueGone: ("gone", _alone(_gone)),
    facts.QuotaTreeObserved: ("observed", lambda e, _: say("as of resourceVersion {rv}", rv=e.rv)),
    facts.QuotaTreeGone: ("gone", _alone(_gone)),
    facts.QueueObserved: ("observed", _alone(_queue_object)),
    facts.QueueGone: ("gone", _alone(_gone)),
    facts.QueueUnitObserved: ("observed", lambda e, _: say("shows {phase}", phase=e.phase or say("nothing yet"))),
    facts.QueueUnitGone: ("gone", _alone(_gone)),
    facts.PriorityClassObserved: (
        "observed",
        lambda e, _: say("value {value}", value=e.value) + (say(", the default") if e.is_default else ""),
    ),
    facts.PriorityClassGone: ("gone", _alone(_gone)),
    facts.NodePoolsObserved: ("observed", _alone(nodewords.node_pools)),
    facts.NodePoolsGone: ("gone", _alone(_gone)),
    facts.NodesRequestObserved: (
        "observed",
        lambda e, _: (
            f"{e.phase or say('not answered yet')}{(say(': {message}', message=e.message) if e.message else '')}"
        ),
    ),
    facts.NodesRequestGone: ("gone", _alone(_gone)),
    facts.ObjectUnreadable: (
        "unreadable",
        lambda e, _: say("it cannot be read: {problem}", problem=problems.line(e.problem)),
    ),
    RayDemandObserved: ("demand", _alone(raywords.demand)),
    d.WorkloadQueued: ("queued", events_jobs.queued),
    d.WorkloadDequeued: ("left", events_jobs.dequeued),
    d.WorkloadRefused: ("refused", events_jobs.refused),
    d.CandidatesProposed: ("proposed", _alone(_proposed)),
    d.QuotaTreeAccepted: ("quota tree", _alone(tree_accepted)),
    d.QuotaTreeRejected: ("quota tree", _alone(tree_rejected)),
    d.QuotaTreeRemoved: ("quota tree", lambda _e, _: say("deleted: nothing is admitted until another tree is applied")),
    d.QuotaReserved: ("reserved", events_jobs.reserved),
    d.QuotaMoved: ("moved", events_jobs.moved),
    d.QuotaDenied: ("waits", events_jobs.denied),
    d.WorkloadAdopted: ("adopted", events_jobs.adopted),
    ChargeChanged: ("charged", events_jobs.recharged),
    SharesChanged: ("shares", _alone(told_shares)),
    d.SuspensionRecorded: ("suspended", lambda event, _: lower(meanings.suspended_outside(event.by).text)),
    d.QuotaReleased: ("released", events_jobs.released),
    d.PreemptionProposed: ("preemption", _alone(_preemption)),
    d.ReclaimDeferred: (
        "deferred",
        lambda e, _: say(reasons.DEFERRED[e.reason], resource=e.resource, where=terms(e.path).where),
    ),
    d.EvictionOrdered: ("reclaims", _ordered),
    claims.ClaimOpened: (
        "claims",
        lambda e, _: say(
            "{request} is held for it: {opened}", request=_request(e.queue, e.request), opened=explain.opened(e)
        ),
    ),
    claims.PlanStale: (
        "stale",
        lambda e, _: say("no job is suspended for it: {why}", why=say(reasons.STALE[e.reason], holder=e.holder)),
    ),
    claims.ClaimEnded: ("claim ends", lambda e, _: say(reasons.CLAIM_ENDED[e.outcome])),
    claims.VictimStays: ("stays", lambda e, _: say(reasons.STAYS[e.reason])),
    d.SuspensionOrdered: (
        "suspends",
        lambda e, _: meanings.suspended(e.reason, problems.line(e.problem) if e.problem is not None else ""),
    ),
    d.PodsAwaited: (
        "looks",
        lambda e, _: say("some of its pods are missing: its Events since {since} are read", since=rfc3339(e.since)),
    ),
    d.GangAdmitted: ("admitted", events_jobs.admitted),
    d.GangAwaitingNodes: ("lacks nodes", nodewords.awaits_nodes),
    d.GangDeferred: ("no nodes", _alone(nodewords.lacks_nodes)),
    d.PlacesFound: ("room", _alone(nodewords.room)),
    d.PlacesReleased: ("places free", _alone(nodewords.given_back)),
    gangs.PodsProposed: ("asks quota", pods.pods_proposed),
    gangs.PodsReserved: (
        "may start",
        lambda e, _: say("{pods} charged, or counted in no quota", pods=counted(len(e.pods), "pod")),
    ),
    gangs.PodsDenied: ("denied", pods.pods_denied),
    gangs.PodsPlaced: ("placed", nodewords.pods_placed),
    gangs.PodsReleased: ("pods free", nodewords.pods_released),
    gangs.GangHeldBack: ("held back", _alone(nodewords.held_back)),
    gangs.NodesClaimed: (
        "claims nodes",
        lambda e, _: say(
            "places that become free on {places} are kept for it: too much later work has passed it",
            places=counted(len(e.places), "node"),
        ),
    ),
    gangs.NodesClaimEnded: ("claim ends", lambda e, _: say(reasons.NODES_CLAIM_ENDED[e.outcome])),
    gangs.GpuReservationEnded: (
        "frees gpu",
        lambda e, _: say(
            "no pod shares its GPU of {node} now (group {group}): the GPU goes back to the device plugin",
            node=e.node,
            group=e.group,
        ),
    ),
    growing.NodesRequested: ("wants nodes", _alone(nodewords.nodes_requested)),
    growing.NodesRequestWithdrawn: ("asks no more", _alone(nodewords.nodes_withdrawn)),
    elastic.GrowthRequested: ("wants more", _alone(raywords.requested)),
    elastic.GrowthGranted: ("may grow", _alone(raywords.granted)),
    elastic.GrowthDenied: ("may not grow", _alone(raywords.denied)),
    elastic.GrowthWithdrawn: ("shrinks", _alone(raywords.withdrawn)),
    elastic.SurplusOrdered: ("releases", _alone(raywords.surplus)),
    elastic.GateSet: ("limits", _alone(raywords.gate)),
    elastic.WorkersChosen: ("takes back", _alone(raywords.chosen)),
    elastic.WorkersKept: ("keeps all", _alone(raywords.kept)),
    elastic.WorkersRemoved: ("deletes", _alone(raywords.removed)),
    alarms.AlarmRaised: ("alarm", _alone(raywords.alarm)),
    alarms.AlarmCleared: ("recovered", lambda e, _: say("the trouble with {cluster} has ended", cluster=e.cluster)),
    effects.EffectApplied: ("resumed", _alone(_applied)),
    effects.EffectFailed: ("not resumed", _alone(_failed)),
}
"""{type of event: (word, sentence)}; a test keeps the table complete."""


def words() -> list[str]:
    """Every word there is, each once."""
    changes = (word for word, _ in events_jobs.CHANGES.values())
    return sorted({*(word for word, _ in _EVENTS.values()), *changes, STALE, *_DONE.values(), *_NOT_DONE.values()})
