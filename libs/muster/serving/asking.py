"""The prospects of a job that is not submitted yet: the start, the costs, and the changes for a start now. Pure.

The queues are forked in memory, with the job at its place; nothing is written. The answer for now comes from the
ledger. The answer for later comes from the queue played forward, corrected by the error of earlier projections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import structs

from muster.core.objects.meta import QUOTA_NAME, UnreadableError
from muster.core.promising.projection import Projected
from muster.core.queueing.queues import Job, Queues
from muster.core.queueing.standing import refusal_of
from muster.core.quota.demand import counted
from muster.core.quota.ledger.quotaledger import leaf_of
from muster.core.workloads.registry import KINDS
from muster.events.refusals import Refusal
from muster.model.keys import Ref, path_chain
from muster.model.language import say
from muster.model.quota import QuotaNode, flavor_names
from muster.model.resources import format_vector, texts
from muster.model.text import counted as numbered
from muster.model.text import few, lower, span, upper
from muster.model.workload import PodSet, Workload
from muster.serving import shapes, supposed
from muster.serving.forking import binds, new_job, other_demands, projected, with_job
from muster.serving.scope import Lens
from muster.serving.views import start_shape
from muster.serving.whatif import fits
from muster.told.codes.values import Promise
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import promised
from muster.told.status.unfit import close_names, unfit
from muster.told.wording import explain, nodewords, problems, queuewords, reasons

MOST_COSTS = 5
LOOKED_AT = 2_000
"""The most jobs that start before the new job, and after, for a projection of the costs."""
RUN_TIMES_MS = (4 * 3_600_000, 3_600_000, 1_800_000, 600_000)
UID = "asked"
STARTS = "It would start now."


class ManifestError(Exception):
    """A document that is no manifest of a job, and why."""


def read_job(manifest: Mapping[str, Any]) -> Workload:
    """The job of a manifest. Raises ManifestError."""
    kind, meta = manifest.get("kind"), manifest.get("metadata") or {}
    if not isinstance(kind, str) or kind not in KINDS or not isinstance(meta, dict):
        raise ManifestError(
            f"{kind[:60] if kind and isinstance(kind, str) else 'this'} is no kind of job: there are {', '.join(KINDS)}"
        )
    name = meta.get("name") or f"{meta.get('generateName') or 'job-'}new"
    made = {"namespace": "default", "creationTimestamp": "2000-01-01T00:00:00Z", "generation": 1, **meta}
    body = {**manifest, "metadata": {**made, "name": name, "uid": UID, "resourceVersion": "1"}, "status": {}}
    try:
        workload = KINDS[kind].read(msgspec.json.encode(body))
    except UnreadableError as err:
        raise ManifestError(f"{kind} {str(name)[:253]} cannot be read: {problems.line(err.problem)}") from err
    except msgspec.MsgspecError as err:
        raise ManifestError(f"{kind} {str(name)[:253]} cannot be read: {err}") from err
    if not isinstance(workload, Workload):
        raise ManifestError(f"{kind} {name} is a part of another job, and is not queued by itself")
    return workload


def ask(
    state: ReadState,
    lens: Lens,
    moment: shapes.MomentView,
    workload: Workload,
    now: int,
    part: Callable[[supposed.AskView], None] | None = None,
) -> supposed.AskView:
    """The prospects of a job. ``part``: receives the answer without promise, costs and advice, before the search for
    them.
    """
    queues, ref = state.queues, workload.ref
    leaf = leaf_of(queues.ledger, workload)
    turned_away = refusal_of(queues.ledger, workload, leaf)
    if leaf is None or turned_away is not None or not lens.sees(ref.namespace):
        text = _not_queued(state, lens, ref, turned_away if lens.sees(ref.namespace) else None)
        key, summary = lens.words(ref.key), say("It is not queued: {text}.", text=text)
        return supposed.AskView(moment, ref.kind, key, "", {}, False, None, "", text, [], [], summary)
    job = new_job(state, workload, leaf, max(now, state.now))
    never, beyond = unfit(state.nodes, workload), _beyond(state, job)
    hopeless = ". ".join([*([nodewords.unfit(never).text] if never is not None else []), *beyond])
    refused = hopeless or refusal(state, job, workload)
    known = supposed.AskView(
        moment=moment,
        kind=ref.kind,
        job=ref.key,
        queue=leaf,
        request=texts(job.demand.request),
        starts_now=not refused or not workload.suspended,
        promise=None,
        why_no_promise=say("time ran out before its start was foreseen") if refused else "",
        binds=lens.words(refused),
        costs=[],
        advice=[],
        summary=lens.words(
            f"{_first(workload)}{(say('It would wait: {refused}.', refused=refused) if refused else STARTS)}"
        ),
        complete=False,
    )
    if hopeless:
        known = structs.replace(
            known,
            why_no_promise=queuewords.no_promise("standing", "ExceedsMaxQuota"),
            summary=lens.words(f"{_first(workload)}It would never run: {hopeless}."),
        )
    if part is not None:
        part(known)
    if hopeless:
        advice = [*_advice(state, lens, job, workload)] if never is None else []
        more = f"{known.summary} {_advised(advice)}".rstrip()
        return structs.replace(known, advice=advice, summary=more, complete=True)
    after = projected(state, with_job(queues, job), now, until=ref.uid, beyond=LOOKED_AT)
    promise = _promise(state, job, after.get(ref.uid), now) if refused else Promise(why="not_waiting")
    costs = [lens.words(cost) for cost in _costs(state, job, after, now)] if ref.uid in after else []
    advice = [*_advice(state, lens, job, workload)] if refused else []
    summary = _first(workload) + _summary(refused, promise, advice, now, owed=ref.uid in after and after[ref.uid].owed)
    summary = " ".join([summary, *_on_others(state, workload, job, now)])
    return structs.replace(
        known,
        promise=start_shape(promise),
        why_no_promise=queuewords.no_promise(promise.why, "it") if refused else "",
        costs=costs,
        advice=advice,
        summary=lens.words(summary),
        complete=True,
    )


MOST_OTHERS = 3


def _on_others(state: ReadState, workload: Workload, job: Job, now: int) -> Iterator[str]:
    """The prospects of a job on other types of nodes than the first with room."""
    others = [demand for demand in other_demands(state, workload, job.queue) if demand.flavors != job.demand.flavors]
    for demand in others[:MOST_OTHERS]:
        names = say(" and ").join(flavor_names(demand.flavors))
        other = new_job(state, workload, job.queue, job.queued_at, demand)
        if binds(state.queues, other, max(other.queued_at, state.now)):
            after = projected(state, with_job(state.queues, other), now, until=other.ref.uid, beyond=LOOKED_AT)
            promise = _promise(state, other, after.get(other.ref.uid), now)
            start = "" if promise.why else lower(queuewords.promised_start(promise, now))
            if start:
                yield say("On {names} it would wait: it {start}.", names=names, start=start)
            else:
                yield say("On {names} it would wait.", names=names)
        else:
            yield say("On {names} it would start at once, too.", names=names)


def _first(workload: Workload) -> str:
    """What is said before the prospects in the queue: the job is not suspended, or asks for nothing."""
    text = ""
    if not workload.suspended:
        text = say(
            "It is not suspended: it would run at once, in no queue, and be charged from then on. Create it "
            "suspended; the admission policies of Muster do so, where they are installed. If it is suspended: "
        )
    if not any(amount for pods in workload.pod_sets for amount in pods.request.values()):
        text += say("Its pods ask for no resources, so no quota limits it: set resources.requests. ")
    return text


def _not_queued(state: ReadState, lens: Lens, ref: Ref, refusal: Refusal | None) -> str:
    """Why a job is in no queue, and the way out. ``refusal``: None where the viewer may not see the namespace."""
    claimed = {namespace: leaf for namespace, leaf in state.queues.ledger.leaf_of.items() if lens.sees(namespace)}
    if refusal is not None and refusal.detail != "namespace_unclaimed":
        return lens.words(reasons.refused(refusal, ref.kind, ref.key))
    if refusal is None:
        text = say("no quota that you may see claims its namespace")
    else:
        text = lens.words(reasons.refused(refusal, ref.kind, ref.key))
    if not claimed:
        return text
    below = [namespace for namespace, leaf in claimed.items() if ref.namespace in leaf.split("/")]
    return say(
        "{text}. These namespaces have one: {below}",
        text=text,
        below=few(below or [*close_names(ref.namespace, claimed)]),
    )


def _beyond(state: ReadState, job: Job) -> list[str]:
    """The limit that the job exceeds even if all quota is released, if any."""
    short = state.queues.ledger.shortfall(job.queue, job.demand, now=max(job.queued_at, state.now))
    return [explain.waiting_for_quota(short).text] if short is not None and short.hopeless else []


def refusal(state: ReadState, job: Job, workload: Workload) -> str:
    """Why the job would not start at once; empty where the job would."""
    queues = state.queues
    if not state.admitting:
        return say("nothing is admitted now: the cluster is not fully listed, or the log is nearly full")
    if "admissions" in queues.resting(job.queue):
        return say("admissions are paused in {queue}", queue=job.queue)
    obstacle = binds(queues, job, max(job.queued_at, state.now))
    if not obstacle and queues.places and not fits(state, workload, ()):
        return say("its pods find no room on the nodes, by amounts alone")
    return obstacle


def _promise(state: ReadState, job: Job, projected: Projected | None, now: int) -> Promise:
    known = promised(state, projected.wait if projected is not None else 0, job.demand.request, max(now, state.now))
    return known if known.why or projected is not None else Promise(why="endless")


def _costs(state: ReadState, job: Job, after: Mapping[str, Projected], now: int) -> Iterator[str]:
    """The borrowers whose quota the job may reclaim, and the jobs that would start later."""
    queues, uid = state.queues, job.ref.uid
    if after[uid].owed:
        yield from _borrowers(queues, job)
    ahead = list(after).index(uid)
    if ahead > LOOKED_AT:
        yield say(
            "jobs that would start later are not foreseen: {ahead} would start before it", ahead=numbered(ahead, "job")
        )
        return
    # Both are of this moment: of an older look every job would seem to start earlier now.
    before = projected(state, queues, now, most=len(after))
    cut = len(after) >= ahead + LOOKED_AT
    later = [
        (after[other].wait - projected.wait if other in after else -1, other)
        for other, projected in before.items()
        if other in queues.jobs and (after[other].wait > projected.wait if other in after else not cut)
    ]
    for delay, other in sorted(later, reverse=True)[:MOST_COSTS]:
        key = queues.jobs[other].ref.key
        if delay > 0:
            yield say("{job} would start {delay} later", job=key, delay=span(delay))
        else:
            yield say("{job} would start later", job=key)
    if len(later) > MOST_COSTS:
        least = say("at least ") if cut else ""
        yield say("and {least}{later} later", least=least, later=numbered(len(later) - MOST_COSTS, "other job"))


def _borrowers(queues: Queues, job: Job) -> Iterator[str]:
    """Jobs of queues above their guarantee of the resource that the job lacks: the newest jobs are evicted first."""
    short = queues.ledger.shortfall(job.queue, job.demand)
    if short is None:
        return
    missing, shown = short.asked - (short.limit - short.used), 0
    for uid, charge in reversed(queues.ledger.charges.items()):
        node = queues.ledger.nodes.get(charge.queue)
        amount = counted(charge.demand).get(short.resource, 0)
        used = queues.ledger.used.get(charge.queue, {}).get(short.resource, 0)
        workload = queues.workloads.get(uid)
        if not amount or node is None or workload is None or charge.queue == job.queue or missing <= 0:
            continue
        if (
            short.path in path_chain(charge.queue)
            and used > node.guaranteed.get(short.resource, 0)
            and shown < MOST_COSTS
        ):
            shown, missing = shown + 1, missing - amount
            yield say("{key} borrows at {queue}, and may be suspended for it", key=workload.ref.key, queue=charge.queue)


def _advice(state: ReadState, lens: Lens, job: Job, workload: Workload) -> Iterator[supposed.Advice]:
    """Changes for a start at once: a smaller job, another queue, a declared run time; the smallest change of each
    kind.
    """
    smaller = _smaller(state, job, workload)
    if smaller is not None:
        yield smaller
    for path, node in state.queues.ledger.nodes.items():
        moved = _in_queue(state, job, workload, node) if path != job.queue and lens.sees_queue(path) else None
        if moved is not None and not refusal(state, moved, workload):
            text = say(
                "with label {label}: {name} it is of queue {path}, and starts now",
                label=QUOTA_NAME,
                name=node.name,
                path=path,
            )
            yield supposed.Advice(f"queue={path}", text)
            break
    for run_ms in RUN_TIMES_MS:
        demand = structs.replace(job.demand, run_ms=run_ms)
        if (not job.demand.run_ms or run_ms < job.demand.run_ms) and not refusal(
            state, structs.replace(job, demand=demand), workload
        ):
            yield supposed.Advice(
                f"run_time={span(run_ms)}",
                say("if it declares to run at most {run}, it starts now", run=span(run_ms)),
            )
            break


def _in_queue(state: ReadState, job: Job, workload: Workload, node: QuotaNode) -> Job | None:
    """The job in another queue, by the rules of the queue's tree; None where no label can name the queue."""
    queues = state.queues
    named = structs.replace(workload, labels={**workload.labels, QUOTA_NAME: node.name})
    if node.children or leaf_of(queues.ledger, named) != node.path:
        return None
    return new_job(state, named, node.path, job.queued_at)


def _smaller(state: ReadState, job: Job, workload: Workload) -> supposed.Advice | None:
    """The most pods of the largest pod set with which the job starts now, if any."""
    largest = max(workload.pod_sets, key=lambda pod_set: pod_set.count, default=None)
    if largest is None or largest.count < 2:
        return None
    # A refusal of a job refuses a larger job too: the counts that start are below the refused counts.
    starts: Job | None = None
    fitting, refused = 0, largest.count
    while refused - fitting > 1:
        middle = (fitting + refused) // 2
        fewer = smaller_job(job, workload, middle)
        if fewer is None or refusal(state, fewer, _with_pods(workload, largest, middle)):
            refused = middle
        else:
            fitting, starts = middle, fewer
    if starts is None:
        return None
    asks = format_vector(starts.demand.request)
    text = say(
        "with {fitting} instead of {count} pods of {name} ({asks}) it starts now",
        fitting=fitting,
        count=largest.count,
        name=largest.name,
        asks=asks,
    )
    return supposed.Advice(f"{largest.name}={fitting}", text)


def _with_pods(workload: Workload, largest: PodSet, count: int) -> Workload:
    sets = tuple(
        structs.replace(pod_set, count=count) if pod_set is largest else pod_set for pod_set in workload.pod_sets
    )
    return structs.replace(workload, pod_sets=sets)


def smaller_job(job: Job, workload: Workload, count: int) -> Job | None:
    """The job with ``count`` pods in the largest pod set; None where the request stays the same."""
    largest = max(workload.pod_sets, key=lambda pod_set: pod_set.count)
    gone = largest.count - count
    request = {name: amount - gone * largest.request.get(name, 0) for name, amount in job.demand.request.items()}
    if request == job.demand.request or min(request.values(), default=0) < 0:
        return None
    pods = max(job.demand.pods - gone, 0)
    return structs.replace(job, demand=structs.replace(job.demand, request=request, pods=pods))


def _summary(refused: str, promise: Promise, advice: list[supposed.Advice], now: int, *, owed: bool) -> str:
    if not refused:
        return STARTS
    text = say("It would wait")
    if owed:
        text += say(", and is owed its start: jobs that borrow may be suspended for it")
    elif not promise.why:
        text += say(". {promise}", promise=queuewords.promised_start(promise, now))
    else:
        text += say("; no start is promised: {why}", why=queuewords.no_promise(promise.why, "it"))
    return say("{text}. {advice}", text=text, advice=_advised(advice)).rstrip()


def _advised(advice: list[supposed.Advice]) -> str:
    """The first advice as a sentence; empty without advice."""
    return f"{upper(advice[0].text)}." if advice else ""
