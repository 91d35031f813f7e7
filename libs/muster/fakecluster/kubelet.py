"""The kubelets of the simulated cluster: bound pods start, run, end and go, after delays.

Annotations steer a pod (names in `kuberay.settings`): ``sim.muster.dev/run-for`` and ``fail-after`` end the pod,
``start-after`` and ``stop-after`` are the times to start and to stop.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar

from msgspec import Struct

from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.apiserver.pods import condition, with_condition
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.kuberay.settings import FAIL_AFTER, RUN_FOR, START_AFTER, STOP_AFTER, duration_ms
from muster.fakecluster.operations import DeleteObject, Merge, OperationPlan
from muster.fakecluster.podneeds import OVER, is_going, key_of, phase
from muster.model.api import PODS, ApiResource

STOPPED_EXIT_CODE = 143
"""Of a container that ended by SIGTERM."""


class KubeletSettings(Struct, frozen=True, kw_only=True):
    """How long things take on a node."""

    start_ms: int = 2_000
    """From bound to running."""
    stop_ms: int = 1_000
    """From deleted to gone."""
    report_stop: bool = True
    """Report a deleted pod as Failed before it goes, as a kubelet does; without it there is one write less."""


class _Times(Struct):
    """What a kubelet remembers of a pod; ms since the epoch."""

    bound: int | None = None
    started: int | None = None
    deleted: int | None = None


class Kubelet:
    """All nodes' kubelets. Keys: ``namespace/name`` of pods that are on a node."""

    watches: ClassVar[tuple[ApiResource, ...]] = (PODS,)

    def __init__(self, settings: KubeletSettings | None = None) -> None:
        self.settings = settings or KubeletSettings()
        self.queue = WorkQueue()
        self._pods: dict[str, Obj] = {}
        self._times: dict[str, _Times] = {}
        """uid -> when it came to each stage, as far as seen here."""
        self._stages: dict[str, tuple[str, bool]] = {}
        """uid -> (phase, whether it is going) when it was last looked at: nothing else matters here."""

    def heard(self, kind: ChangeType, resource: ApiResource, obj: Obj) -> None:
        """Note pods that are on a node."""
        key, uid = key_of(obj), obj["metadata"]["uid"]
        if kind == "DELETED":
            if self._pods.get(key, obj)["metadata"]["uid"] == uid:
                self._pods.pop(key, None)
            self._times.pop(uid, None)
            self._stages.pop(uid, None)
        elif obj["spec"].get("nodeName"):
            self._pods[key] = obj
            stage = (phase(obj), is_going(obj))
            if self._stages.get(uid) != stage:
                self._stages[uid] = stage
                self.queue.mark(key)

    def plan(self, key: str, now: int) -> OperationPlan:
        """The next step of a pod's life, or when it is due."""
        pod = self._pods.get(key)
        if pod is None:
            return OperationPlan()
        times = self._times.setdefault(pod["metadata"]["uid"], _Times())
        if is_going(pod):
            return self._stop(pod, times, now)
        if phase(pod) == "Pending":
            return self._start(pod, times, now)
        return self._run(pod, times, now) if phase(pod) == "Running" else OperationPlan()

    def _start(self, pod: Obj, times: _Times, now: int) -> OperationPlan:
        if times.bound is None:
            times.bound = now
        due = times.bound + _takes(pod, START_AFTER, self.settings.start_ms)
        if now < due:
            return OperationPlan(again_ms=due - now)
        times.started = now
        status = dict(pod.get("status") or {})
        for kind in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"):
            status = with_condition(status, condition(kind, "True", now))
        containers = _containers(pod, {"running": {"startedAt": stamp(now)}}, ready=True)
        address = _address(pod["metadata"]["uid"])
        started = {"phase": "Running", "startTime": stamp(now), "podIP": address, "podIPs": [{"ip": address}]}
        return _report(pod, {**started, "conditions": status["conditions"], "containerStatuses": containers})

    def _run(self, pod: Obj, times: _Times, now: int) -> OperationPlan:
        annotations = pod["metadata"].get("annotations") or {}
        fails = FAIL_AFTER in annotations
        limit = annotations.get(FAIL_AFTER if fails else RUN_FOR)
        if limit is None:
            return OperationPlan()
        if times.started is None:
            times.started = now
        try:
            due = times.started + duration_ms(limit)
        except ValueError:
            # What is no duration ends no pod.
            return OperationPlan()
        if now < due:
            return OperationPlan(again_ms=due - now)
        return _report(pod, _ended(pod, now, exit_code=1 if fails else 0))

    def _stop(self, pod: Obj, times: _Times, now: int) -> OperationPlan:
        if times.deleted is None:
            times.deleted = now
        due = times.deleted + _takes(pod, STOP_AFTER, self.settings.stop_ms)
        if now < due:
            return OperationPlan(again_ms=due - now)
        meta = pod["metadata"]
        gone = DeleteObject(PODS, meta["namespace"], meta["name"], meta["uid"], grace_s=0)
        if not self.settings.report_stop or phase(pod) in OVER:
            return OperationPlan((gone,))
        return OperationPlan((*_report(pod, _ended(pod, now, exit_code=STOPPED_EXIT_CODE)).operations, gone))


def _takes(pod: Obj, annotation: str, usually: int) -> int:
    """Ms; what is no duration says nothing."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation)
    try:
        return usually if text is None else duration_ms(text)
    except ValueError:
        return usually


def _report(pod: Obj, status: Obj) -> OperationPlan:
    meta = pod["metadata"]
    return OperationPlan((Merge(PODS, meta["namespace"], meta["name"], {"status": status}, "status"),))


def _ended(pod: Obj, now: int, *, exit_code: int) -> Obj:
    status = dict(pod.get("status") or {})
    for kind in ("ContainersReady", "Ready"):
        reason = "PodCompleted" if exit_code == 0 else "PodFailed"
        status = with_condition(status, condition(kind, "False", now, reason))
    reason = "Completed" if exit_code == 0 else "Error"
    state = {"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": stamp(now)}}
    containers = _containers(pod, state, ready=False)
    over = "Succeeded" if exit_code == 0 else "Failed"
    return {"phase": over, "conditions": status["conditions"], "containerStatuses": containers}


def _containers(pod: Obj, state: Obj, *, ready: bool) -> list[Obj]:
    return [
        {
            "name": entry["name"],
            "image": entry.get("image", ""),
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
        }
        for entry in pod["spec"].get("containers") or ()
    ]


def _address(uid: str) -> str:
    """An address for the pod: the same uid, the same address; two pods may share one."""
    first, second, third = hashlib.blake2b(uid.encode(), digest_size=3).digest()
    return f"10.{first}.{second}.{third}"
