"""Times of KAI queues: the least run time before an eviction, and the grace of stale gangs.

How long work of a KAI queue runs before it may be suspended: ``preemptMinRuntime`` and ``reclaimMinRuntime``.
And how long a job wants to wait before others are.

For a claimant of its own queue what the queue says counts, else what the nearest queue above it says. For one of
another queue it is the queue just under the one they share, on the side of the work, else the nearest above that.

Gangs in KAI queues that have lost so many pods that less than their minimum is left: stale after a while.

Only a gang that was whole once can be stale, and none of which a pod has succeeded: it is about to finish. What counts
is pods that have a node. The work itself says how long it may be short, in ``kai.scheduler/staleness-grace-period``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from muster.core.gang.admitterstate import member_of
from muster.core.objects.meta import KAI_STALENESS, RECLAIM_GRACE
from muster.core.quota.demand import chain_of
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.quota.trees.rules import span_or
from muster.model.workload import PodState, Workload, least

# --- least run times --------------------------------------------------------------------------------------------------


def protected_ms(ledger: Ledger, leaf: str, claimant: str) -> int:
    """For work of ``leaf`` against a claimant of the queue ``claimant``, ms; 0 where no queue sets it.

    A queue that writes 0 says nothing, as one that leaves the field out.
    """
    if not ledger.by_shares(leaf):
        return 0
    same = leaf == claimant
    above = chain_of(leaf) if same else _from_side(leaf, claimant)
    nodes = (ledger.nodes[path] for path in above if path in ledger.nodes)
    times = (node.preempt_min_run_ms if same else node.reclaim_min_run_ms for node in nodes)
    return next((each for each in times if each), 0)


def reclaim_grace_ms(labels: Mapping[str, str]) -> int:
    """How long a job itself wants to wait before others are evicted for it; 0 unless it says a time."""
    return span_or(labels.get(RECLAIM_GRACE, ""), 0)


def _from_side(leaf: str, claimant: str) -> list[str]:
    """The chain of a leaf upwards, from the child of the lowest node that both have in common."""
    shared = {*chain_of(claimant)}
    chain = [*chain_of(leaf)]
    first = next((at for at, path in enumerate(chain) if path in shared), len(chain))
    return chain[max(first - 1, 0) :]


# --- stale ------------------------------------------------------------------------------------------------------------


GRACE_MS = 60_000
"""How long a gang may be short of its minimum unless it says so itself."""
NEVER = -1


class Members(Struct):
    """The pods that have a node, by their owner."""

    bound: dict[str, dict[str, str]] = field(default_factory=dict)
    """owner uid -> {pod uid: which set it is of}"""
    owners: dict[str, str] = field(default_factory=dict)
    """pod uid -> owner uid"""
    done: dict[str, None] = field(default_factory=dict)
    """owner uids of which a pod has succeeded"""

    grouped: dict[str, str] = field(default_factory=dict)
    """owner uid -> the PodGroup of Kubernetes itself that its pods name"""

    def observed(self, pod: PodState) -> bool:
        """A pod that a controller owns looks like this now; whether that changes which of them have a node, or why."""
        if not pod.owner_uid:
            return False
        if pod.group and not pod.over and self.grouped.get(pod.owner_uid) != pod.group:
            self.grouped[pod.owner_uid] = pod.group
            self._bound(pod)
            return True
        return self._bound(pod)

    def left(self, owner: str) -> None:
        """None of its pods lives."""
        self.done.pop(owner, None)
        self.grouped.pop(owner, None)

    def _bound(self, pod: PodState) -> bool:
        if pod.over or not pod.node:
            held = pod.ref.uid in self.owners
            self.gone(pod.ref.uid)
            if pod.succeeded:
                self.done[pod.owner_uid] = None
            return held or pod.succeeded
        new = pod.ref.uid not in self.owners
        self.bound.setdefault(pod.owner_uid, {})[pod.ref.uid] = member_of(pod)
        self.owners[pod.ref.uid] = pod.owner_uid
        return new

    def gone(self, uid: str) -> None:
        """A pod is gone, or holds its node no more."""
        owner = self.owners.pop(uid, None)
        if owner is not None:
            del self.bound[owner][uid]
            if not self.bound[owner]:
                del self.bound[owner]
                self.done.pop(owner, None)

    def sets(self, owners: Iterable[str]) -> dict[str, int]:
        """How many pods of each set have a node."""
        found: dict[str, int] = {}
        for owner in owners:
            for name in self.bound.get(owner, {}).values():
                found[name] = found.get(name, 0) + 1
        return found


def is_whole(workload: Workload, sets: dict[str, int]) -> bool:
    """Whether every set has the pods that it needs."""
    return all(sets.get(pods.name, 0) >= least((pods,)) for pods in workload.pod_sets)


def grace_ms(ledger: Ledger, queue: str, workload: Workload) -> int:
    """How long it may be short of its minimum, ms; NEVER where that is as long as it likes."""
    if not ledger.by_shares(queue):
        return NEVER
    said = workload.labels.get(KAI_STALENESS, "")
    return NEVER if said.startswith("-") else span_or(said, GRACE_MS)
