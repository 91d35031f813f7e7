"""The charge of running work, and the due decisions of one workload.

A charge is what may still run: the larger of the pods that the workload's controller may still make, and of the pods
that are there, resource by resource, at every moment. The grant follows the charge down: whatever is made beyond the
grant later is charged as overuse. A Ray cluster that scales itself may make pods up to its grant. Parts of the admitted
spec that are not counted (the helpers added by KubeRay, under profile ``ack``) are never charged; every amount on top
is.

Where the tree tells types of nodes apart, a running job is charged by the flavors of the nodes that its pods run on,
before that by its grant; and the grant follows the pods.

The due decisions of one workload are updated after each event about the workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.core.objects.gpushares import charged
from muster.core.quota.accountantstate import AccountantState, Entry, must_adopt, must_move
from muster.core.quota.accounting.suspending import ends_at, look_at, note_lack, note_overuse, note_short, note_unbound
from muster.core.quota.demand import asks_of, demand_of, located, need_of, totals_of
from muster.core.quota.endings import (
    idle_deadline,
    is_lost,
    note_acted,
    note_idle,
    overdue_at,
    release_reason,
    why_over,
)
from muster.core.quota.ledger import standalone
from muster.core.quota.trees.capacity import SeenNode, by_flavor
from muster.core.stage import leave_out, mark, put
from muster.events.base import Cause
from muster.events.charges import ChargeChanged
from muster.model.elastic import Counts
from muster.model.keys import Position
from muster.model.placing import GPU
from muster.model.quota import Flavor, QuotaTree
from muster.model.resources import Vector, add_into, beyond, highest, lowest, positive, summed, total_of
from muster.model.workload import Workload

# --- usage ------------------------------------------------------------------------------------------------------------


ACTIVE = ("starting", "running")


def aside_of(tree: QuotaTree | None, workload: Workload | None, granted: Mapping[str, int]) -> Vector:
    """The part of the workload's spec that was not counted in the grant."""
    return {} if workload is None else beyond(asks_of(tree, workload), granted)


def charge_due(state: AccountantState, entry: Entry) -> tuple[Vector, int] | None:
    """(request, pods) of the charge from here on; None for the current charge."""
    charge = state.ledger.charges[entry.ref.uid]
    granted, granted_pods = to_come(state, entry)
    request = runs_as(state, entry, granted, entry.aside)
    pods = max(granted_pods, state.presence.live_pods(entry.ref.uid))
    return None if (request, pods) == (charge.request, charge.pods) else (request, pods)


def runs_as(state: AccountantState, entry: Entry, granted: Vector, aside: Mapping[str, int]) -> Vector:
    """What may still run: of the grant, and of the pods that are there; by flavor, as the nodes and the grant tell."""
    runs = running(state, entry, aside)
    tree = state.ledger.tree_of(entry.queue)
    if tree is None or not tree.flavors:
        return located(tree, highest(granted, runs), {}, {})
    left = {name: min(amount, runs.get(total_of(name), 0)) for name, amount in entry.request.items()}
    return located(tree, highest(granted, runs), highest(granted, left), bound_of(state, tree, entry.ref.uid))


def bound_of(state: AccountantState, tree: QuotaTree, uid: str) -> Vector:
    """The amounts of the pods of a job on known nodes, with the amounts by flavor."""
    on_node: dict[str, Vector] = {}
    pod = state.standalone.get(uid)
    if pod is not None:
        add_into(on_node.setdefault(pod.node, {}), pod.request)
    for owner in state.presence.family(uid):
        for name, request in state.presence.pods.get(owner, {}).items():
            add_into(on_node.setdefault(state.members.nodes.get(name, ""), {}), request)
    bound: Vector = {}
    for name, amounts in on_node.items():
        node = state.forest.named(name)
        if node is not None:
            add_into(bound, by_flavor(tree.flavors, SeenNode(name, amounts, labels=node.labels)))
    return bound


def on_nodes(state: AccountantState, uid: str, queue: str, granted: Vector) -> Vector:
    """A grant as a grant of the flavors of the nodes that the pods run on."""
    tree = state.ledger.tree_of(queue)
    if tree is None or not tree.flavors:
        return granted
    return located(tree, granted, granted, bound_of(state, tree, uid))


def to_come(state: AccountantState, entry: Entry) -> tuple[Vector, int]:
    """(request, pods) of the part of the grant for which the controller may still make pods.

    All of the grant, until the objects prove less. A suspended workload is charged until the proof that nothing of it
    runs, a cluster that scales itself until its gate has released workers.
    """
    uid, workload = entry.ref.uid, state.workloads.get(entry.ref.uid)
    if uid in state.standalone or not state.presence.tells(uid):
        return entry.request, entry.pods
    if workload is None or workload.ends:
        named = not entry.child or state.last_child.get(uid) == entry.child
        return ({}, 0) if named and state.presence.in_use(uid) else (entry.request, entry.pods)
    if not is_active(workload) or uid in state.opened.values():
        return entry.request, entry.pods
    if entry.groups:
        return entry.request, entry.pods
    tree = state.ledger.tree_of(entry.queue)
    need = need_of(tree, workload, entry.flavors)
    if not workload.child:
        return lowest(entry.request, need), min(entry.pods, sum([pods.count for pods in workload.pod_sets]))
    if not state.presence.wants(uid):
        return entry.request, entry.pods  # Its controller may make another child.
    return lowest(entry.request, beyond(need, asks_of(tree, workload, entry.flavors))), entry.pods


def regrant(state: AccountantState, before: Sequence[Flavor], tree: QuotaTree) -> None:
    """Every grant in a tree with other flavors is a grant of these flavors: of the same names, else of the same nodes,
    and for a job without flavors of those that its pods may use. A name that is not in the tree is kept: the flavor may
    come back.
    """
    if before == tree.flavors:
        return
    kinds = {(tuple(one.labels.items()), one.resources): one.name for one in tree.flavors}
    here = {one.name for one in tree.flavors}
    names = {one.name: kinds.get((tuple(one.labels.items()), one.resources), one.name) for one in before}
    for uid, entry in state.entries.items():
        workload = state.workloads.get(uid)
        if workload is None or state.ledger.tree_of(state.ledger.charges[uid].queue) is not tree:
            continue
        entry.flavors = {
            pods: tuple(name if name in here else names.get(name, name) for name in used)
            for pods, used in entry.flavors.items()
        } or demand_of(tree, workload, queue=state.ledger.charges[uid].queue).flavors
        entry.request = located(tree, entry.request, need_of(tree, workload, entry.flavors), {})


def note_upgraded(state: AccountantState, entry: Entry) -> None:
    """Once one cluster of an upgraded RayService runs, the grant of the other one ends.

    The spec may say something else by then: the next upgrade, which waits. So the grants of the two clusters count.
    """
    uid, workload = entry.ref.uid, state.workloads.get(entry.ref.uid)
    left = state.presence.children.get(uid, {})
    if not entry.upgrading or workload is None or uid in state.opened.values() or len(left) > 1:
        return
    if entry.groups:
        entry.request, entry.pods = beyond(entry.request, entry.outgoing), max(entry.pods - entry.outgoing_pods, 0)
    else:
        stays = entry.incoming if entry.upgrading in left or not left else entry.outgoing
        entry.request, entry.fixed = lowest(entry.request, stays), state.scaling.fixed_of(workload)
        entry.pods = min(entry.pods, sum(entry.fixed.values()))
    entry.upgrading, entry.outgoing, entry.incoming, entry.outgoing_pods = "", {}, {}, 0
    tree = state.ledger.tree_of(entry.queue)
    entry.aside = aside_of(tree, workload, need_of(tree, workload))


def is_active(workload: Workload | None) -> bool:
    """Whether the controller makes pods for the workload."""
    return workload is not None and not workload.suspended and workload.phase in ACTIVE and not workload.deleting


def usage_changed(state: AccountantState, entry: Entry, due: tuple[Vector, int]) -> ChargeChanged:
    """The decision to change the charge."""
    request, pods = due
    return ChargeChanged(
        cause=state.causes.get(entry.ref.uid, entry.cause),
        ref=entry.ref,
        attempt=entry.attempt,
        queue=state.ledger.charges[entry.ref.uid].queue,
        request=request,
        pods=pods,
        over=over_of(state, entry, request, entry.request),
        fixed=_fixed_now(state, entry, request),
    )


def over_of(state: AccountantState, entry: Entry, request: Mapping[str, int], grant: Mapping[str, int]) -> Vector:
    """The part of a charge beyond the grant. A pod on a smaller device than the largest is as granted."""
    over = beyond(request, grant)
    if GPU in over:
        over[GPU] -= _on_smaller(state, entry.ref.uid)
    return positive(over)


def _on_smaller(state: AccountantState, uid: str) -> int:
    """Thousandths of GPUs by which amounts of memory count more on their nodes than before they had a node."""
    pods = [state.sharing[pod] for pod in (uid, *state.presence.pods_of(uid)) if pod in state.sharing]
    more = 0
    for pod in pods:
        now, before = (state.forest.device_of(node, pod.rules) for node in (pod.node, ""))
        more += max(charged(pod.rules, now) - charged(pod.rules, before), 0)
    return more


def _fixed_now(state: AccountantState, entry: Entry, request: Mapping[str, int]) -> Counts:
    """The granted pods of a Ray cluster scaled down by hand, once no others are left; empty for the pods as before."""
    workload = state.workloads.get(entry.ref.uid)
    if workload is None or not entry.fixed or entry.groups or not is_active(workload):
        return {}
    now = state.scaling.fixed_of(workload)
    left = lowest(entry.fixed, now)
    same = totals_of(request) == totals_of(to_come(state, entry)[0])
    return left if now and left != entry.fixed and same else {}


def running(state: AccountantState, entry: Entry, aside: Mapping[str, int]) -> Vector:
    """The requests of the workload's pods and children now, and of its own spec while its pods follow the spec, without
    the part that is not counted. ``aside``: this part while all pods of the spec run.
    """
    uid = entry.ref.uid
    if uid in state.standalone:
        return state.standalone[uid].request
    tree, workload = state.ledger.tree_of(entry.queue), state.workloads.get(uid)
    live = state.presence.in_use(uid)
    runs = beyond(live, beyond(aside, entry.helpers))
    if workload is not None and is_active(workload):
        if not workload.child:
            asks = asks_of(tree, workload)
            return highest(beyond(highest(live, asks), aside), runs)
        if uid in state.presence.children:
            helpers = highest(entry.helpers, summed(pods.request for pods in workload.auxiliary))
            return beyond(summed([live, helpers]), aside)
    return runs


# --- rechecks ---------------------------------------------------------------------------------------------------------


def entry_of(state: AccountantState, uid: str, attempt: int) -> Entry | None:
    entry = state.entries.get(uid)
    return entry if entry is not None and entry.attempt == attempt else None


def touched(state: AccountantState, at: Position, uid: str | None) -> None:
    if uid is not None and (uid in state.entries or uid in state.workloads):
        state.causes[uid] = Cause(at.seq, at.item)
        recheck(state, uid)


def recheck(state: AccountantState, uid: str) -> None:
    """Update the ``due`` dicts and the deadline of one workload."""
    entry, claim = state.entries.get(uid), state.ledger.claims.by_uid.get(uid)
    if entry is not None:
        state.due_adoption.pop(uid, None)
        _charged(state, uid, entry)
    else:
        _uncharged(state, uid)
    mark(state.due_end, uid, claim is not None and why_over(state, claim) is not None)


def _uncharged(state: AccountantState, uid: str) -> None:
    leave_out(uid, state.due_release, state.due_move, state.due_change, state.due_suspension, state.due_stay)
    leave_out(uid, state.overuse, state.overdue, state.deadlines)
    workload, pod = state.workloads.get(uid), state.standalone.get(uid)
    held = pod is not None and (pod.bound or pod.left) and standalone.leaf_of(state.ledger, pod) is not None
    mark(state.due_adoption, uid, held or (workload is not None and must_adopt(state, workload)))


def _charged(state: AccountantState, uid: str, entry: Entry) -> None:
    workload, leaver = state.workloads.get(uid), state.ledger.claims.going.get(uid)
    note_upgraded(state, entry)
    entry.request = on_nodes(state, uid, entry.queue, entry.request)  # The grant follows the pods.
    note_acted(state, entry)
    note_idle(state, entry)
    note_lack(state, entry)
    note_short(state, entry)
    note_unbound(state, entry)
    note_overuse(state, entry)
    over = release_reason(state, entry) is not None
    mark(state.due_release, uid, over)
    mark(state.due_move, uid, not over and must_move(state, entry))
    mark(state.due_change, uid, not over and charge_due(state, entry) is not None)
    mark(state.due_suspension, uid, _suspended_by_others(workload, entry))
    leaves = leaver is not None and leaver.gives is None
    mark(state.due_stay, uid, leaves and (not entry.leaving or is_lost(state, uid)))
    put(state.overdue, uid, overdue_at(entry) if leaves else None)
    ahead = (idle_deadline(state, entry), ends_at(state, entry), look_at(state, entry))
    times = [at for at in ahead if at is not None]
    put(state.deadlines, uid, min(times) if times and not over else None)


def _suspended_by_others(workload: Workload | None, entry: Entry) -> bool:
    """Whether an admitted workload was suspended without a decision of Muster."""
    return (
        workload is not None
        and workload.suspended
        and not workload.ends
        and 0 < entry.resumed_rv < workload.rv
        and not entry.suspension_recorded
        and not entry.suspension
    )
