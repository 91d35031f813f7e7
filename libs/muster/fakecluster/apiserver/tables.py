"""Objects as tables for ``kubectl get``: a row of columns per resource.

The columns of our custom resources come from their definitions in ``deploy/crds`` (a test keeps both equal), the
columns of built-in kinds from a real server, as far as the simulated cluster has the values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from muster.fakecluster.apiserver.names import moment
from muster.fakecluster.apiserver.status import Obj

Cell = str | int | None
Compute = Callable[[Obj, int], Cell]


class Column(Struct, frozen=True):
    """One column. ``source``: a JSON path such as ``.status.phase``, or a function of the object and the time."""

    name: str
    source: str | Compute
    type: str = "string"
    priority: int = 0
    """Over 0: shown by ``-o wide`` only."""

    def cell(self, obj: Obj, now: int) -> Cell:
        """What the column shows of an object at ``now`` (ms since the epoch)."""
        if not isinstance(self.source, str):
            return self.source(obj, now)
        value = at_path(obj, self.source)
        if self.type == "date":
            return age(value, now)
        if value is None or isinstance(value, int):
            return value
        return str(value) if not isinstance(value, dict | list) else _compact(value)


def at_path(value: Any, path: str) -> Any:
    """The value at a dotted path such as ``.status.root.name``; None when there is none."""
    for key in path.strip(".").split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def age(stamp: Any, now: int) -> str:
    """How long ago a time stamp was, as kubectl writes it: ``5s``, ``3m12s``, ``2d4h``."""
    if not isinstance(stamp, str) or not stamp:
        return "<unknown>"
    try:
        return human_duration(now - moment(stamp))
    except ValueError:
        return "<invalid>"


def human_duration(ms: int) -> str:
    """A span of time in at most two units, the finer one only while it matters."""
    seconds = ms // 1000
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d"


def _compact(value: Any) -> str:
    """A value that is no scalar, as a JSON path prints one."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _ready(pod: Obj, _now: int) -> Cell:
    states = (pod.get("status") or {}).get("containerStatuses") or []
    return f"{sum(bool(state.get('ready')) for state in states)}/{len(pod['spec'].get('containers') or ())}"


def _pod_status(pod: Obj, _now: int) -> Cell:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    phase = str((pod.get("status") or {}).get("phase") or "Unknown")
    if phase == "Pending" and pod["spec"].get("nodeName"):
        return "ContainerCreating"
    return {"Succeeded": "Completed", "Failed": "Error"}.get(phase, phase)


def _restarts(pod: Obj, _now: int) -> Cell:
    states = (pod.get("status") or {}).get("containerStatuses") or []
    return sum(int(state.get("restartCount") or 0) for state in states)


def _node_status(node: Obj, _now: int) -> Cell:
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = any(entry.get("type") == "Ready" and entry.get("status") == "True" for entry in conditions)
    cordoned = ",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else ""
    return ("Ready" if ready else "NotReady") + cordoned


def _involved(event: Obj, _now: int) -> Cell:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _completions(job: Obj, _now: int) -> Cell:
    return f"{(job.get('status') or {}).get('succeeded', 0)}/{(job.get('spec') or {}).get('completions') or 1}"


def _job_status(job: Obj, _now: int) -> Cell:
    conditions = (job.get("status") or {}).get("conditions") or []
    held = {entry.get("type") for entry in conditions if entry.get("status") == "True"}
    over = next((word for word in ("Complete", "Failed", "Suspended") if word in held), "")
    return over or "Running"


def _data(obj: Obj, _now: int) -> Cell:
    return len(obj.get("data") or {})


_NAME = Column("Name", ".metadata.name")
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

_COLUMNS: dict[str, tuple[Column, ...]] = {
    "rayjobs.ray.io": (
        Column("job status", ".status.jobStatus"),
        Column("deployment status", ".status.jobDeploymentStatus"),
        Column("ray cluster name", ".status.rayClusterName"),
        Column("start time", ".status.startTime"),
        Column("end time", ".status.endTime"),
        Column("age", ".metadata.creationTimestamp", "date"),
    ),
    "rayclusters.ray.io": (
        Column("desired workers", ".status.desiredWorkerReplicas", "integer"),
        Column("available workers", ".status.availableWorkerReplicas", "integer"),
        Column("cpus", ".status.desiredCPU"),
        Column("memory", ".status.desiredMemory"),
        Column("gpus", ".status.desiredGPU"),
        Column("tpus", ".status.desiredTPU", priority=1),
        Column("status", ".status.state"),
        Column("age", ".metadata.creationTimestamp", "date"),
        Column("head pod IP", ".status.head.podIP", priority=1),
        Column("head service IP", ".status.head.serviceIP", priority=1),
    ),
    "elasticquotatrees.scheduling.sigs.k8s.io": (
        Column("root", ".spec.root.name", priority=1),
        Column("age", ".metadata.creationTimestamp", "date"),
    ),
    "podgroups.scheduling.run.ai": (
        Column("Queue", ".spec.queue"),
        Column("MinMember", ".spec.minMember", "integer"),
        Column("Priority", ".spec.priorityClassName"),
        _AGE,
    ),
    "queues.scheduling.run.ai": (
        Column("Priority", ".spec.priority"),
        Column("Parent", ".spec.parentQueue"),
        Column("Children", ".status.childQueues"),
        Column("DisplayName", ".spec.displayName"),
    ),
    "queues.scheduling.x-k8s.io": (
        Column("policy", ".spec.queuePolicy", priority=1),
        Column("priority", ".spec.priority", "integer", priority=1),
        Column("age", ".metadata.creationTimestamp", "date"),
    ),
    "queueunits.scheduling.x-k8s.io": (
        Column("phase", ".status.phase"),
        Column("priority", ".spec.priority", "integer"),
        Column("jobtype", ".spec.consumerRef.kind"),
        Column("admissions", ".status.admissions", priority=1),
        Column("queue", ".spec.queue", priority=1),
        Column("message", ".status.message", priority=1),
        Column("age", ".metadata.creationTimestamp", "date"),
    ),
    "podgroups.scheduling.sigs.k8s.io": (Column("Age", ".metadata.creationTimestamp", "date"),),
    "podgroups.scheduling.x-k8s.io": (
        Column("Phase", ".status.phase"),
        Column("MinMember", ".spec.minMember", "integer"),
        Column("Running", ".status.running", "integer"),
        Column("Succeeded", ".status.succeeded", "integer"),
        Column("Failed", ".status.failed", "integer"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
    "pods": (
        Column("Ready", _ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts, "integer"),
        _AGE,
        Column("IP", ".status.podIP", priority=1),
        Column("Node", ".spec.nodeName", priority=1),
    ),
    "nodes": (
        Column("Status", _node_status),
        Column("CPU", ".status.allocatable.cpu"),
        Column("Memory", ".status.allocatable.memory"),
        _AGE,
    ),
    "namespaces": (Column("Status", ".status.phase"), _AGE),
    "configmaps": (Column("Data", _data, "integer"), _AGE),
    "secrets": (Column("Type", ".type"), Column("Data", _data, "integer"), _AGE),
    "services": (Column("Type", ".spec.type"), Column("Cluster-IP", ".spec.clusterIP"), _AGE),
    "jobs.batch": (Column("Status", _job_status), Column("Completions", _completions), _AGE),
    "events": (
        Column("Last Seen", ".lastTimestamp", "date"),
        Column("Type", ".type"),
        Column("Reason", ".reason"),
        Column("Object", _involved),
        Column("Message", ".message"),
    ),
    "priorityclasses.scheduling.k8s.io": (
        Column("Value", ".value", "integer"),
        Column("Global-Default", ".globalDefault"),
        _AGE,
    ),
}
"""``plural.group`` -> the columns after the name; events show none."""


def columns_of(resource: str) -> Sequence[Column]:
    """The columns of a resource such as ``rayjobs.ray.io``, the name included."""
    if resource == "events":
        return _COLUMNS[resource]
    return (_NAME, *_COLUMNS.get(resource, (_AGE,)))


def table(resource: str, objects: Iterable[Obj], meta: Obj, now: int, *, include: str = "Metadata") -> Obj:
    """A Table of objects; ``meta`` is the metadata of their list, ``include`` the part of each object beside its
    cells.
    """
    columns = columns_of(resource)
    definitions = [
        {
            "name": column.name,
            "type": "string" if column.type == "date" else column.type,
            "format": "name" if column is _NAME else "",
            "description": "",
            "priority": column.priority,
        }
        for column in columns
    ]
    rows = [{"cells": [column.cell(obj, now) for column in columns], **_included(obj, include)} for obj in objects]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _included(obj: Obj, include: str) -> Obj:
    if include == "None":
        return {}
    if include == "Object":
        return {"object": obj}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
    return {"object": partial}
