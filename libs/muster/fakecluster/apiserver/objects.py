"""The verbs of the simulated server on objects as dicts: create, change, delete, bind, evict.

Called by `server.SimApiServer`, for requests and for simulated controllers without JSON. The rules are a real
server's: the parts each client may write, the changes that make a new generation, the writes in conflict. Every verb
returns the stored object, which callers must not change, or raises StatusError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster.fakecluster.apiserver import defaults, metadata, pods
from muster.fakecluster.apiserver.deletion import DeleteOptions, Deletion
from muster.fakecluster.apiserver.jsonpatch import json_patch, merge_patch
from muster.fakecluster.apiserver.kinds import ResourceRules
from muster.fakecluster.apiserver.names import MAX_PREFIX, Names, stamp
from muster.fakecluster.apiserver.status import (
    Obj,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
    stale,
)
from muster.fakecluster.apiserver.store import KindTable, Store
from muster.model.api import (
    JOBS,
    JSON_PATCH,
    MERGE_PATCH,
    NAMESPACES,
    NODES,
    PODS,
    RAYCLUSTERS,
    RAYJOBS,
    STRATEGIC_PATCH,
    ApiResource,
)

NAME_TRIES = 8

_DEFAULTS: dict[ApiResource, Callable[[Obj], Obj]] = {
    RAYJOBS: defaults.rayjob,
    RAYCLUSTERS: defaults.raycluster,
    PODS: defaults.pod,
}
"""Applied to every object that is written."""
Mutation = Callable[[ApiResource, Obj], Obj]
"""(resource, new object) -> the object as a mutating admission policy leaves it."""


class ObjectVerbs:
    """The verbs on one store. ``now``: ms since the epoch; ``auto_namespaces``: make missing namespaces.

    ``mutate``: the change by an admission policy to every new object, given as a copy at the top level.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], int],
        names: Names,
        *,
        collect: bool,
        auto_namespaces: bool,
        mutate: Mutation | None = None,
    ) -> None:
        self._mutate = mutate
        self._store = store
        self._now = now
        self._names = names
        self._auto_namespaces = auto_namespaces
        self._deletion = Deletion(store, collect=collect)

    def find(self, resource: ApiResource, namespace: str, name: str) -> Obj | None:
        """The object, or None."""
        return self._store.table(resource).objects.get(f"{namespace}/{name}")

    def get(self, resource: ApiResource, namespace: str, name: str) -> Obj:
        """The object. 404 when there is none."""
        obj = self.find(resource, namespace, name)
        if obj is None:
            raise not_found(resource, name)
        return obj

    def create(self, resource: ApiResource, namespace: str, given: Obj) -> Obj:
        """A new object. 409 when the name is taken, 404 when the namespace is missing, 422 when it is invalid."""
        table = self._store.table(resource)
        kind = table.kind
        metadata.check_kind(kind, given)
        metadata.check_namespace(resource, given, namespace)
        self._check_namespace_exists(resource, namespace)
        meta = metadata.new_metadata(resource, given, namespace)
        self._choose_name(table, meta)
        meta["uid"] = self._names.uid()
        meta["creationTimestamp"] = stamp(self._now())
        if kind.generation:
            meta["generation"] = 1
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, **given, "metadata": meta}
        if self._mutate is not None:
            obj = self._mutate(resource, obj)
        obj = self._completed(kind, obj)
        causes = metadata.name_problems(resource, meta) + metadata.metadata_problems(meta)
        if resource == PODS:
            causes += pods.creation_problems(obj)
        if causes:
            raise invalid(resource, meta.get("name", ""), causes)
        older = table.objects.get(f"{meta.get('namespace', '')}/{meta['name']}")
        if older is not None:
            raise already_exists(resource, meta["name"], deleting="deletionTimestamp" in older["metadata"])
        stored = self._store.put(table, obj)
        if "ownerReferences" in meta:
            self._deletion.collect_if_abandoned(table, stored, self._now())
        return stored

    def replace(self, resource: ApiResource, namespace: str, name: str, given: Obj, subresource: str = "") -> Obj:
        """The object replaced by a whole new version (PUT). 409 when that was not made from the newest one."""
        table = self._store.table(resource)
        old = self.get(resource, namespace, name)
        metadata.check_kind(table.kind, given)
        metadata.check_namespace(resource, given, namespace)
        new = given.get("metadata") or {}
        self._check_name(new.get("name"), name)
        uid, version = new.get("uid"), new.get("resourceVersion")
        if uid and uid != old["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}"
            raise conflict(resource, name, why)
        if version and version != old["metadata"]["resourceVersion"]:
            raise stale(resource, name)
        if not version and not table.kind.unconditional:
            message = "Invalid value: 0: must be specified for an update"
            raise invalid(resource, name, [("metadata.resourceVersion", "FieldValueInvalid", message)])
        return self._change(table, old, given, subresource)

    def patch(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        patch: Any,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
    ) -> Obj:
        """The object after a patch. 422 when a JSON patch does not apply, 409 when it names an old version."""
        table = self._store.table(resource)
        old = self.get(resource, namespace, name)
        new = self._patched(table.kind, old, patch, content_type)
        if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
            raise invalid(resource, name, [("patch", "FieldValueInvalid", "Invalid value: the result is no object")])
        before, after = old["metadata"], new["metadata"]
        self._check_name(after.get("name"), name)
        if after.get("resourceVersion") != before["resourceVersion"]:
            raise stale(resource, name)
        if after.get("uid") != before["uid"]:
            message = f'Invalid value: "{after.get("uid")}": field is immutable'
            raise invalid(resource, name, [("metadata.uid", "FieldValueInvalid", message)])
        return self._change(table, old, new, subresource)

    def delete(
        self, resource: ApiResource, namespace: str, name: str, options: DeleteOptions | None = None
    ) -> tuple[Obj, bool]:
        """Delete; returns the object as the answer shows it, and whether it is gone. 409: wrong precondition."""
        obj = self.get(resource, namespace, name)
        table = self._store.table(resource)
        return self._deletion.delete(table, obj, options or DeleteOptions(), self._now())

    def bind(self, namespace: str, name: str, binding: Obj) -> Obj:
        """Bind a pod to the node that a Binding names. 409 when it has one, is going, is gated, is another pod."""
        pod = pods.bound(self.get(PODS, namespace, name), binding, self._now())
        return self._store.put(self._store.table(PODS), pod)

    def evict(self, namespace: str, name: str, options: DeleteOptions) -> None:
        """Delete a pod as the eviction subresource does; disruption budgets do not exist here."""
        table = self._store.table(PODS)
        pod, now = self.get(PODS, namespace, name), self._now()
        if options.uid in ("", pod["metadata"]["uid"]) and not pod["metadata"].get("deletionTimestamp"):
            pod = self._store.put(table, pods.evicted(pod, now))
        self._deletion.delete(table, pod, options, now)

    def _change(self, table: KindTable, old: Obj, given: Obj, subresource: str) -> Obj:
        """Store a change of an object, whichever request asked for it; no change stores nothing."""
        kind = table.kind
        new = {**given, "metadata": metadata.changed_metadata(old["metadata"], given["metadata"])}
        if subresource == "status":
            new = self._status_part(kind, old, new)
        elif subresource == "resize":
            new = pods.resized(old, new)
        elif kind.status:
            new = _with_part(new, old, "status")
        new = {"apiVersion": old["apiVersion"], "kind": old["kind"], **new}
        fill = _DEFAULTS.get(kind.resource)
        if fill is not None and (new.get("spec") is not old.get("spec") or "status" not in old):
            new = fill(new)
        if new == old:
            return old
        self._check_change(kind, old, new, resizes=subresource == "resize")
        meta = new["metadata"]
        if kind.generation and _generation_changed(kind, old, new):
            meta["generation"] += 1
        if self._deletion.emptied(old, new):
            self._deletion.remove(table, new, self._now())
            return new
        return self._store.put(table, new)

    def _status_part(self, kind: ResourceRules, old: Obj, new: Obj) -> Obj:
        """Of a write to the status subresource, what it may change."""
        if kind.custom:
            return _with_part({**old, "metadata": {**old["metadata"]}}, new, "status")
        meta = {**new["metadata"]}
        for key in ("ownerReferences", "finalizers"):
            meta.pop(key, None)
            if key in old["metadata"]:
                meta[key] = old["metadata"][key]
        return {**_with_part(old, new, "status"), "metadata": meta}

    def _check_change(self, kind: ResourceRules, old: Obj, new: Obj, *, resizes: bool) -> None:
        before, after = old["metadata"], new["metadata"]
        causes = metadata.added_finalizers(before, after)
        if (
            before.get("labels") != after.get("labels")
            or before.get("annotations") != after.get("annotations")
            or before.get("ownerReferences") != after.get("ownerReferences")
        ):
            causes += metadata.metadata_problems(after)
        if kind.resource == PODS and not resizes:
            causes += pods.change_problems(old, new)
        if causes:
            raise invalid(kind.resource, after["name"], causes)

    def _patched(self, kind: ResourceRules, old: Obj, patch: Any, content_type: str) -> Any:
        if content_type == JSON_PATCH:
            return json_patch(old, patch)
        # A strategic merge patch of a built-in kind differs only for lists with keys, which no client here sends.
        if content_type == MERGE_PATCH or (content_type == STRATEGIC_PATCH and not kind.custom):
            if not isinstance(patch, dict):
                raise bad_request("error decoding patch: a merge patch is an object")
            return merge_patch(old, patch)
        accepted = [JSON_PATCH, MERGE_PATCH, *([] if kind.custom else [STRATEGIC_PATCH])]
        message = "the body of the request was in an unknown format - accepted media types include: "
        raise StatusError(415, "UnsupportedMediaType", message + ", ".join(accepted))

    def _completed(self, kind: ResourceRules, obj: Obj) -> Obj:
        """A new object with everything the server adds to it."""
        resource = kind.resource
        if kind.status and resource != NODES:
            obj.pop("status", None)
        fill = _DEFAULTS.get(resource)
        if fill is not None:
            obj = fill(obj)
        if resource == PODS:
            obj = pods.with_priority(self._store, obj)
            obj["status"] = defaults.pod_status(obj["spec"], self._now())
        elif resource == JOBS:
            obj = {**defaults.job(obj), "status": {}}
        elif resource == NAMESPACES:
            meta = obj["metadata"]
            meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta.get("name", "")}
            obj = {**obj, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        return obj

    def _choose_name(self, table: KindTable, meta: Obj) -> None:
        """Generate a name that is free, if none was given."""
        prefix = meta.get("generateName", "")
        if meta.get("name") or not prefix:
            return
        where = (table.kind.resource.plural, meta.get("namespace", ""), prefix)
        for _ in range(NAME_TRIES + len(table.objects)):
            meta["name"] = prefix[:MAX_PREFIX] + self._names.suffix(*where)
            if f"{meta.get('namespace', '')}/{meta['name']}" not in table.objects:
                return

    def _check_namespace_exists(self, resource: ApiResource, namespace: str) -> None:
        if not resource.namespaced or self.find(NAMESPACES, "", namespace) is not None:
            return
        if not self._auto_namespaces:
            raise not_found(NAMESPACES, namespace)
        self.create(NAMESPACES, "", {"metadata": {"name": namespace}})

    def _check_name(self, stated: str | None, name: str) -> None:
        if stated != name:
            raise bad_request(f"the name of the object ({stated}) does not match the name on the URL ({name})")


def _with_part(obj: Obj, source: Obj, key: str) -> Obj:
    """``found`` with ``source``'s value of ``key``, or without the key when ``source`` has none."""
    if key in source:
        return {**obj, key: source[key]}
    return {name: value for name, value in obj.items() if name != key}


def _generation_changed(kind: ResourceRules, old: Obj, new: Obj) -> bool:
    if kind.generation == "spec":
        return bool(old.get("spec") != new.get("spec"))
    ignored = ("metadata", "status") if kind.status else ("metadata",)
    return any(key not in ignored and old.get(key) != new.get(key) for key in (*old, *new))
