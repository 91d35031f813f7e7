"""Running work is charged: a charge is the larger of the grant and the requests of the workload's live children.

Every kind alike, resource by resource: pods that exist, and pods that the spec of the workload, or of a child of it,
asks for. What the admission does not count of the spec it was made for (the helpers that KubeRay adds, under profile
``ack``) is never charged; whatever comes on top of that is.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.quota.state import AccountantState, Entry
from muster.events.charges import ChargeChanged
from muster.model.resources import Vector, highest, summed
from muster.model.workload import Workload

ACTIVE = ("starting", "running")


def aside_of(workload: Workload | None, granted: Mapping[str, int]) -> Vector:
    """What runs of a workload as its spec is, and was not counted when it was granted so much."""
    return {} if workload is None else beyond(workload.asks, granted)


def charge_due(state: AccountantState, entry: Entry) -> tuple[Vector, int] | None:
    """(request, pods) that a workload should be charged with from here on; None when it is."""
    charge = state.ledger.charges[entry.ref.uid]
    live = live_of(state, entry)
    request = highest(entry.request, beyond(live, entry.aside)) if live else entry.request
    pods = max(entry.pods, state.presence.live_pods(entry.ref.uid))
    return None if (request, pods) == (charge.request, charge.pods) else (request, pods)


def changed(state: AccountantState, entry: Entry, due: tuple[Vector, int]) -> ChargeChanged:
    """The decision that says so."""
    request, pods = due
    return ChargeChanged(
        cause=state.causes.get(entry.ref.uid, entry.cause),
        ref=entry.ref,
        attempt=entry.attempt,
        queue=state.ledger.charges[entry.ref.uid].queue,
        request=request,
        pods=pods,
        over=beyond(request, entry.request),
    )


def beyond(amounts: Mapping[str, int], limit: Mapping[str, int]) -> Vector:
    """By how much the amounts are above a limit, per resource; what is not above it is left out."""
    return {name: over for name in sorted(amounts) if (over := amounts[name] - limit.get(name, 0)) > 0}


def live_of(state: AccountantState, entry: Entry) -> Vector:
    """What the pods and the children of a workload ask for now, its own spec too while that is what its pods follow."""
    uid = entry.ref.uid
    if uid in state.standalone:
        return state.standalone[uid].request
    found, workload = state.presence.in_use(uid), state.workloads.get(uid)
    if workload is None or workload.suspended or workload.phase not in ACTIVE:
        return found
    if not workload.child:
        return highest(found, workload.asks)
    if uid not in state.presence.children:
        return found
    return summed([found, *[each.request for each in workload.auxiliary]])
