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
from muster.events.decisions import EvictionOrdered, PreemptionProposed
from muster.events.gangs import GangHeldBack, ends_a_round
from muster.model.gang import PodGroup, Verdict
from muster.model.language import listed, say, say_many, upper
from muster.model.places import Obstacle, ObstacleCode, Shortage
from muster.model.pools import Growth, PoolNodes, PoolRefusal
from muster.model.problem import FieldProblem
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
        return say("its pods are to be together, and {within}", within=problems.line(short.within))
    causes = listed(sorted(_obstacle(obstacle, short.unsupported) for obstacle in short.obstacles))
    text = say("0/{nodes} nodes are available", nodes=short.nodes) + (
        say(": {causes}", causes=causes) if causes else ""
    )
    if short.kept_for:
        text += say(
            "; free places are kept for {kept_for}, which too much later work has passed", kept_for=short.kept_for
        )
    if not short.fitted:
        return text
    pods = pods or say_many(short.count, "{pod_set} pod", "{pod_set} pods", pod_set=short.pod_set)
    return say(
        "{fitted} of {count} {pods} fit; for the next one {text}",
        fitted=short.fitted,
        count=short.count,
        pods=pods,
        text=text,
    )


GANGS_NAMED = 5
NODES_NAMED = 3


def kept_now(kept: NodesKept, *, own: bool) -> str:
    """Free places on nodes are kept for a gang; ``own``: for the job of the sentence."""
    more = len(kept.nodes) - NODES_NAMED
    names = listed(kept.nodes[:NODES_NAMED]) + (say(" and {more}", more=counted(more, "more node")) if more > 0 else "")
    if own:
        return say("Places that become free on {names} are kept for it", names=names)
    return say(
        "The free places on {names} are kept for {gang}, which has claimed these nodes", names=names, gang=kept.gang
    )


def pods_of(event: GangHeldBack) -> str:
    """The pods that the shortage of a gang counts: ``pods like train-0``, also ``of gangs video/a and video/b``."""
    like = say("pods like {pod_set}", pod_set=event.shortage.pod_set) if event.shortage is not None else say("pods")
    if not event.group:
        return like
    *first, last = event.group[:GANGS_NAMED]
    more = len(event.group) - GANGS_NAMED
    named = (
        say("{first} and {last}", first=listed(first), last=last)
        if more <= 0
        else say("{names} and {more} more", names=listed((*first, last)), more=more)
    )
    return say("{like} of gangs {named}, which start together,", like=like, named=named)


def _obstacle(obstacle: Obstacle, unsupported: FieldProblem | None) -> str:
    if obstacle.code == "insufficient" and obstacle.detail == "pods":
        return say("{nodes} Too many pods", nodes=obstacle.nodes)
    return say(
        "{nodes} {obstacle}",
        nodes=obstacle.nodes,
        obstacle=_worded(obstacle.code, obstacle.detail, unsupported),
    )


def _worded(code: ObstacleCode, detail: str, unsupported: FieldProblem | None) -> str:
    return say(reasons.OBSTACLES[code], detail=detail if unsupported is None else problems.line(unsupported))


def pool_nodes(pools: tuple[PoolNodes, ...]) -> str:
    """``1 node of pool gpu and 2 nodes of pool cpu``."""
    return say(" and ").join(
        say("{nodes} of pool {pool}", nodes=counted(pool.nodes, "node"), pool=pool.pool) for pool in pools
    )


def pool_refused(refusal: PoolRefusal) -> str:
    """``pool gpu: max 4, has 3, the gang needs 2 more``."""
    promised = say(", {promised} promised to others", promised=refusal.promised) if refusal.promised else ""
    known = {str(code): code for code in reasons.OBSTACLES}
    code = known.get(refusal.obstacle)
    obstacle = say(": {worded}", worded=_worded(code, refusal.detail, refusal.unsupported)) if code is not None else ""
    words = say(
        reasons.POOL_REFUSED[refusal.why],
        most=counted(refusal.most, "node") if refusal.why == "full" else "",
        has=refusal.has,
        promised=promised,
        needs=refusal.needs if refusal.why == "full" else counted(refusal.needs, "node"),
        obstacle=obstacle,
        until=say(", requested again after {until}", until=rfc3339(refusal.until)) if refusal.until else "",
    )
    return say("pool {pool}: {words}", pool=refusal.pool, words=words)


def from_pools(growth: Growth | None, refusals: tuple[PoolRefusal, ...]) -> str:
    """``; asked for: 1 node of pool gpu``, or why no pool is any help; empty where no pool is declared."""
    if growth is not None:
        how = say("asked for") if growth.provisioning else say("enough")
        return say("; {how}: {nodes}", how=how, nodes=pool_nodes(growth.pools))
    if not refusals:
        return ""
    return say("; no node pool can help: {names}", names=listed(pool_refused(refusal) for refusal in refusals))


def waiting_for_nodes(short: Shortage, pools: str = "") -> Reason:
    """The words for a gang that keeps its quota while waiting for nodes.

    ``pools``: the nodes that pools could add, see :func:`from_pools`.
    """
    text = f"{no_room(short)}{pools}"
    return Reason(
        "AwaitingNodes", f"nodes:{text}", say("Its quota is reserved, and the gang waits for nodes: {text}", text=text)
    )


def unfit(never: Unfit) -> Reason:
    """The words for a job with a pod that no node can run, even an empty node."""
    whose = say("one of its {pods}", pods=counted(never.pods, "pod")) if never.pods > 1 else say("its pod")
    asks, near = format_vector(never.asked), listed(never.near)
    nodes = counted(never.nodes, "node")
    match never.why:
        case "absent":
            text = say(
                "None of {nodes} has {asked}, and {whose} asks for {asks}",
                nodes=nodes,
                asked=next(iter(never.asked)),
                whose=whose,
                asks=asks,
            )
            way = say("Correct the name (nodes have {near}), or add nodes that have it", near=near)
        case "large":
            (resource, _), some = (
                next(iter(never.asked.items())),
                say(" with the labels that it requires") * never.narrowed,
            )
            most = format_quantity(never.most, resource)
            text = say(
                "{whose} asks for {asks}, and the largest of {nodes}{some} has {most}",
                whose=upper(whose),
                asks=asks,
                nodes=nodes,
                some=some,
                most=most,
            )
            way = say("Ask for less in each pod, or add larger nodes")
        case "label":
            label = never.label or say("the labels that its affinity requires")
            text = (
                say("None of {nodes} has {label}, and {whose} requires it", nodes=nodes, label=label, whose=whose)
                if never.label
                else (say("None of {nodes} has {label}", nodes=nodes, label=label))
            )
            has = say(" (nodes have {near})", near=near) if near and never.label else ""
            way = say("Correct the node selector{has}, or add such nodes", has=has)
        case "together":
            text = say("None of {nodes} has all that {whose} asks for: {asks}", nodes=nodes, whose=whose, asks=asks)
            way = say("Ask for less in each pod, or add larger nodes")
    beyond = explain.waiting_for_quota(never.short) if never.short is not None else None
    key, more = (f":{beyond.key}", say(". {text}", text=beyond.text)) if beyond is not None else ("", "")
    words = say("{text}. No node there is can run it. {way}{more}", text=text, way=way, more=more)
    return Reason("FitsNoNode", f"unfit:{never.pod_set}:{text}{key}", words)


def deferred_for_nodes(short: Shortage | None, pools: str = "") -> Reason:
    """The words for a gang that released its quota for lack of places."""
    text = f"{no_room(short)}{pools}" if short is not None else say("no reason given")
    return Reason(
        "GangUnschedulable",
        f"no_nodes:{text}",
        say(
            "The gang has no places for all of its pods: {text}. Its quota is released; it is tried again when "
            "the nodes have room for it",
            text=text,
        ),
    )


def half_bound(pods: Counted, minimum: int) -> str:
    """A started gang has fewer bound pods than its minimum: the text for readers of the gang's Events alone."""
    bound, done = pods.alive - pods.succeeded, pods.succeeded
    parts = (
        [say_many(bound, "{bound} of its pods has a node", "{bound} of its pods have a node", bound=bound)]
        if bound or not done
        else []
    )
    parts += [counted(done, "has succeeded", "have succeeded")] if done else []
    return say(
        "{parts} and it needs {minimum}: they stay, and the others are placed as soon as there is room",
        parts=listed(parts),
        minimum=minimum,
    )


def judged(verdict: Verdict) -> str:
    """The verdict of kube-scheduler on a gang that kube-scheduler places."""
    if verdict.scheduled:
        return say("it has places for it")
    return say(
        "it has no places for it ({reason}): {message}",
        reason=verdict.reason,
        message=verdict.message or say("no message"),
    )


def group_seen(group: PodGroup) -> str:
    """An observed PodGroup."""
    size = say("pods that start one by one") if group.alone else say("a gang of {minimum}", minimum=group.minimum)
    return (
        size
        if group.verdict is None
        else say("{size}; kube-scheduler says: {judged}", size=size, judged=judged(group.verdict))
    )


# --- victims ----------------------------------------------------------------------------------------------------------


def listed_victims(victims: Sequence[Victim], more: int = 0) -> str:
    """The first victims, with request and queue. ``more``: how many victims are beyond the noted ones."""
    return few(
        [
            say(
                "{key} ({request} at {queue})",
                key=victim.ref.key,
                request=format_vector(victim.request),
                queue=victim.queue,
            )
            for victim in victims
        ],
        more,
    )


def leaving(event: PreemptionProposed) -> str:
    """The victims of a claim and the workers that Ray clusters release to the claim, without the progress."""
    moves, gives = (
        [victim for victim in event.victims if victim.moves],
        [victim for victim in event.victims if not victim.moves],
    )
    whole = say("victims: {victims}", victims=listed_victims(gives)) if gives else ""
    moved = say("to move to other nodes: {victims}", victims=listed_victims(moves)) if moves else ""
    parts = say("workers to release: {parts}", parts=raywords.parts(event.partial)) if event.partial else ""
    return say("; ").join(part for part in (whole, moved, parts) if part)


def moved(event: EvictionOrdered, hidden: int = 0) -> str:
    """The jobs that move for another job, from node to node. ``hidden``: how many jobs are beyond the noted ones."""
    names = {victim.ref.uid: victim.ref.key for victim in event.victims}
    shown = [
        say(
            "{names} from {before} to {after}",
            names=names[move.uid],
            before=listed(move.before[:3]),
            after=listed(move.after[:3]),
        )
        for move in event.moves[:5]
        if move.uid in names
    ]
    hidden = max(hidden, len(event.moves) - len(shown))
    return say("{shown}, and {hidden} more", shown=listed(shown), hidden=hidden) if hidden else listed(shown)


# --- events -----------------------------------------------------------------------------------------------------------


def placed(event: d.GangAdmitted) -> str:
    """``; placed on node-1 (3), node-2 (1)``; nothing where nothing is placed."""
    where = _where((placement.node, placement.count) for placement in event.placements)
    rule = say(", by the rule {placement} of its queue", placement=event.placement) if event.placement else ""
    return say("; placed on {where}{rule}", where=where, rule=rule) if where else ""


def admitted_on(event: d.GangAdmitted, around: Happening) -> str:
    """The places of an admission, with the rule of the configuration if known; a happening lists nodes, not pods."""
    if not around.nodes:
        return placed(event)
    rule = say(
        ", by the rule {words} of {queue}",
        words=around.words,
        queue=say("queue {queue}", queue=event.queue) if event.placement else say("the configuration"),
    )
    return say(
        "; placed on {listed_nodes}{rule}",
        listed_nodes=listed_nodes(around.nodes, around.more),
        rule=rule if around.words else "",
    )


def listed_nodes(nodes: Iterable[tuple[str, int]], more: int) -> str:
    """``node-1 (3), node-2 (1) and 4 more nodes``."""
    shown = listed(say("{node} ({count})", node=node, count=count) for node, count in nodes)
    return say("{shown} and {more}", shown=shown, more=counted(more, "more node")) if more else shown


def _where(places: Iterable[tuple[str, int]]) -> str:
    """``node-1 (3), node-2 (1)``, of (node, how many pods)."""
    nodes: dict[str, int] = {}
    for node, count in places:
        nodes[node] = nodes.get(node, 0) + count
    shown = listed(say("{node} ({count})", node=node, count=count) for node, count in list(nodes.items())[:5])
    return shown + (say(" and {nodes} more nodes", nodes=len(nodes) - 5) if len(nodes) > 5 else "")


def room(event: d.PlacesFound) -> str:
    """Why a gang without places is evaluated again."""
    cause = say("node pools may add nodes") if event.growth else say("the nodes have room")
    return say("{cause} for its gang: it is queued again", cause=cause)


def given_back(event: d.PlacesReleased) -> str:
    """The held places that are released, and the reason."""
    count = sum(placement.count for placement in event.placements)
    nodes = listed(dict.fromkeys(placement.node for placement in event.placements[:5]))
    return say(
        "{count} held on {nodes} released: {why}",
        count=counted(count, "place"),
        nodes=nodes,
        why=say(reasons.GIVEN_BACK[event.reason]),
    )


def lacks_nodes(event: d.GangAwaitingNodes | d.GangDeferred) -> str:
    """Why a gang of a job has no places, and which node pools could add nodes."""
    if isinstance(event, d.GangAwaitingNodes):
        return f"{no_room(event.shortage)}{from_pools(event.growth, ())}"
    return f"{no_room(event.shortage)}{from_pools(None, event.refusals)}"


def awaits_nodes(event: d.GangAwaitingNodes, _around: Happening) -> str:
    """Why a gang that keeps its quota has no places."""
    return say("its quota is reserved, and it waits for nodes: {lacks_nodes}", lacks_nodes=lacks_nodes(event))


def room_proposed(event: d.PreemptionProposed) -> str:
    """The jobs that are proposed as victims for a job without places on the nodes."""
    count = len(event.victims)
    jobs = say("1 job is") if count == 1 else say("up to {count} jobs are", count=count)
    moving = sum(victim.moves for victim in event.victims)
    how = say("to move to other nodes") if moving == count else say("for eviction")
    if 0 < moving < count:
        how = say("for eviction, {moving} of them to move to other nodes", moving=moving)
    proposed = say("its quota has room, and the nodes have none: {jobs} proposed {how}", jobs=jobs, how=how)
    return proposed + fits_on(event)


def fits_on(event: d.PreemptionProposed) -> str:
    """Where the job fits once the victims of a plan are gone; empty where that is not known."""
    if not event.places:
        return ""
    where = _where((place.node, place.count) for place in event.places)
    moved = (
        say("with {moves} moved to other nodes", moves=counted(len(event.moves), "job"))
        if event.moves
        else say("with its victims evicted")
    )
    return say("; {moved}, it fits on {where}", moved=moved, where=where)


def room_made(event: d.EvictionOrdered, around: Happening) -> str:
    """The jobs that leave to make room for a job on the nodes."""
    if len(event.moves) == len(event.victims) + around.more:
        ways = moved(event, around.more)
        return say(
            "moved to make room for it on the nodes: {ways}; each keeps its quota and starts again there", ways=ways
        )
    why = (
        say("of lower priority than {priority}", priority=event.priority)
        if event.kind == "priority"
        else say("above the {owed} of its queue", owed=terms(event.queue).owed)
    )
    beside = say("; moved for it: {moved}", moved=moved(event)) if event.moves else ""
    return say(
        "suspended to make room for it on the nodes: {victims}, {why}{beside}",
        victims=listed_victims(event.gives, around.more),
        why=why,
        beside=beside,
    )


def pods_placed(event: gangs.PodsPlaced, around: Happening) -> str:
    """How many pods get nodes, and which nodes."""
    where = listed_nodes(around.nodes, around.more) if around.nodes else _where((pod.node, 1) for pod in event.pods)
    whose = say(" of {gangs}", gangs=say(" and ").join(event.gangs[:5])) if event.gangs else ""
    if not whose and (around.number or len(event.pods)) == 1:
        return say("placed on {where}", where=where.removesuffix(" (1)"))
    return say(
        "{number}{whose} placed on {where}",
        number=counted(around.number or len(event.pods), "pod"),
        whose=whose,
        where=where,
    )


def pods_released(event: gangs.PodsReleased, around: Happening) -> str:
    """The pods that lost their node before the binding, and the reason."""
    shown = listed(say("{key} on {node}", key=pod.ref.key, node=pod.node) for pod in event.pods[:5])
    hidden = max(0, len(event.pods) - 5) + around.more
    return say(
        "{shown}{hidden} released: {why}",
        shown=shown,
        hidden=say(", and {hidden} more", hidden=hidden) if hidden else "",
        why=say(reasons.PODS_RELEASED[event.reason]),
    )


def held_back(event: gangs.GangHeldBack) -> str:
    """Why a gang waits."""
    parts = [say(reasons.HELD_BACK[event.reason])]
    if event.by:
        parts[0] += say(" ({by})", by=event.by)
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
    again = say(", try {tries}", tries=event.tries) if event.tries > 1 else ""
    return say(
        "{nodes} for {pods} without a place (ProvisioningRequest {name}, class {provisioning}){again}",
        nodes=pool_nodes(event.pools),
        pods=pods,
        name=event.name,
        provisioning=event.provisioning,
        again=again,
    )


def nodes_withdrawn(event: growing.NodesRequestWithdrawn) -> str:
    """Why a request for nodes is withdrawn, and when the next follows."""
    cause = problems.after(event.problem)
    again = say("; requested again after {retry_at}", retry_at=rfc3339(event.retry_at)) if event.retry_at else ""
    return say(
        "the request for nodes is withdrawn: {why}{cause}{again}",
        why=say(reasons.WITHDRAWN[event.reason]),
        cause=cause,
        again=again,
    )


def node_pools(event: facts.NodePoolsObserved) -> str:
    """The declared node pools, and the pools that cannot be used."""
    good = [
        say("{name} (up to {most})", name=pool.name, most=counted(pool.most, "node"))
        for pool in event.pools
        if pool.refusal is None
    ]
    bad = [problems.line(pool.refusal) for pool in event.pools if pool.refusal is not None]
    refused = say("; refused: {bad}", bad=say("; ").join(bad[:3])) if bad else ""
    return say("node pools: {good}{refused}", good=listed(good[:10]) or say("none"), refused=refused)


# --- gangs ------------------------------------------------------------------------------------------------------------


def gang_text(status: GangStatus) -> str:
    """One sentence, without a full stop."""
    pods, held = status.pods, status.held
    sizes = say(
        "{pods}, {bound} with a node, {running} running",
        pods=counted(pods.pods, "pod"),
        bound=pods.bound,
        running=pods.running,
    )
    if held is not None:
        round_ = say(" in round {cycle}", cycle=held.cycle) if held.cycle else ""
        return say("It waits{round}: {held_back} ({sizes})", round=round_, held_back=held_back(held), sizes=sizes)
    match status.code:
        case "Gone":
            return say("All of its pods are gone")
        case "OtherScheduler":
            return say("None of its pods names our scheduler: spec.schedulerName places them ({sizes})", sizes=sizes)
        case "KubeScheduler":
            return say("kube-scheduler places it: {verdict} ({sizes})", verdict=_verdict(status), sizes=sizes)
        case "Finished":
            return say(
                "It finished: {succeeded} of its pods succeeded, of {minimum} that it needs",
                succeeded=pods.succeeded,
                minimum=status.minimum,
            )
        case "Failed":
            return say("It failed: {failed} failed ({sizes})", failed=counted(pods.failed, "pod"), sizes=sizes)
        case "Running":
            return say(
                "All of its pods have a node, and {running} of them run ({sizes})", running=pods.running, sizes=sizes
            )
        case "Bound":
            return say("All of its pods have a node, and none runs yet ({sizes})", sizes=sizes)
        case "Starting":
            return say("Its pods are being bound ({sizes})", sizes=sizes)
        case _:
            return say(
                "It was observed, and no decision about it exists yet ({sizes}, it needs {minimum})",
                sizes=sizes,
                minimum=status.minimum,
            )


def whereabouts(node: str, *, running: bool, over: bool, succeeded: bool) -> str:
    """The node of a pod of a gang, or the state of the pod."""
    if over:
        return say("succeeded") if succeeded else say("failed")
    if not node:
        return say("waits")
    return say("runs on {node}" if running else "bound on {node}", node=node)


def _verdict(status: GangStatus) -> str:
    verdict = status.verdict
    if verdict is None:
        takes = (
            say("needs {minimum}", minimum=status.minimum) if status.minimum else say("requests no gang or is missing")
        )
        return say("it has not said yet whether it has places, and its PodGroup {takes}", takes=takes)
    return judged(verdict)


def gang_event_text(event: GangHeldBack, pods: Counted, minimum: int) -> str:
    """The text of an Event on pods that wait, after the names of the pods. ``pods``: of the gang, which needs
    ``minimum``.
    """
    text = _gang_event_text(event)
    if event.gang and event.reason != "broken" and 0 < pods.alive < minimum:
        return say("{text}; {half_bound}", text=text, half_bound=half_bound(pods, minimum))
    return text


def _gang_event_text(event: GangHeldBack) -> str:
    if not ends_a_round(event.reason):
        return say("in gang waits: {held_back}", held_back=held_back(event))
    if not event.gang and event.reason != "gave_way" and event.shortage is not None:
        return say("finds no node: {no_room}", no_room=no_room(event.shortage, pods_of(event)))
    why = say("rejected by podgroup {by}", by=event.by) if event.reason == "gave_way" else lack(event)
    return say("in gang failed to be scheduled in cycle {cycle}: {why}", cycle=max(event.cycle, 1), why=why)


def lacks(event: GangHeldBack) -> str:
    """The message of a pod's condition: the nodes first, as in all schedulers, then the gang that took the room."""
    return say("{lack}; rejected by podgroup {by}", lack=lack(event), by=event.by) if event.by else lack(event)


def lack(event: GangHeldBack) -> str:
    """The places that a gang lacks, and the nodes that pools could add."""
    if event.shortage is None:
        return problems.line(event.problem) if event.problem is not None else ""
    return no_room(event.shortage, pods_of(event)) + from_pools(event.growth, event.refusals)
