"""The remains of a workload in the cluster: the child objects of the workload, and the pods.

A quota is free again only when the RayCluster of a RayJob is gone and no pod of the RayCluster is live. KubeRay keeps
both for ttlSecondsAfterFinished, and terminating pods still hold their nodes. Pods of other kinds belong to the
workload itself. A Spark driver is a pod that owns further pods, so the driver is also a child.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from muster.events.facts import ChildGone, ChildObserved, PodGone
from muster.model.resources import Vector, add_into, highest, summed
from muster.model.workload import SPARK_ROLE, PodState

PATIENCE_MS = 5_000
"""How long the news of one object may come after the news of another that is newer: the API server promises no order
between two resources.
"""


def is_alone(pod: PodState, owner_of: Mapping[str, str]) -> bool:
    """Whether a pod is a standalone pod: a pod of no job.

    An executor of Spark is a standalone pod where no job runs through its driver: any client with the token of the
    driver may create such a pod. ``owner_of``: uid of a child -> uid of the child's workload.
    """
    stray = pod.labels.get(SPARK_ROLE) == "executor" and pod.owner_uid not in owner_of
    return not pod.owner_uid or stray


class Presence(Struct):
    """Live children and pods, by the uid of their workload.

    Every ``fold`` method returns the uid of the changed workload, or None when nothing changed for any job.
    """

    children: dict[str, dict[str, bool]] = field(default_factory=dict)
    """workload uid -> {uid of a child: whether the object still exists}; a child stays while one of its pods lives."""
    owner_of: dict[str, str] = field(default_factory=dict)
    """child uid -> workload uid, for the children above."""
    pods: dict[str, dict[str, Vector]] = field(default_factory=dict)
    """owner uid (a child, or the workload itself) -> {uid of a live pod: request}."""
    requests: dict[str, Vector] = field(default_factory=dict)
    """owner uid -> total request of the owner's live pods."""
    within: dict[str, str] = field(default_factory=dict)
    """child uid -> uid of the child that owns it: a child may have children, a JobSet its Jobs."""
    wanted: dict[str, Vector] = field(default_factory=dict)
    """uid of an existing child -> request in the child's spec, where stated."""
    pod_owner: dict[str, str] = field(default_factory=dict)
    """uid of a live pod -> owner uid."""

    def occupies(self, uid: str) -> bool:
        """Whether anything of the workload may still use resources."""
        return uid in self.children or (uid in self.pods and uid not in self.owner_of)

    def family(self, uid: str) -> tuple[str, ...]:
        """The uids of the workload and of its children."""
        return (uid, *self.children.get(uid, ()))

    def live_pods(self, uid: str) -> int:
        """How many pods of the workload are neither gone nor over."""
        family = self.children.get(uid)
        own = len(self.pods.get(uid, ()))
        return own + sum([len(self.pods.get(child, ())) for child in family]) if family else own

    def pods_of(self, uid: str) -> list[str]:
        """Uids of the live pods of the workload."""
        return [pod for owner in (uid, *self.children.get(uid, ())) for pod in self.pods.get(owner, ())]

    def tells(self, uid: str) -> bool:
        """Whether every existing child of the workload states the request of its pods."""
        family = self.children.get(uid, {})
        return all(child in self.wanted for child, exists in family.items() if exists)

    def wants(self, uid: str) -> bool:
        """Whether a child of the workload states the request of its pods."""
        return any(child in self.wanted for child in self.children.get(uid, ()))

    def in_use(self, uid: str) -> Vector:
        """The request of the workload's live pods, or of the children's specs where higher."""
        live = self.asked_by_pods(uid)
        return highest(live, self._stated(uid)) if uid in self.children else live

    def _stated(self, uid: str) -> Vector:
        """What the children state of their pods: where a child has children, the larger of the two statements."""
        below: dict[str, list[str]] = {}
        for child in self.children[uid]:
            above = self.within.get(child, uid)
            below.setdefault(above if above in self.children[uid] else uid, []).append(child)

        def total(owner: str) -> Vector:
            return summed([highest(self.wanted.get(child, {}), total(child)) for child in below.get(owner, ())])

        return total(uid)

    def asked_by_pods(self, uid: str) -> Vector:
        """The request of the workload's live pods."""
        family = self.children.get(uid)
        if not family:
            return dict(self.requests.get(uid, {}))
        return summed([self.requests.get(owner, {}) for owner in (uid, *family)])

    def going(self, uid: str) -> Vector:
        """The request of live pods of children that are gone or over: these pods go by themselves."""
        gone = [child for child, exists in self.children.get(uid, {}).items() if not exists]
        return summed([self.requests.get(child, {}) for child in gone])

    def child_observed(self, event: ChildObserved) -> str | None:
        child = event.child
        if not child.owner_uid:
            return None
        owner = self.owner_of.get(child.owner_uid, child.owner_uid)
        if child.asks and not child.over:
            self.wanted[child.ref.uid] = child.asks
        else:
            self.wanted.pop(child.ref.uid, None)
        for below, exists in self.children.get(child.ref.uid, {}).copy().items():
            above = self.within.get(below, child.ref.uid)
            self._link(owner, below, exists=exists)
            if below in self.owner_of:
                self.within[below] = above
        self._link(owner, child.ref.uid, exists=not child.over)
        if owner != child.owner_uid and child.ref.uid in self.owner_of:
            self.within[child.ref.uid] = child.owner_uid
        return owner

    def child_gone(self, event: ChildGone) -> str | None:
        uid = event.ref.uid
        owner = self.owner_of.get(uid)
        if owner is None:
            return None
        self.children[owner][uid] = False
        self.wanted.pop(uid, None)
        self._settle(owner, uid)
        return owner

    def alone(self, uid: str) -> str | None:
        """A former child is a workload by itself and owns its pods. Returns the former owner."""
        owner = self.owner_of.pop(uid, None)
        if owner is None:
            return None
        self.within.pop(uid, None)
        family = self.children[owner]
        del family[uid]
        if not family:
            del self.children[owner]
        return owner

    def pod_observed(self, pod: PodState) -> str | None:
        if pod.over:
            return self._pod_over(pod.ref.uid)
        if pod.owner_uid and pod.labels.get(SPARK_ROLE) == "driver":
            self._link(pod.owner_uid, pod.ref.uid)
        if not pod.owner_uid or self._known_as(pod):
            return None
        self.pod_owner[pod.ref.uid] = pod.owner_uid
        live = self.pods.setdefault(pod.owner_uid, {})
        self._add(pod.owner_uid, live.get(pod.ref.uid, {}), -1)
        live[pod.ref.uid] = pod.request
        self._add(pod.owner_uid, pod.request, 1)
        return self.owner_of.get(pod.owner_uid, pod.owner_uid)

    def pod_gone(self, event: PodGone) -> str | None:
        return self._pod_over(event.ref.uid)

    def let_go(self, uid: str) -> str | None:
        """A pod counts with its workload no more."""
        return self._pod_over(uid)

    def _known_as(self, pod: PodState) -> bool:
        """Whether a pod is known, with the same request as before."""
        owner = self.pod_owner.get(pod.ref.uid)
        return owner is not None and (owner != pod.owner_uid or self.pods[owner][pod.ref.uid] == pod.request)

    def _add(self, owner: str, request: Vector, times: int) -> None:
        add_into(self.requests.setdefault(owner, {}), request, times)

    def _pod_over(self, uid: str) -> str | None:
        if uid in self.owner_of:
            self._link(self.owner_of[uid], uid, exists=False)
        holder = self.pod_owner.pop(uid, None)
        if holder is None:
            return None
        live = self.pods[holder]
        self._add(holder, live.pop(uid), -1)
        if not live:
            del self.pods[holder], self.requests[holder]
        owner = self.owner_of.get(holder, holder)
        if owner != holder:
            self._settle(owner, holder)
        return owner

    def _link(self, owner: str, child: str, *, exists: bool = True) -> None:
        if self.owner_of.get(child, owner) != owner:
            self.alone(child)
        self.owner_of[child] = owner
        self.children.setdefault(owner, {})[child] = exists
        self._settle(owner, child)

    def _settle(self, owner: str, child: str) -> None:
        """Forget a child without an object and without live pods."""
        family = self.children[owner]
        if not family[child] and child not in self.pods:
            del family[child], self.owner_of[child]
            self.within.pop(child, None)
            if not family:
                del self.children[owner]
