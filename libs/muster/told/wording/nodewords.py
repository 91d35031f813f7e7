"""Nodes in words: places, victims, gangs that wait, nodes that are requested.

Why a gang or a pod has no nodes: the part of `explain` about places, pods and node pools.

The jobs that leave or move for another job.

Events about nodes: places of jobs and pods, gangs without places, nodes requested from pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.core.objects.meta import rfc3339
from muster.events import decisions as d
from muster.events import facts, gangs, growing
from muster.events.claims import PlanTried
from muster.events.decisions import EvictionOrdered, PreemptionProposed
from muster.events.gangs import GangHeldBack, ends_a_round
from muster.model.gang import PodGroup, Verdict
from muster.model.places import Obstacle, ObstacleCode, Shortage
from muster.model.pools import Growth, PoolNodes, PoolRefusal
from muster.model.problem import FieldProblem, problem
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted, few
from muster.model.victims import Victim
from muster.told.codes.happenings import Happening
from muster.told.codes.values import Counted, GangStatus, NodesKept, Unfit
from muster.told.wording import explain, problems, raywords, reasons
from muster.told.wording.explain import Reason, terms

# --- why there is no node ---------------------------------------------------------------------------------------------


def no_room(short: Shortage, pods: str = "") -> str:
    """Why there is no place. ``pods``: the counted pods, see :func:`pods_of`; empty: the pods of a set of a job.

    ``0/5 nodes are available: 1 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint {a: b}``.
    """
    if short.within is not None:
        return f"its pods are to be together, and {problems.line(short.within)}"
    causes = ", ".join(sorted(_obstacle(obstacle, short.unsupported) for obstacle in short.obstacles))
    text = f"0/{short.nodes} nodes are available" + (f": {causes}" if causes else "")
    if short.kept_for:
        text += f"; free places are kept for {short.kept_for}, which has waited longer"
    if not short.fitted:
        return text
    pods = pods or counted(short.count, f"{short.pod_set} pod").partition(" ")[2]
    return f"{short.fitted} of {short.count} {pods} fit; for the next one {text}"


GANGS_NAMED = 5
NODES_NAMED = 3


def kept_now(kept: NodesKept, *, own: bool) -> str:
    """Free places on nodes are kept for a gang; ``own``: for the job of the sentence."""
    more = len(kept.nodes) - NODES_NAMED
    names = ", ".join(kept.nodes[:NODES_NAMED]) + (f" and {counted(more, 'more node')}" if more > 0 else "")
    if own:
        return f"Places that become free on {names} are kept for it"
    return f"The free places on {names} are kept for {kept.gang}, which has claimed these nodes"


def pods_of(event: GangHeldBack) -> str:
    """The pods that the shortage of a gang counts: ``pods like train-0``, also ``of gangs video/a and video/b``."""
    like = f"pods like {event.shortage.pod_set}" if event.shortage is not None else "pods"
    if not event.group:
        return like
    *first, last = event.group[:GANGS_NAMED]
    more = len(event.group) - GANGS_NAMED
    named = f"{', '.join(first)} and {last}" if more <= 0 else f"{', '.join((*first, last))} and {more} more"
    return f"{like} of gangs {named}, which start together,"


def _obstacle(obstacle: Obstacle, unsupported: FieldProblem | None) -> str:
    if obstacle.code == "insufficient" and obstacle.detail == "pods":
        return f"{obstacle.nodes} Too many pods"
    return f"{obstacle.nodes} {_worded(obstacle.code, obstacle.detail, unsupported)}"


def _worded(code: ObstacleCode, detail: str, unsupported: FieldProblem | None) -> str:
    return reasons.OBSTACLES[code].format(detail if unsupported is None else problems.line(unsupported))


def pool_nodes(pools: tuple[PoolNodes, ...]) -> str:
    """``1 node of pool gpu and 2 nodes of pool cpu``."""
    return " and ".join(f"{counted(pool.nodes, 'node')} of pool {pool.pool}" for pool in pools)


def pool_refused(refusal: PoolRefusal) -> str:
    """``pool gpu: max 4, has 3, the gang needs 2 more``."""
    promised = f", {refusal.promised} promised to others" if refusal.promised else ""
    known = {str(code): code for code in reasons.OBSTACLES}
    code = known.get(refusal.obstacle)
    obstacle = f": {_worded(code, refusal.detail, refusal.unsupported)}" if code is not None else ""
    words = reasons.POOL_REFUSED[refusal.why].format(
        most=counted(refusal.most, "node") if refusal.why == "full" else "",
        has=refusal.has,
        promised=promised,
        needs=refusal.needs if refusal.why == "full" else counted(refusal.needs, "node"),
        obstacle=obstacle,
        until=f", requested again after {rfc3339(refusal.until)}" if refusal.until else "",
    )
    return f"pool {refusal.pool}: {words}"


def from_pools(growth: Growth | None, refusals: tuple[PoolRefusal, ...]) -> str:
    """``; asked for: 1 node of pool gpu``, or why no pool is any help; empty where no pool is declared."""
    if growth is not None:
        how = "asked for" if growth.provisioning else "enough"
        return f"; {how}: {pool_nodes(growth.pools)}"
    if not refusals:
        return ""
    return f"; no node pool can help: {', '.join(pool_refused(refusal) for refusal in refusals)}"


def waiting_for_nodes(short: Shortage, pools: str = "") -> Reason:
    """The words for a gang that keeps its quota while waiting for nodes.

    ``pools``: the nodes that pools could add, see :func:`from_pools`.
    """
    text = f"{no_room(short)}{pools}"
    return Reason("AwaitingNodes", f"nodes:{text}", f"Its quota is reserved, and the gang waits for nodes: {text}")


def unfit(never: Unfit) -> Reason:
    """The words for a job with a pod that no node can run, even an empty node."""
    whose = f"one of its {counted(never.pods, 'pod')}" if never.pods > 1 else "its pod"
    asks, near = format_vector(never.asked), ", ".join(never.near)
    nodes = counted(never.nodes, "node")
    match never.why:
        case "absent":
            text = f"None of {nodes} has {next(iter(never.asked))}, and {whose} asks for {asks}"
            way = f"Correct the name (nodes have {near}), or add nodes that have it"
        case "large":
            (resource, _), some = next(iter(never.asked.items())), " with the labels that it requires" * never.narrowed
            most = format_quantity(never.most, resource)
            text = f"{whose.capitalize()} asks for {asks}, and the largest of {nodes}{some} has {most}"
            way = "Ask for less in each pod, or add larger nodes"
        case "label":
            label = never.label or "the labels that its affinity requires"
            text = (
                f"None of {nodes} has {label}, and {whose} requires it"
                if never.label
                else (f"None of {nodes} has {label}")
            )
            has = f" (nodes have {near})" if near and never.label else ""
            way = f"Correct the node selector{has}, or add such nodes"
        case "together":
            text = f"None of {nodes} has all that {whose} asks for: {asks}"
            way = "Ask for less in each pod, or add larger nodes"
    beyond = explain.waiting_for_quota(never.short) if never.short is not None else None
    key, more = (f":{beyond.key}", f". {beyond.text}") if beyond is not None else ("", "")
    words = f"{text}. No node there is can run it. {way}{more}"
    return Reason("FitsNoNode", f"unfit:{never.pod_set}:{text}{key}", words)


def deferred_for_nodes(short: Shortage | None, pools: str = "") -> Reason:
    """The words for a gang that released its quota for lack of places."""
    text = f"{no_room(short)}{pools}" if short is not None else "no reason given"
    return Reason(
        "GangUnschedulable",
        f"no_nodes:{text}",
        f"The gang has no places for all of its pods: {text}. Its quota is released; it is tried again when the nodes "
        "have room for it",
    )


def half_bound(pods: Counted, minimum: int) -> str:
    """A started gang has fewer bound pods than its minimum: the text for readers of the gang's Events alone."""
    bound, done = pods.alive - pods.succeeded, pods.succeeded
    parts = [f"{bound} of its pods {'has' if bound == 1 else 'have'} a node"] if bound or not done else []
    parts += [f"{done} {'has' if done == 1 else 'have'} succeeded"] if done else []
    return f"{', '.join(parts)} and it needs {minimum}: they stay, and the others are placed as soon as there is room"


def judged(verdict: Verdict) -> str:
    """The verdict of kube-scheduler on a gang that kube-scheduler places."""
    if verdict.scheduled:
        return "it has places for it"
    return f"it has no places for it ({verdict.reason}): {verdict.message or 'no message'}"


def group_seen(group: PodGroup) -> str:
    """An observed PodGroup."""
    size = "pods that start one by one" if group.alone else f"a gang of {group.minimum}"
    return size if group.verdict is None else f"{size}; kube-scheduler says: {judged(group.verdict)}"


# --- victims ----------------------------------------------------------------------------------------------------------


def listed_victims(victims: Sequence[Victim], more: int = 0) -> str:
    """The first victims, with request and queue. ``more``: how many victims are beyond the noted ones."""
    return few([f"{victim.ref.key} ({format_vector(victim.request)} at {victim.queue})" for victim in victims], more)


def leaving(event: PreemptionProposed) -> str:
    """The victims of a claim and the workers that Ray clusters release to the claim, without the progress."""
    moves, gives = (
        [victim for victim in event.victims if victim.moves],
        [victim for victim in event.victims if not victim.moves],
    )
    whole = f"victims: {listed_victims(gives)}" if gives else ""
    moved = f"to move to other nodes: {listed_victims(moves)}" if moves else ""
    parts = f"workers to release: {raywords.parts(event.partial)}" if event.partial else ""
    return "; ".join(part for part in (whole, moved, parts) if part)


def moved(event: EvictionOrdered, hidden: int = 0) -> str:
    """The jobs that move for another job, from node to node. ``hidden``: how many jobs are beyond the noted ones."""
    names = {victim.ref.uid: victim.ref.key for victim in event.victims}
    shown = [
        f"{names[move.uid]} from {', '.join(move.before[:3])} to {', '.join(move.after[:3])}"
        for move in event.moves[:5]
        if move.uid in names
    ]
    hidden = max(hidden, len(event.moves) - len(shown))
    return f"{', '.join(shown)}, and {hidden} more" if hidden else ", ".join(shown)


# --- events -----------------------------------------------------------------------------------------------------------


NO_PLACES_FREED = "the evictions that were tried would not free the nodes it needs"


def placed(event: d.GangAdmitted) -> str:
    """``; placed on node-1 (3), node-2 (1)``; nothing where nothing is placed."""
    where = _where((placement.node, placement.count) for placement in event.placements)
    rule = f", by the rule {event.placement} of its queue" if event.placement else ""
    return f"; placed on {where}{rule}" if where else ""


def admitted_on(event: d.GangAdmitted, around: Happening) -> str:
    """The places of an admission, with the rule of the configuration if known; a happening lists nodes, not pods."""
    if not around.nodes:
        return placed(event)
    rule = f", by the rule {around.words} of {f'queue {event.queue}' if event.placement else 'the configuration'}"
    return f"; placed on {listed_nodes(around.nodes, around.more)}{rule if around.words else ''}"


def listed_nodes(nodes: Iterable[tuple[str, int]], more: int) -> str:
    """``node-1 (3), node-2 (1) and 4 more nodes``."""
    shown = ", ".join(f"{node} ({count})" for node, count in nodes)
    return f"{shown} and {counted(more, 'more node')}" if more else shown


def _where(places: Iterable[tuple[str, int]]) -> str:
    """``node-1 (3), node-2 (1)``, of (node, how many pods)."""
    nodes: dict[str, int] = {}
    for node, count in places:
        nodes[node] = nodes.get(node, 0) + count
    shown = ", ".join(f"{node} ({count})" for node, count in list(nodes.items())[:5])
    return shown + (f" and {len(nodes) - 5} more nodes" if len(nodes) > 5 else "")


def room(event: d.PlacesFound) -> str:
    """Why a gang without places is evaluated again."""
    cause = "node pools may add nodes" if event.growth else "the nodes have room"
    return f"{cause} for its gang: it is queued again"


def given_back(event: d.PlacesReleased) -> str:
    """The held places that are released, and the reason."""
    count = sum(placement.count for placement in event.placements)
    nodes = ", ".join(dict.fromkeys(placement.node for placement in event.placements[:5]))
    return f"{counted(count, 'place')} held on {nodes} released: {reasons.GIVEN_BACK[event.reason]}"


def lacks_nodes(event: d.GangAwaitingNodes | d.GangDeferred) -> str:
    """Why a gang of a job has no places, and which node pools could add nodes."""
    if isinstance(event, d.GangAwaitingNodes):
        return f"{no_room(event.shortage)}{from_pools(event.growth, ())}"
    return f"{no_room(event.shortage)}{from_pools(None, event.refusals)}"


def awaits_nodes(event: d.GangAwaitingNodes, _around: Happening) -> str:
    """Why a gang that keeps its quota has no places."""
    return f"its quota is reserved, and it waits for nodes: {lacks_nodes(event)}"


def room_proposed(event: d.PreemptionProposed) -> str:
    """The jobs that are proposed as victims for a job without places on the nodes."""
    count = len(event.victims)
    jobs = "1 job is" if count == 1 else f"up to {count} jobs are"
    moving = sum(victim.moves for victim in event.victims)
    how = "to move to other nodes" if moving == count else "for eviction"
    if 0 < moving < count:
        how = f"for eviction, {moving} of them to move to other nodes"
    return f"its quota has room, and the nodes have none: {jobs} proposed {how}"


def plan_tried(event: PlanTried) -> str:
    """Whether the job fits once the victims are gone, and where."""
    if not event.fits:
        return NO_PLACES_FREED
    if event.shortage is not None:
        return "it fits once its victims are evicted and nodes are added"
    where = _where((place.node, place.count) for place in event.places)
    moved = (
        f"with {counted(len(event.moves), 'job')} moved to other nodes" if event.moves else "with its victims evicted"
    )
    return f"{moved}, it fits on {where}"


def room_made(event: d.EvictionOrdered, around: Happening) -> str:
    """The jobs that leave to make room for a job on the nodes."""
    if len(event.moves) == len(event.victims) + around.more:
        ways = moved(event, around.more)
        return f"moved to make room for it on the nodes: {ways}; each keeps its quota and starts again there"
    why = (
        f"of lower priority than {event.priority}"
        if event.kind == "priority"
        else f"above the {terms(event.queue).owed} of its queue"
    )
    beside = f"; moved for it: {moved(event)}" if event.moves else ""
    return f"suspended to make room for it on the nodes: {listed_victims(event.gives, around.more)}, {why}{beside}"


def pods_proposed(event: gangs.PodsProposed, _around: Happening) -> str:
    """The pods that wait for quota."""
    return f"the nodes have places for {counted(len(event.pods) + len(event.beside), 'pod')}: their quota is asked for"


def pods_denied(event: gangs.PodsDenied, _around: Happening) -> str:
    """Why pods with places wait."""
    if event.short is None:
        return problems.line(problem("", "queue_paused", queue=event.queue))
    return explain.waiting_for_quota(event.short).text


def pods_placed(event: gangs.PodsPlaced, around: Happening) -> str:
    """How many pods get nodes, and which nodes."""
    where = listed_nodes(around.nodes, around.more) if around.nodes else _where((pod.node, 1) for pod in event.pods)
    whose = f" of {' and '.join(event.gangs[:5])}" if event.gangs else ""
    return f"{counted(around.number or len(event.pods), 'pod')}{whose} placed on {where}"


def pods_released(event: gangs.PodsReleased, around: Happening) -> str:
    """The pods that lost their node before the binding, and the reason."""
    shown = ", ".join(f"{pod.ref.key} on {pod.node}" for pod in event.pods[:5])
    hidden = max(0, len(event.pods) - 5) + around.more
    return f"{shown}{f', and {hidden} more' if hidden else ''} released: {reasons.PODS_RELEASED[event.reason]}"


def held_back(event: gangs.GangHeldBack) -> str:
    """Why a gang waits."""
    parts = [reasons.HELD_BACK[event.reason]]
    if event.by:
        parts[0] += f" ({event.by})"
    if event.problem is not None:
        parts.append(problems.line(event.problem))
    if event.short is not None:
        parts.append(explain.waiting_for_quota(event.short).text)
    if event.shortage is not None:
        parts.append(no_room(event.shortage, pods_of(event)))
    return ": ".join(parts) + from_pools(event.growth, event.refusals)


def nodes_requested(event: growing.NodesRequested) -> str:
    """The requested nodes, and the number of pods."""
    pods = counted(sum(pod_set.count for pod_set in event.pod_sets), "pod")
    again = f", try {event.tries}" if event.tries > 1 else ""
    return (
        f"{pool_nodes(event.pools)} for {pods} without a place "
        f"(ProvisioningRequest {event.name}, class {event.provisioning}){again}"
    )


def nodes_withdrawn(event: growing.NodesRequestWithdrawn) -> str:
    """Why a request for nodes is withdrawn, and when the next follows."""
    cause = problems.after(event.problem)
    again = f"; requested again after {rfc3339(event.retry_at)}" if event.retry_at else ""
    return f"the request for nodes is withdrawn: {reasons.WITHDRAWN[event.reason]}{cause}{again}"


def node_pools(event: facts.NodePoolsObserved) -> str:
    """The declared node pools, and the pools that cannot be used."""
    good = [f"{pool.name} (up to {counted(pool.most, 'node')})" for pool in event.pools if pool.refusal is None]
    bad = [problems.line(pool.refusal) for pool in event.pools if pool.refusal is not None]
    refused = f"; refused: {'; '.join(bad[:3])}" if bad else ""
    return f"node pools: {', '.join(good[:10]) or 'none'}{refused}"


# --- gangs ------------------------------------------------------------------------------------------------------------


def gang_text(status: GangStatus) -> str:
    """One sentence, without a full stop."""
    pods, held = status.pods, status.held
    sizes = f"{counted(pods.pods, 'pod')}, {pods.bound} with a node, {pods.running} running"
    if held is not None:
        round_ = f" in round {held.cycle}" if held.cycle else ""
        return f"It waits{round_}: {held_back(held)} ({sizes})"
    match status.code:
        case "Gone":
            return "All of its pods are gone"
        case "OtherScheduler":
            return f"None of its pods names our scheduler: spec.schedulerName places them ({sizes})"
        case "KubeScheduler":
            return f"kube-scheduler places it: {_verdict(status)} ({sizes})"
        case "Finished":
            return f"It finished: {pods.succeeded} of its pods succeeded, of {status.minimum} that it needs"
        case "Failed":
            return f"It failed: {counted(pods.failed, 'pod')} failed ({sizes})"
        case "Running":
            return f"All of its pods have a node, and {pods.running} of them run ({sizes})"
        case "Bound":
            return f"All of its pods have a node, and none runs yet ({sizes})"
        case "Starting":
            return f"Its pods are being bound ({sizes})"
        case _:
            return f"It was observed, and no decision about it exists yet ({sizes}, it needs {status.minimum})"


def _verdict(status: GangStatus) -> str:
    verdict = status.verdict
    if verdict is None:
        takes = f"needs {status.minimum}" if status.minimum else "requests no gang or is missing"
        return f"it has not said yet whether it has places, and its PodGroup {takes}"
    return judged(verdict)


def gang_event_text(event: GangHeldBack, pods: Counted, minimum: int) -> str:
    """The text of an Event on pods that wait, after the names of the pods. ``pods``: of the gang, which needs
    ``minimum``.
    """
    text = _gang_event_text(event)
    if event.gang and event.reason != "broken" and 0 < pods.alive < minimum:
        return f"{text}; {half_bound(pods, minimum)}"
    return text


def _gang_event_text(event: GangHeldBack) -> str:
    if not ends_a_round(event.reason):
        return f"in gang waits: {held_back(event)}"
    if not event.gang and event.reason != "gave_way" and event.shortage is not None:
        return f"finds no node: {no_room(event.shortage, pods_of(event))}"
    why = f"rejected by podgroup {event.by}" if event.reason == "gave_way" else lack(event)
    return f"in gang failed to be scheduled in cycle {max(event.cycle, 1)}: {why}"


def lacks(event: GangHeldBack) -> str:
    """The message of a pod's condition: the nodes first, as in all schedulers, then the gang that took the room."""
    return f"{lack(event)}; rejected by podgroup {event.by}" if event.by else lack(event)


def lack(event: GangHeldBack) -> str:
    """The places that a gang lacks, and the nodes that pools could add."""
    if event.shortage is None:
        return problems.line(event.problem) if event.problem is not None else ""
    return no_room(event.shortage, pods_of(event)) + from_pools(event.growth, event.refusals)
