"""The effects of a change now: the queues without and with the change, both played forward. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from muster.core.queueing.queues import Queues
from muster.core.quota.trees.rules import flavors_written
from muster.core.quota.trees.treesource import as_written, read_tree
from muster.events.facts import QuotaTreeObserved
from muster.model.language import listed, say
from muster.model.problem import FieldProblem
from muster.model.quota import QuotaTree
from muster.model.resources import QuantityError, Vector, add_into, format_quantity, parse_quantity
from muster.model.text import counted, span
from muster.model.workload import Workload
from muster.serving import shapes, supposed
from muster.serving.forking import FIELDS, binds, projected, with_quota, with_request
from muster.serving.scope import Lens
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.status.unfit import close_names
from muster.told.wording import jobs, problems

MOST_CHANGES = 16
SHOWN = 50
NODE_CODES = ("GangUnschedulable", "AwaitingNodes", "FitsNoNode")


class ChangeError(Exception):
    """A change that cannot be tried, and why."""


def what_if(
    state: ReadState,
    lens: Lens,
    moment: shapes.MomentView,
    changes: Sequence[supposed.Change],
    now: int,
    job: str = "",
) -> supposed.WhatIf:
    """The effects of changes. ``job``: the job in question, which is listed first. Raises ChangeError."""
    if not changes or len(changes) > MOST_CHANGES:
        raise ChangeError(f"give 1 to {MOST_CHANGES} changes")
    queues, nodes = state.queues, []
    for change in changes:
        if change.nodes:
            nodes += [_amount(change)] * change.nodes
        else:
            _known(state, change)
            queues = _changed(queues, change, lens)
    _accepted(state.queues, queues)
    # Both are of this moment: of an older look every job would seem to start earlier now.
    before, after = projected(state, state.queues, now), projected(state, queues, now)
    effects: list[supposed.Effect] = []
    earlier = later = 0
    for uid, waiting in queues.jobs.items():
        if waiting.status != "waiting":
            continue
        was, would = before.get(uid), after.get(uid)
        early = would is not None and (was is None or would.wait < was.wait)
        late = was is not None and (would is None or would.wait > was.wait)
        earlier, later = earlier + early, later + late
        if not lens.sees(waiting.ref.namespace):
            continue
        waits = [projected.wait if projected is not None else None for projected in (was, would)]
        effects.append(
            supposed.Effect(waiting.ref.key, waiting.queue, waits[0], waits[1], uid)
        )  # `binds` holds the uid until the shown jobs are chosen.
    effects.sort(key=lambda effect: (effect.job != job, -_gain(effect), effect.job))
    shown = [
        structs.replace(effect, binds=lens.words(_binds(state, queues, effect.binds, nodes, now)))
        for effect in effects[:SHOWN]
    ]
    one, other = (
        sum(1 for projected in played.values() if not projected.wait and not projected.owed)
        for played in (before, after)
    )
    summary = _summary(earlier, later, shown, nodes)
    return supposed.WhatIf(moment, [*changes], len(effects), one, other, earlier, later, shown, summary)


def _gain(effect: supposed.Effect) -> int:
    never = 1 << 50
    before, after = (never if wait is None else wait for wait in (effect.before, effect.after))
    return abs(before - after)


def _changed(queues: Queues, change: supposed.Change, lens: Lens) -> Queues:
    if change.job:
        jobs = [job for job in queues.jobs.values() if job.ref.key == change.job and job.status == "waiting"]
        if not jobs or not lens.sees(jobs[0].ref.namespace):
            raise ChangeError(f"no job {change.job} waits in a queue, or none that you may see")
        return with_request(queues, jobs[0].ref.uid, change.resource, _parsed(change))
    if change.queue not in queues.ledger.nodes or not lens.sees_queue(change.queue):
        raise ChangeError(f"there is no quota {change.queue}, or none that you may see")
    if change.field not in FIELDS:
        raise ChangeError(f"of a quota {', '.join(FIELDS)} can be changed, not {change.field!r}")
    amount, tree = _parsed(change) if change.value else None, queues.ledger.tree_of(change.queue)
    whole = tree is not None and not tree.by_shares and change.queue == tree.root and change.field != "weight"
    for field in ("min", "max") if whole else (change.field,):  # The min and the max of a root are one number.
        queues = with_quota(queues, change.queue, field, change.resource, amount)
    return queues


def _known(state: ReadState, change: supposed.Change) -> None:
    """Raises ChangeError for a resource that no node and no quota has."""
    names = {name for node in state.queues.ledger.nodes.values() for name in (*node.limit, *node.guaranteed)}
    names |= {name for name in state.nodes.offering if name}
    if state.nodes.nodes and change.resource and change.resource not in names:
        near = ", ".join(close_names(change.resource, names))
        raise ChangeError(f"no node and no quota has {change.resource}; there is {near}")


def _accepted(before: Queues, after: Queues) -> None:
    """Raises ChangeError for a tree that Muster would refuse: the tree is read as if it were applied."""
    for name, tree in after.ledger.trees.items():
        old = before.ledger.trees.get(name)
        if tree == old or tree.by_shares:  # A KAI queue breaks no rule by its amounts.
            continue
        known = _broken(old) if old is not None else []
        broken = [problem for problem in _broken(tree) if problem not in known]
        if broken:
            more = say(" (and {broken})", broken=counted(len(broken) - 1, "more problem")) if len(broken) > 1 else ""
            raise ChangeError(f"Muster would refuse this tree: {problems.line(broken[0])}{more}")


def _broken(tree: QuotaTree) -> list[FieldProblem]:
    rules = {"runtime": str(tree.rules.runtime)} if tree.rules.runtime else {}
    rules |= {"flavors": flavors_written(tree.flavors)} if tree.flavors else {}
    object_ = QuotaTreeObserved(ref=tree.ref, rv=0, created=0, root=as_written(tree), rules=rules)
    return read_tree(object_)[1]


def _parsed(change: supposed.Change) -> int:
    if not change.resource:
        raise ChangeError("name the resource, e.g. nvidia.com/gpu")
    try:
        return parse_quantity(change.value, change.resource)
    except QuantityError as err:
        raise ChangeError(problems.say(err.problem)) from err


def _amount(change: supposed.Change) -> Vector:
    if not 0 < change.nodes <= 1000:
        raise ChangeError(f"nodes is {change.nodes}; take 1 to 1000")
    return {change.resource: _parsed(change)}


def _binds(state: ReadState, queues: Queues, uid: str, nodes: Sequence[Vector], now: int) -> str:
    """The reason why a job still waits after the change; nodes are counted by amounts alone."""
    status = job_status(state, uid)
    if status.code in NODE_CODES:
        return (
            ""
            if nodes and uid in state.queues.workloads and fits(state, state.queues.workloads[uid], nodes)
            else jobs.text(status, now)
        )
    return binds(queues, queues.jobs[uid], now)


def fits(state: ReadState, workload: Workload, more: Sequence[Vector]) -> bool:
    """Whether the pods of a job find room on more nodes and in free amounts, by amounts alone, the largest first."""
    free = {node.ref.name: dict(node.allocatable) for node in state.nodes.nodes.values()}
    for pod in state.nodes.pods.values():
        if pod.node in free:
            add_into(free[pod.node], {name: n for name, n in pod.request.items() if name in free[pod.node]}, -1)
    rooms = [*({**node} for node in more), *free.values()]
    named = {name for room in rooms for name in room}
    for pods in sorted(workload.pod_sets, key=lambda pods: [-pods.request.get(name, 0) for name in sorted(named)]):
        asked = {name: amount for name, amount in pods.request.items() if name in named and amount}
        left = pods.count
        for room in rooms:
            if left <= 0:
                break
            take = min([left, *(room.get(name, 0) // amount for name, amount in asked.items())])
            if take > 0:
                left -= take
                add_into(room, {name: amount * take for name, amount in asked.items()}, -1)
        if left > 0:
            return False
    return True


def _summary(earlier: int, later: int, shown: Sequence[supposed.Effect], nodes: Sequence[Vector]) -> str:
    """One sentence, and the limit that still binds."""
    if not shown:
        return say("No job waits: nothing changes.")
    first, parts = shown[0], []
    if earlier:
        parts.append(say("{earlier} would start earlier", earlier=counted(earlier, "waiting job")))
    if later:
        parts.append(say("{later} later", later=counted(later, "waiting job")))
    text = listed(parts) if parts else say("No waiting job would start earlier")
    if parts and first.before is not None and first.after is not None and first.before > first.after:
        text += say("; {job} by {earlier}", job=first.job, earlier=span(first.before - first.after))
    if nodes and not earlier:
        name, amount = next(iter(nodes[0].items()))
        text += say(
            ": {nodes} with {amount} {name} each change no quota",
            nodes=counted(len(nodes), "more node"),
            amount=format_quantity(amount, name),
            name=name,
        )
    binding = next((effect.binds for effect in shown if effect.binds), "")
    return say("{text}. Still binding: {binding}.", text=text, binding=binding) if binding else f"{text}."
