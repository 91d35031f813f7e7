"""Rules for pods: priority at creation, allowed changes of the spec, binding, eviction, grace.

Pure helpers of the verbs; each returns new objects or raises the server's answer.
"""

from __future__ import annotations

from typing import Any

from muster.fakecluster.apiserver.metadata import Cause
from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.apiserver.status import Obj, bad_request, conflict, forbidden
from muster.fakecluster.apiserver.store import Store
from muster.model.api import PODS, PRIORITY_CLASSES, ApiResource
from muster.model.resources import QuantityError, parse_quantity

DEFAULT_GRACE_S = 30
FINISHED = ("Succeeded", "Failed")

BUILT_IN_PRIORITIES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}

_CHANGEABLE = ("schedulingGates", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds")
_BINDING = ApiResource("", "v1", "pods/binding", "Binding")


def with_priority(store: Store, pod: Obj) -> Obj:
    """The pod with the priority of its class; raises StatusError 403 when there is no such class."""
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    classes = store.table(PRIORITY_CLASSES).objects
    if name:
        class_ = classes.get(f"/{name}")
        value = BUILT_IN_PRIORITIES.get(name) if class_ is None else class_.get("value", 0)
        if value is None:
            raise forbidden(PODS, pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
        return {**pod, "spec": {**spec, "priority": value}}
    defaults = [class_ for class_ in classes.values() if class_.get("globalDefault")]
    if defaults:
        chosen = min(defaults, key=lambda class_: class_["value"])
        named = {"priorityClassName": chosen["metadata"]["name"], "priority": chosen["value"]}
        return {**pod, "spec": {**spec, **named}}
    return {**pod, "spec": {**spec, "priority": 0}}


def creation_problems(pod: Obj) -> list[Cause]:
    """What keeps a pod from being created."""
    if not pod["spec"].get("containers"):
        return [("spec.containers", "FieldValueRequired", "Required value")]
    causes: list[Cause] = []
    for key in ("containers", "initContainers"):
        for place, container in enumerate(pod["spec"].get(key) or ()):
            for part, amounts in (container.get("resources") or {}).items():
                if isinstance(amounts, dict):
                    causes += _amount_problems(f"spec.{key}[{place}].resources.{part}", amounts)
    return causes


def _amount_problems(field: str, amounts: Obj) -> list[Cause]:
    causes: list[Cause] = []
    for name, text in amounts.items():
        try:
            parse_quantity(str(text), name)
        except QuantityError as err:
            causes.append((f"{field}[{name}]", "FieldValueInvalid", f"Invalid value: {err.problem.code}"))
    return causes


def resized(old: Obj, new: Obj) -> Obj:
    """Of a write to the resize subresource, what it may change: resources of the containers that there are."""
    given = {container.get("name"): container.get("resources") for container in new["spec"].get("containers") or ()}
    containers = [
        {**container, "resources": given[container["name"]]} if given.get(container["name"]) else container
        for container in old["spec"]["containers"]
    ]
    return {**old, "spec": {**old["spec"], "containers": containers}}


def change_problems(old: Obj, new: Obj) -> list[Cause]:
    """What a change of a pod does that it may not: only a few fields of a pod's spec may change."""
    before, after = old["spec"], new["spec"]
    if before is after or before == after:
        return []
    causes: list[Cause] = []
    kept = {gate["name"] for gate in before.get("schedulingGates") or ()}
    for place, gate in enumerate(after.get("schedulingGates") or ()):
        if gate["name"] not in kept:
            why = f"Forbidden: only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            causes.append((f"spec.schedulingGates[{place}].name", "FieldValueForbidden", why))
    gated = bool(before.get("schedulingGates"))
    if _fixed(before, gated=gated) != _fixed(after, gated=gated):
        why = "Forbidden: pod updates may not change fields other than images, tolerations and a few more"
        causes.append(("spec", "FieldValueForbidden", why))
    return causes


def _fixed(spec: Obj, *, gated: bool) -> Obj:
    """The part of a pod's spec that stays. While a pod is gated, its node selector may still be narrowed."""
    changeable = (*_CHANGEABLE, "nodeSelector", "affinity") if gated else _CHANGEABLE
    fixed = {key: value for key, value in spec.items() if key not in changeable}
    for key in ("containers", "initContainers"):
        if key in fixed:
            fixed[key] = [{name: part for name, part in entry.items() if name != "image"} for entry in fixed[key]]
    return fixed


def bound(pod: Obj, binding: Any, now: int) -> Obj:
    """The pod on the node a Binding names; raises StatusError 409 when it may not go there (any more)."""
    if not isinstance(binding, dict):
        raise bad_request("the object provided is unrecognized (must be of type Binding): not an object")
    meta = pod["metadata"]
    name, uid = meta["name"], (binding.get("metadata") or {}).get("uid")
    node = (binding.get("target") or {}).get("name", "")
    if not node:
        raise bad_request("the Binding names no node: target.name is required")
    if uid and uid != meta["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        raise conflict(PODS, name, why)
    if meta.get("deletionTimestamp"):
        raise conflict(_BINDING, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise conflict(_BINDING, name, f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict(_BINDING, name, f"pod {name} has non-empty .spec.schedulingGates")
    annotations = (binding.get("metadata") or {}).get("annotations")
    if annotations:
        meta = {**meta, "annotations": {**(meta.get("annotations") or {}), **annotations}}
    scheduled = condition("PodScheduled", "True", now)
    return {
        **pod,
        "metadata": {**meta},
        "spec": {**pod["spec"], "nodeName": node},
        "status": with_condition(pod.get("status") or {}, scheduled),
    }


def condition(kind: str, status: str, now: int, reason: str = "", message: str = "") -> Obj:
    """A condition of a pod, as its status lists them."""
    made = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": stamp(now)}
    if reason:
        made["reason"] = reason
    if message:
        made["message"] = message
    return made


def with_condition(status: Obj, entry: Obj) -> Obj:
    """The status with this condition, in place of an older condition of the type."""
    others = [condition for condition in status.get("conditions") or () if condition["type"] != entry["type"]]
    return {**status, "conditions": [*others, entry]}


def evicted(pod: Obj, now: int) -> Obj:
    """The pod, marked as disrupted by an eviction."""
    entry = condition("DisruptionTarget", "True", now, "EvictionByEvictionAPI", "Eviction API: evicting")
    return {**pod, "metadata": {**pod["metadata"]}, "status": with_condition(pod.get("status") or {}, entry)}


def grace_s(pod: Obj, wanted: int | None) -> int:
    """Seconds a pod gets to stop: none when it never started or is over."""
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in FINISHED:
        return 0
    if wanted is not None:
        return max(wanted, 0) if wanted >= 0 else 1
    return int(pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S))
