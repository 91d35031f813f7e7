"""What a cluster forgets by itself: Events an hour after their last write, and ended jobs by their time to live.

Jobs go by ``ttlSecondsAfterFinished``, as the TTL controller of Kubernetes has it. RayJobs go a while after their ends,
as where KubeRay's operator is set to delete them (``DELETE_RAYJOB_CR_AFTER_JOB_FINISHES``). So a cluster that lives for
days does not grow.
"""

from __future__ import annotations

from typing import ClassVar

from muster.fakecluster.apiserver.names import moment
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.operations import DeleteObject, OperationPlan
from muster.model.api import EVENTS, JOBS, RAYJOBS, ApiResource

EVENTS_MS = 3_600_000
"""``--event-ttl`` of the API server by default."""
RAYJOBS_MS = 600_000


class Forgetting:
    """Deletes objects after their time. Keys: uids of objects."""

    watches: ClassVar[tuple[ApiResource, ...]] = (EVENTS, JOBS, RAYJOBS)

    def __init__(self) -> None:
        self.queue = WorkQueue()
        self._known: dict[str, tuple[ApiResource, Obj]] = {}
        self._until: dict[str, int] = {}
        """uid of an Event -> the end of its time to live (ms); 0: written since the last look."""

    def heard(self, kind: ChangeType, resource: ApiResource, obj: Obj) -> None:
        """Note an object with an end."""
        uid = obj["metadata"]["uid"]
        if kind == "DELETED":
            self._known.pop(uid, None)
            self._until.pop(uid, None)
            return
        if resource == EVENTS:
            self._until[uid] = 0
        elif _ended(resource, obj) is None:
            return
        self._known[uid] = (resource, obj)
        self.queue.mark(uid)

    def plan(self, key: str, now: int) -> OperationPlan:
        """Delete an object after its time; look again at that time."""
        resource, obj = self._known.get(key, (EVENTS, None))
        if obj is None:
            return OperationPlan()
        if resource == EVENTS:
            self._until[key] = self._until[key] or now + EVENTS_MS
        left = (self._until[key] if resource == EVENTS else _ended(resource, obj) or 0) - now
        if left > 0:
            return OperationPlan(again_ms=left)
        meta = obj["metadata"]
        return OperationPlan((DeleteObject(resource, meta["namespace"], meta["name"], meta["uid"]),))


def _ended(resource: ApiResource, obj: Obj) -> int | None:
    """The end of the time to live (ms); None for an object that still runs."""
    status = obj.get("status") or {}
    if resource == JOBS:
        ttl, ended = obj["spec"].get("ttlSecondsAfterFinished"), status.get("completionTime")
        return None if ttl is None or not ended else moment(ended) + ttl * 1000
    if resource == RAYJOBS:
        ended = status.get("endTime")
        over = status.get("jobDeploymentStatus") in ("Complete", "Failed")
        return moment(ended) + RAYJOBS_MS if over and ended else None
    return None
