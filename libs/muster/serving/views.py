"""The answers of the gateway as functions of one state and one viewer's lens. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.core.learned import Estimate
from muster.core.promising.projection import Projected
from muster.model.language import listed, say
from muster.model.resources import add_into, format_part, texts
from muster.model.text import instant
from muster.serving import shapes
from muster.serving.board import board_of
from muster.serving.boards import BoardNode
from muster.serving.joblist import listing, row_of
from muster.serving.jobrows import JobFilter, JobRow
from muster.serving.promises import promise_record
from muster.serving.scope import Lens, Scope
from muster.told.codes.codetable import CODES
from muster.told.codes.values import Promise
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import promises_of
from muster.told.views.gangstory import gang_tale, gangs_named, pods_named
from muster.told.views.story import Story
from muster.told.views.tellings import JobStory, NarratedEvent, Waits
from muster.told.wording import queuewords

GPU = "nvidia.com/gpu"
WHOLE = 1000
MOST_ROWS = 500


WAITS_FOR_QUOTA = ("InsufficientQuota", "Queued", "BeingTried")
"""Codes of a status whose duration follows from the speed of the queue."""


class MissingError(Exception):
    """The object does not exist, or the viewer may not see the object: both read alike."""


def moment_of(state: ReadState, now: int, *, live: bool) -> shapes.MomentView:
    return shapes.MomentView(state.generation, state.seq, instant(max(state.now, now)), live, state.log_id)


# --- jobs -------------------------------------------------------------------------------------------------------------


def jobs(state: ReadState, lens: Lens, moment: shapes.MomentView, wanted: JobFilter, *, skip: int, limit: int,
         now: int, foreseen: Mapping[str, Projected] | None = None) -> shapes.JobsView:  # fmt: skip
    """A page of jobs. ``foreseen``: the queues played forward; None: no start is asked for."""
    listed = listing(state, wanted, lens.sees)
    uids = listed.uids
    page = uids[skip : skip + min(limit, MOST_ROWS)]
    promises = _promises(state, page, now, foreseen)
    rows = [row_of(state, uid, now, promises[uid]) for uid in page]
    states: dict[str, int] = dict(sorted(listed.states.items()))
    return shapes.JobsView(moment, len(uids), states, [job_shape(row, lens) for row in rows], listed.failed)


def _promises(
    state: ReadState, uids: Sequence[str], now: int, foreseen: Mapping[str, Projected] | None
) -> dict[str, Promise]:
    if foreseen is None:
        return dict.fromkeys(uids, Promise(why="not_waiting"))
    return promises_of(state, uids, now, foreseen=foreseen)


def job_shape(row: JobRow, lens: Lens) -> shapes.JobView:
    return shapes.JobView(
        uid=row.uid,
        kind=row.kind,
        namespace=row.namespace,
        name=row.name,
        state=row.phase,
        status=row.code,
        queue=row.queue,
        position=row.position,
        length=row.length,
        priority=row.priority,
        request=texts(row.request),
        since=instant(row.since),
        text=lens.words(row.text),
        outcome=row.outcome,
        tone="act" if row.outcome in ("failed", "invalid") or row.cause else CODES[row.code].tone,
        cause=row.cause,
        cause_since=instant(row.cause_since) if row.cause_since else "",
        promise=start_shape(row.promise),
        why_no_promise=queuewords.no_promise(row.promise.why, row.code),
        owner=row.owner,
        no_promise=row.promise.why,
        headline=lens.words(row.headline),
    )


def start_shape(promise: Promise) -> shapes.StartView | None:
    record = promise_record(promise)
    return None if record is None else shapes.StartView(**record)


def why(state: ReadState, lens: Lens, moment: shapes.MomentView, key: str, kind: str, *, now: int,
        acting: bool = True, foreseen: Mapping[str, Projected] | None = None, every: bool = False,
        ) -> shapes.WhyView:  # fmt: skip
    """One job, or the job of a pod. ``foreseen``: the queues played forward; None: no start is asked for. ``every``:
    with small steps.

    Raises MissingError.
    """
    story, pod = Story(key, kind, state), None
    seen = lens.sees(key.partition("/")[0])
    if seen and not kind and key not in story.matches().keys:
        pod = pods_named(state, key, now).get(key)
        story = Story(pod.job.key, pod.job.kind, state) if pod is not None else story
    if not seen or (pod is None and key not in story.matches().keys):
        raise MissingError(f"there is no job {key}, or none that you may see")
    told = story.of(pod.job.key if pod is not None else key, acting=acting, present=now)
    uid = told.ref.uid
    promise = _promises(state, (uid,), now, foreseen)[uid]
    return shapes.WhyView(
        moment=moment,
        job=job_shape(row_of(state, uid, now, promise), lens),
        text=lens.words(told.standing.text),
        wanting=_wanting(told, lens),
        events=[
            event_shape(happening.entry, lens, times=happening.times, last_at=happening.last_at)
            for happening in told.happenings
            if every or happening.entry.weight != "detail"
        ],
        pauses=[lens.words(text) for text in told.pauses],
        earlier=told.earlier,
        waits=[_waits(wait, lens) for wait in told.waits],
        code=told.standing.code,
        charged=told.standing.charged,
        pace=pace_shape(estimate) if (estimate := pace_of(told, state)) is not None else None,
        pod=lens.words(pod.text) if pod is not None else "",
    )


def pace_of(told: JobStory, state: ReadState) -> Estimate | None:
    """The rest of a wait by the speed of the queue; None where the speed says nothing about the wait."""
    standing = told.standing
    if not standing.position or standing.code not in WAITS_FOR_QUOTA:
        return None
    return state.pace.expect(standing.queue, standing.position, told.now)


def pace_shape(estimate: Estimate) -> shapes.PaceView:
    return shapes.PaceView(
        estimate.low, estimate.middle, estimate.high, estimate.rows, estimate.intervals, estimate.why
    )


def _waits(told: Waits, lens: Lens) -> shapes.RayWaitsView:
    pieces = [
        shapes.PieceView(lens.words(text), [lens.words(group) for group in groups]) for text, groups in told.pieces
    ]
    return shapes.RayWaitsView(lens.words(told.text), pieces)


def _wanting(told: JobStory, lens: Lens) -> shapes.WantingView | None:
    wanting = told.standing.wanting
    if wanting is None:
        return None
    seen = [holder for holder in wanting.holders if lens.sees(holder.job.partition("/")[0])]
    return shapes.WantingView(
        quota=lens.words(wanting.quota),
        resource=wanting.resource,
        request=wanting.request,
        limit=wanting.limit,
        used=wanting.used,
        free=wanting.free,
        missing=wanting.missing,
        holders=[shapes.HolderView(holder.job, holder.amount, lens.words(holder.text)) for holder in seen],
        held_by=wanting.held_by,
    )


def event_shape(entry: NarratedEvent, lens: Lens, *, times: int = 1, last_at: int = 0) -> shapes.EventView:
    return shapes.EventView(
        at=instant(entry.at),
        sequence=entry.seq,
        index=entry.item,
        subject=lens.words(entry.subject),
        word=entry.word,
        text=lens.words(entry.text),
        weight=entry.weight,
        times=times,
        last_at=instant(last_at) if times > 1 else "",
    )


# --- queues -----------------------------------------------------------------------------------------------------------


def queues(state: ReadState, lens: Lens, moment: shapes.MomentView) -> shapes.QueuesView:
    """The quota tree, as far as the viewer may see the quotas."""
    board = board_of(state)
    notes = (
        [say("{unsynced} are not listed yet: nothing is admitted", unsynced=listed(board.unsynced))]
        if board.unsynced
        else []
    )
    return shapes.QueuesView(
        moment=moment,
        tree=board.tree,
        queues=[_queue(state, node, lens) for node in board.nodes if lens.sees_queue(node.path)],
        notes=notes + (pauses := [lens.words(text) for text in board.pauses]),
        profile=board.profile,
        unsynced=board.unsynced,
        pauses=pauses,
    )


def _queue(state: ReadState, node: BoardNode, lens: Lens) -> shapes.QueueView:
    held = state.queues.ledger.claims.total.extra.get(node.path, {})
    head, workers = node.head, node.workers
    return shapes.QueueView(
        path=node.path,
        name=node.name,
        depth=node.depth,
        leaf=node.leaf,
        namespaces=[namespace for namespace in node.namespaces if lens.sees(namespace)],
        amounts=[
            shapes.AmountView(
                amount.resource,
                amount.used,
                amount.guaranteed,
                amount.limit,
                held.get(amount.resource, 0),
                amount.borrowed,
                format_part(amount.used, amount.limit, amount.resource),
            )
            for amount in node.amounts
        ],
        waiting=node.waiting,
        admitted=node.admitted,
        running=node.running,
        policy=node.policy,
        paused=list(node.paused),
        head=shapes.HeadView(lens.words(head.job), head.code, lens.words(head.text)) if head is not None else None,
        priority=node.priority,
        beyond=node.beyond,
        workers=None if workers is None else shapes.WorkersView(workers.granted, workers.asked, workers.going),
    )


# --- nodes and gangs --------------------------------------------------------------------------------------------------


def nodes(
    state: ReadState, lens: Lens, moment: shapes.MomentView, *, skip: int = 0, limit: int = MOST_ROWS
) -> shapes.NodesView:
    """The nodes: all where the viewer may see nodes, else the nodes with a pod in the viewer's namespaces."""
    shown, on = state.nodes, _pods_by_node(state)
    rows = sorted(shown.nodes.values(), key=lambda node: node.ref.name)
    if not lens.scope.cluster:
        rows = [node for node in rows if any(lens.sees(pod.ref.namespace) for pod in on.get(node.ref.name, ()))]
    parts, made = 0, []
    for number, node in enumerate(rows):
        pods = on.get(node.ref.name, [])
        free = dict(node.allocatable)
        for pod in pods:
            add_into(free, {name: amount for name, amount in pod.request.items() if name in node.allocatable}, -1)
        gpus, left = node.allocatable.get(GPU, 0), free.get(GPU, 0)
        parts += 0 < left < gpus
        if skip <= number < skip + limit:
            made.append(
                shapes.NodeView(
                    name=node.ref.name,
                    ready=node.ready,
                    schedulable=node.schedulable,
                    allocatable=texts(node.allocatable),
                    free=texts({name: free.get(name, 0) for name in node.allocatable}),
                    gpus=gpus // WHOLE,
                    gpus_used_milli=gpus - left,
                    pods=[
                        shapes.PodShown(
                            pod.ref.namespace,
                            pod.ref.name,
                            _job_of(state, pod.owner),
                            texts(pod.request),
                            [*pod.devices],
                        )
                        for pod in sorted(pods, key=lambda pod: pod.ref.key)
                        if lens.sees(pod.ref.namespace)
                    ],
                    others=sum(not lens.sees(pod.ref.namespace) for pod in pods),
                )
            )
    return shapes.NodesView(moment, len(rows), parts, made)


def _pods_by_node(state: ReadState) -> dict[str, list]:  # type: ignore[type-arg]
    by_node: dict[str, list] = {}  # type: ignore[type-arg]
    for pod in state.nodes.pods.values():
        by_node.setdefault(pod.node, []).append(pod)
    return by_node


def _job_of(state: ReadState, owner: str) -> str:
    """namespace/name of the job that an object belongs to; empty where no job is known."""
    seen: set[str] = set()
    while owner and owner not in seen:
        if owner in state.records:
            return state.records[owner].ref.key
        seen.add(owner)
        owner = state.presence.owner_of.get(owner, "")
    return ""


def gangs(
    state: ReadState, lens: Lens, moment: shapes.MomentView, *, skip: int = 0, limit: int = MOST_ROWS
) -> shapes.GangsView:
    """Gangs of pods that are placed as one, the newest last."""
    names = [record.name for record in state.gang_records.values() if lens.sees(record.name.partition("/")[0])]
    names = list(dict.fromkeys(names))
    return shapes.GangsView(moment, len(names), [_gang(state, lens, name) for name in names[skip : skip + limit]])


def gang(state: ReadState, lens: Lens, moment: shapes.MomentView, key: str) -> shapes.GangTold:
    """One gang with its story, by the name of the gang or of a pod. Raises MissingError."""
    named = gangs_named(state, key) if lens.sees(key.partition("/")[0]) else []
    if not named:
        raise MissingError(f"there is no gang {key}, or none that you may see")
    name = key if key in named else named[0]
    return shapes.GangTold(
        moment, _gang(state, lens, name), [event_shape(entry, lens) for entry in gang_tale(state, name).entries]
    )


def _gang(state: ReadState, lens: Lens, name: str) -> shapes.GangView:
    tale = gang_tale(state, name)
    minimum = state.gangs.gangs[name].minimum if name in state.gangs.gangs else 0
    pods = [shapes.GangPod(pod, lens.words(where)) for pod, where in tale.pods.items()]
    return shapes.GangView(name, tale.code, lens.words(tale.text), minimum, pods)


def hears(entry: NarratedEvent, scope: Scope) -> bool:
    """Whether a viewer hears of an event: events about the viewer's namespaces, and all events for a viewer of all."""
    if entry.ref is not None:
        return scope.sees(entry.ref.namespace)
    return scope.sees(entry.gang.partition("/")[0]) if entry.gang else scope.whole
