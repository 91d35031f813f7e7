"""Times of KAI queues: the least run time before an eviction, and the grace of stale gangs.

The least run time of work before a suspension: ``preemptMinRuntime`` and ``reclaimMinRuntime``. For a claimant of the
same queue the queue's own value counts, or else the nearest value above. For a claimant of another queue the search
begins just below the node shared by both queues, on the side of the work, and goes up. A job may also declare how long
it waits before other jobs are evicted.

Stale gangs: a gang in a KAI queue that has lost pods, with less than its minimum left, is stale after a grace time.
Only a gang that was whole once can be stale. A gang with a succeeded pod is never stale: the gang is finishing. Only
pods with a node count. The workload declares its grace time in ``kai.scheduler/staleness-grace-period``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from muster.core.gang.admitterstate import member_of
from muster.core.objects.meta import KAI_STALENESS, RECLAIM_GRACE
from muster.core.quota.demand import chain_of
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.quota.trees.rules import span_or
from muster.model.workload import PodState, Workload, least

# --- least run times --------------------------------------------------------------------------------------------------


def protected_ms(ledger: Ledger, leaf: str, claimant: str) -> int:
    """The least run time of work in ``leaf`` against a claimant of the queue ``claimant``, ms; 0 where no queue sets a
    time.

    A queue with a 0 counts as a queue without the field.
    """
    if not ledger.by_shares(leaf):
        return 0
    same = leaf == claimant
    above = chain_of(leaf) if same else _from_side(leaf, claimant)
    nodes = (ledger.nodes[path] for path in above if path in ledger.nodes)
    times = (node.preempt_min_run_ms if same else node.reclaim_min_run_ms for node in nodes)
    return next((time_ms for time_ms in times if time_ms), 0)


def reclaim_grace_ms(labels: Mapping[str, str]) -> int:
    """How long a job waits before other jobs are evicted for it; 0 without a declared time."""
    return span_or(labels.get(RECLAIM_GRACE, ""), 0)


def _from_side(leaf: str, claimant: str) -> list[str]:
    """The chain of a leaf upwards, from the child of the lowest common node."""
    shared = {*chain_of(claimant)}
    chain = [*chain_of(leaf)]
    first = next((at for at, path in enumerate(chain) if path in shared), len(chain))
    return chain[max(first - 1, 0) :]


# --- stale ------------------------------------------------------------------------------------------------------------


GRACE_MS = 60_000
"""How long a gang may be short of its minimum, without a declared time."""
NEVER = -1


class Members(Struct):
    """The pods with a node, by owner."""

    bound: dict[str, dict[str, str]] = field(default_factory=dict)
    """owner uid -> {pod uid: its pod set}"""
    owners: dict[str, str] = field(default_factory=dict)
    """pod uid -> owner uid"""
    nodes: dict[str, str] = field(default_factory=dict)
    """pod uid -> name of its node"""
    done: dict[str, None] = field(default_factory=dict)
    """owner uids with a succeeded pod"""

    grouped: dict[str, str] = field(default_factory=dict)
    """owner uid -> the native PodGroup named by its pods"""

    def observed(self, pod: PodState) -> bool:
        """Fold the state of a pod with an owner; whether the pods with a node, or their PodGroup, have changed."""
        if not pod.owner_uid:
            return False
        if pod.group and not pod.over and self.grouped.get(pod.owner_uid) != pod.group:
            self.grouped[pod.owner_uid] = pod.group
            self._bound(pod)
            return True
        return self._bound(pod)

    def left(self, owner: str) -> None:
        """No pod of the owner lives."""
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
        self.nodes[pod.ref.uid] = pod.node
        return new

    def gone(self, uid: str) -> None:
        """A pod is gone, or holds its node no more."""
        owner = self.owners.pop(uid, None)
        if owner is not None:
            del self.bound[owner][uid], self.nodes[uid]
            if not self.bound[owner]:
                del self.bound[owner]
                self.done.pop(owner, None)

    def sets(self, owners: Iterable[str]) -> dict[str, int]:
        """The number of pods with a node, by pod set."""
        counts: dict[str, int] = {}
        for owner in owners:
            for name in self.bound.get(owner, {}).values():
                counts[name] = counts.get(name, 0) + 1
        return counts

    def on(self, owners: Iterable[str]) -> Iterator[str]:
        """The names of the nodes with a pod of these owners."""
        return (self.nodes[uid] for owner in owners for uid in self.bound.get(owner, ()))


def is_whole(workload: Workload, sets: dict[str, int]) -> bool:
    """Whether every pod set has all needed pods."""
    return all(sets.get(pods.name, 0) >= least((pods,)) for pods in workload.pod_sets)


def grace_ms(ledger: Ledger, queue: str, workload: Workload) -> int:
    """How long a workload may be short of its minimum, ms; NEVER for any time."""
    if not ledger.by_shares(queue):
        return NEVER
    declared = workload.labels.get(KAI_STALENESS, "")
    return NEVER if declared.startswith("-") else span_or(declared, GRACE_MS)
