"""Admission policies of deploy/policies, as far as the simulated cluster has them.

New jobs begin suspended, and a RayJob that says nothing of its cluster has the cluster shut down at the end.
"""

from __future__ import annotations

from muster.core.workloads.registry import KINDS
from muster.fakecluster.apiserver.status import Obj
from muster.model.api import RAYJOBS, ApiResource

_SUSPENDED = {row.resource: row.suspend_path[1:].split("/") for row in KINDS.values()}


def suspended_at_birth(resource: ApiResource, obj: Obj) -> Obj:
    """A new job with its suspending field set, and a new cluster of a RayService; any other object made by a controller
    is left alone.
    """
    path = _SUSPENDED.get(resource)
    owners = obj["metadata"].get("ownerReferences") or ()
    if path is None or any(owner.get("controller") and owner.get("kind") != "RayService" for owner in owners):
        return obj
    spec = obj.get("spec") or {}
    if resource == RAYJOBS and spec.get("clusterSelector"):
        return obj
    if resource == RAYJOBS and (spec.get("deletionStrategy") or {}).get("deletionRules") is None:
        obj = {**obj, "spec": {"shutdownAfterJobFinishes": True, **spec}}
    return _with(obj, path)


def _with(obj: Obj, path: list[str]) -> Obj:
    head, *rest = path
    return {**obj, head: _with(obj.get(head) or {}, rest) if rest else True}
