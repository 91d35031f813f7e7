"""What is left of a workload in the cluster: the objects it runs through and their pods.

A quota is free again only when the RayCluster of a RayJob is gone and none of its pods is live
(KubeRay keeps both for ttlSecondsAfterFinished, and terminating pods still hold their nodes). Pods of other kinds
belong to the workload itself; a Spark driver is a pod that owns further pods, so that it is also a child.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.seen import Seen
from muster.events.facts import ChildGone, ChildObserved, PodGone, PodObserved
from muster.model.workload import SPARK_ROLE


class Presence(Struct):
    """Live children and pods, by the uid of the workload they belong to.

    Every ``fold`` method returns the uid of the workload it concerns, or None when nothing changed for anybody.
    """

    seen: Seen = field(default_factory=Seen)
    children: dict[str, dict[str, bool]] = field(default_factory=dict)
    """workload uid -> {uid of a child: whether the object still exists}; a child stays while a pod of it lives."""
    owner_of: dict[str, str] = field(default_factory=dict)
    """child uid -> workload uid, for the children above."""
    pods: dict[str, dict[str, None]] = field(default_factory=dict)
    """owner uid (a child, or the workload itself) -> uids of its live pods."""
    pod_owner: dict[str, str] = field(default_factory=dict)
    """uid of a live pod -> owner uid."""

    def occupies(self, uid: str) -> bool:
        """Whether anything of the workload may still use resources."""
        return uid in self.children or uid in self.pods

    def live_pods(self, uid: str) -> int:
        """How many pods of the workload are neither gone nor over."""
        return sum(len(self.pods.get(owner, ())) for owner in (uid, *self.children.get(uid, ())))

    def child_observed(self, event: ChildObserved) -> str | None:
        child = event.child
        if not self.seen.newer(child.ref.uid, child.rv) or not child.owner_uid:
            return None
        self._link(child.owner_uid, child.ref.uid, exists=not child.over)
        return child.owner_uid

    def child_gone(self, event: ChildGone, now: int) -> str | None:
        uid = event.ref.uid
        owner = self.owner_of.get(uid)
        if not self.seen.end(uid, now) or owner is None:
            return None
        self.children[owner][uid] = False
        self._settle(owner, uid)
        return owner

    def pod_observed(self, event: PodObserved) -> str | None:
        pod = event.pod
        if not self.seen.newer(pod.ref.uid, pod.rv):
            return None
        if pod.over:
            return self._pod_over(pod.ref.uid)
        if pod.owner_uid and pod.labels.get(SPARK_ROLE) == "driver":
            self._link(pod.owner_uid, pod.ref.uid)
        if not pod.owner_uid or pod.ref.uid in self.pod_owner:
            return None
        self.pod_owner[pod.ref.uid] = pod.owner_uid
        self.pods.setdefault(pod.owner_uid, {})[pod.ref.uid] = None
        return self.owner_of.get(pod.owner_uid, pod.owner_uid)

    def pod_gone(self, event: PodGone, now: int) -> str | None:
        return self._pod_over(event.ref.uid) if self.seen.end(event.ref.uid, now) else None

    def _pod_over(self, uid: str) -> str | None:
        if uid in self.owner_of:
            self._link(self.owner_of[uid], uid, exists=False)
        holder = self.pod_owner.pop(uid, None)
        if holder is None:
            return None
        live = self.pods[holder]
        del live[uid]
        if not live:
            del self.pods[holder]
        owner = self.owner_of.get(holder, holder)
        if owner != holder:
            self._settle(owner, holder)
        return owner

    def _link(self, owner: str, child: str, *, exists: bool = True) -> None:
        self.owner_of[child] = owner
        self.children.setdefault(owner, {})[child] = exists
        self._settle(owner, child)

    def _settle(self, owner: str, child: str) -> None:
        """Forget a child that neither exists nor has a live pod."""
        family = self.children[owner]
        if not family[child] and child not in self.pods:
            del family[child], self.owner_of[child]
            if not family:
                del self.children[owner]
