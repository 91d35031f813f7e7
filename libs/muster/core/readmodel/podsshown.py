"""The pods that do not run, by the job or the object of a job that they belong to."""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.codes.pods import POD_CODES, HeldUp, TroubledPod, worst
from muster.core.observed.presence import Presence
from muster.core.observed.seen import Seen
from muster.core.readmodel.records import Record
from muster.events.facts import PodGone
from muster.model.workload import PodState


class PodsShown(Struct):
    """Troubled pods. ``owner``: uid of a job or of an object that a job runs through."""

    live: dict[str, dict[str, TroubledPod]] = field(default_factory=dict)
    """owner -> {uid of a pod that is not over: its trouble}"""
    owner_of: dict[str, str] = field(default_factory=dict)
    """uid of such a pod -> owner"""
    seen: Seen = field(default_factory=Seen)

    def observed(self, pod: PodState, record: Record | None, now: int) -> bool:
        """A pod looks like this; whether that is news. ``record``: of its job."""
        uid = pod.ref.uid
        if not pod.owner_uid or not self.seen.newer(uid, pod.rv):
            return False
        known = self.live.get(pod.owner_uid, {}).get(uid)
        if pod.trouble is None:
            return self._drop(uid) is not None
        same = known is not None and known.trouble.code == pod.trouble.code
        new = TroubledPod(pod.ref.name, pod.trouble, known.since if known is not None and same else now, pod.over)
        if not pod.over:
            self.owner_of[uid] = pod.owner_uid
            self.live.setdefault(pod.owner_uid, {})[uid] = new
            return True
        self._drop(uid)
        return _fails(record, new)

    def gone(self, event: PodGone, record: Record | None, now: int) -> bool:
        """A pod is gone: what broke it is remembered of its job."""
        if not self.seen.end(event, now):
            return False
        known = self._drop(event.ref.uid)
        if known is not None and POD_CODES[known.trouble.code] == "breaks":
            _fails(record, known)
        return known is not None

    def _drop(self, uid: str) -> TroubledPod | None:
        owner = self.owner_of.pop(uid, None)
        if owner is None:
            return None
        family = self.live[owner]
        known = family.pop(uid)
        if not family:
            del self.live[owner]
        return known

    def of(self, job: str, presence: Presence) -> HeldUp | None:
        """What keeps the pods of a job from running."""
        owners = (job, *presence.children.get(job, ()))
        return worst([each for owner in owners for each in self.live.get(owner, {}).values()])

    def ended(self, job: str, record: Record, presence: Presence) -> HeldUp | None:
        """What made a job fail, as far as its pods said."""
        live = self.of(job, presence)
        if record.failure is not None and (record.failure.over or live is None):
            return HeldUp(record.failure)
        return live if live is not None and POD_CODES[live.code] == "breaks" else None


def _fails(record: Record | None, pod: TroubledPod) -> bool:
    """Of a job the first pod that failed is kept; else the last one that was broken when it went."""
    if record is None or (record.failure is not None and record.failure.over):
        return False
    record.failure = pod
    return True
