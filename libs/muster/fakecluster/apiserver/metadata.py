"""Object metadata on the way in: fields a client may set, fields of the server, and refusals.

Pure helpers of the verbs in `objects`. The resulting metadata is a fresh dict that the store may complete.
"""

from __future__ import annotations

from typing import Any

from muster.fakecluster.apiserver.kinds import ResourceRules
from muster.fakecluster.apiserver.names import key_problem, label_problem, name_problem
from muster.fakecluster.apiserver.status import Obj, StatusError, bad_request, invalid
from muster.model.api import ApiResource

Cause = tuple[str, str, str]
"""(field path, reason, message) of one thing that is wrong."""

MAX_ANNOTATIONS = 256 * 1024

_SETTABLE = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")


def check_kind(kind: ResourceRules, obj: Any) -> None:
    """Refuse a body that is not an object of this kind. Built-in kinds may leave kind and apiVersion out."""
    resource = kind.resource
    if not isinstance(obj, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): not an object")
    named, version = obj.get("kind"), obj.get("apiVersion")
    if kind.custom and not named:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing"
        )
    if version not in (None, "", resource.api_version):
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if named not in (None, "", resource.kind):
        message = f'Invalid value: "{named}": must be {resource.kind}'
        raise invalid(resource, (obj.get("metadata") or {}).get("name", ""), [("kind", "FieldValueInvalid", message)])


def check_namespace(resource: ApiResource, obj: Obj, namespace: str) -> None:
    """Refuse a body that names another namespace than the path."""
    stated = (obj.get("metadata") or {}).get("namespace")
    if resource.namespaced and stated and stated != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def new_metadata(resource: ApiResource, obj: Obj, namespace: str) -> Obj:
    """What of a new object's metadata its creator may decide; raises StatusError 500 for a resourceVersion."""
    given = obj.get("metadata") or {}
    if given.get("resourceVersion") not in (None, "", "0"):
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    meta = {key: given[key] for key in _SETTABLE if given.get(key)}
    if resource.namespaced:
        meta["namespace"] = namespace
    else:
        meta.pop("namespace", None)
    return meta


def changed_metadata(old: Obj, new: Obj) -> Obj:
    """Metadata of a changed object: the server's fields keep their values, whatever the client wrote."""
    meta = {key: value for key, value in new.items() if value is not None and key != "managedFields"}
    for key in _SERVER_OWNED:
        if key in old:
            meta[key] = old[key]
        else:
            meta.pop(key, None)
    for key in ("labels", "annotations", "ownerReferences", "finalizers"):
        if key in meta and not meta[key]:
            del meta[key]
    meta["name"] = old["name"]
    if "namespace" in old:
        meta["namespace"] = old["namespace"]
    meta["resourceVersion"] = old["resourceVersion"]
    return meta


def metadata_problems(meta: Obj) -> list[Cause]:
    """Everything that is wrong with labels, annotations, owner references."""
    causes: list[Cause] = []
    for key, value in (meta.get("labels") or {}).items():
        causes += _causes("metadata.labels", key, key_problem(key))
        causes += _causes("metadata.labels", value, label_problem(value))
    size = 0
    for key, value in (meta.get("annotations") or {}).items():
        causes += _causes("metadata.annotations", key, key_problem(key.lower()))
        size += len(key) + len(value)
    if size > MAX_ANNOTATIONS:
        causes.append(("metadata.annotations", "FieldValueTooLong", "Too long: may not be more than 262144 bytes"))
    for owner in meta.get("ownerReferences") or ():
        causes += [
            (f"metadata.ownerReferences.{field}", "FieldValueInvalid", 'Invalid value: "": must not be empty')
            for field in _OWNER_FIELDS
            if not owner.get(field)
        ]
    return causes


def name_problems(resource: ApiResource, meta: Obj) -> list[Cause]:
    """The problems of the name of a new object, and of the prefix it was generated from."""
    name, prefix = meta.get("name", ""), meta.get("generateName", "")
    if not name:
        return [("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
    causes = []
    if prefix and resource.plural != "events":  # The API server judges the names of Events no further.
        masked = f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        causes += _causes("metadata.generateName", prefix, name_problem(resource, masked))
    return causes + _causes("metadata.name", name, name_problem(resource, name))


def added_finalizers(old: Obj, new: Obj) -> list[Cause]:
    """Finalizers added to an object that is being deleted: none may be."""
    if not old.get("deletionTimestamp"):
        return []
    added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if not added:
        return []
    why = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers"
    return [("metadata.finalizers", "FieldValueForbidden", f"{why} {added}")]


def _causes(field: str, value: str, problem: str) -> list[Cause]:
    return [(field, "FieldValueInvalid", f'Invalid value: "{value}": {problem}')] if problem else []
