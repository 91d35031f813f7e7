"""The pods that do not run, by the job or the object of a job that they belong to."""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.codes.pods import POD_CODES, RANK, HeldUp, TroubledPod
from muster.core.objects.labels import RAY_GROUP
from muster.core.observed.presence import Presence
from muster.core.readmodel.records import Record
from muster.events.facts import PodGone
from muster.model.podtrouble import PodCode
from muster.model.workload import PodState


class PodsShown(Struct):
    """Troubled pods. ``owner``: uid of a job or of an object that a job runs through."""

    live: dict[str, dict[PodCode, dict[str, TroubledPod]]] = field(default_factory=dict)
    """owner -> {code: {uid of a pod that is not over: its trouble}}; of one code the first has had it for longest."""
    home: dict[str, tuple[str, PodCode]] = field(default_factory=dict)
    """uid of such a pod -> (owner, code)"""

    def observed(self, pod: PodState, record: Record | None, now: int) -> bool:
        """A pod looks like this; whether that is news. ``record``: of its job."""
        uid = pod.ref.uid
        if not pod.owner_uid:
            return False
        if pod.trouble is None:
            return self._drop(uid) is not None
        place = (pod.owner_uid, pod.trouble.code)
        same = self.home.get(uid) == place
        since = self.live[place[0]][place[1]][uid].since if same else now
        new = TroubledPod(pod.ref.name, pod.trouble, since, pod.over, pod.labels.get(RAY_GROUP, ""))
        if not same or pod.over:
            self._drop(uid)
        if pod.over:
            return _fails(record, new)
        self.home[uid] = place
        self.live.setdefault(place[0], {}).setdefault(place[1], {})[uid] = new
        return True

    def gone(self, event: PodGone, record: Record | None) -> bool:
        """A pod is gone: what broke it is remembered of its job."""
        known = self._drop(event.ref.uid)
        if known is not None and POD_CODES[known.trouble.code] == "breaks":
            _fails(record, known)
        return known is not None

    def _drop(self, uid: str) -> TroubledPod | None:
        place = self.home.pop(uid, None)
        if place is None:
            return None
        owner, code = place
        known = self.live[owner][code].pop(uid)
        if not self.live[owner][code]:
            del self.live[owner][code]
        if not self.live[owner]:
            del self.live[owner]
        return known

    def owner_of(self, uid: str) -> str:
        """Of a troubled pod; empty for any other."""
        return self.home.get(uid, ("", ""))[0]

    def of(self, job: str, presence: Presence) -> HeldUp | None:
        """What keeps the pods of a job from running: asked at each pod, and no pod is looked through for it."""
        owners = (job, *presence.children.get(job, ()))
        found = [pods for owner in owners if owner in self.live for pods in self.live[owner].items()]
        if not found:
            return None
        worst = min((code for code, _ in found), key=RANK.__getitem__)
        alike = [pods for code, pods in found if code == worst]
        firsts = [next(iter(pods.values())) for pods in alike]
        return HeldUp(min(firsts, key=lambda each: (each.since, each.name)), sum(map(len, alike)))

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
