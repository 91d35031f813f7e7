"""The simulated API server: paths, verbs and bodies of Kubernetes, over a store in memory.

Synchronous and deterministic: clock and names come from outside, no tasks, no threads. The simulator's controllers use
`objects` directly and `subscribe` to changes; services use the server through `transport.SimTransport`. The package's
docstring lists the missing parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from muster.fakecluster.apiserver import discovery
from muster.fakecluster.apiserver.deletion import delete_options
from muster.fakecluster.apiserver.kinds import KINDS, ResourceRules, kinds_of_definition
from muster.fakecluster.apiserver.lists import list_objects
from muster.fakecluster.apiserver.names import Names
from muster.fakecluster.apiserver.objects import Mutation, ObjectVerbs
from muster.fakecluster.apiserver.routes import Route, parse_path
from muster.fakecluster.apiserver.status import (
    Obj,
    StatusError,
    bad_request,
    created,
    forbidden,
    method_not_allowed,
    not_found,
    success,
)
from muster.fakecluster.apiserver.store import KindTable, Store, StoredChange, encode
from muster.fakecluster.apiserver.watches import WatchStream
from muster.model.api import CRDS, JSON, NAMESPACES, PODS, ApiResource
from muster.ports import ApiResponse

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_HEALTH = ("/healthz", "/livez", "/readyz")
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_decode = msgspec.json.Decoder().decode


class SimApiServer:
    """An API server in memory.

    ``now``: ms since the epoch. ``seed``: names and uids are the same for the same seed. ``collect``: delete what
    owners leave behind, as the controller-manager does. ``auto_namespaces``: make missing namespaces instead of
    answering 404. ``history``: changes remembered per kind. ``denied``: what requests may not do (403).
    ``identity``: tells its uids from those of other servers of the same seed. ``mutate``: an admission policy.
    """

    def __init__(
        self,
        now: Callable[[], int],
        *,
        seed: int = 0,
        kinds: tuple[ResourceRules, ...] = KINDS,
        collect: bool = True,
        auto_namespaces: bool = False,
        history: int = 10_000,
        denied: discovery.Denied = frozenset(),
        identity: str = "",
        mutate: Mutation | None = None,
    ) -> None:
        self.now = now
        self.denied = denied
        self.store = Store(history)
        for kind in kinds:
            self.store.add_table(kind)
        self.objects = ObjectVerbs(
            self.store, now, Names(seed, identity), collect=collect, auto_namespaces=auto_namespaces, mutate=mutate
        )
        for namespace in ("default", "kube-system"):
            self.objects.create(NAMESPACES, "", {"metadata": {"name": namespace}})

    def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        """Answer one request. Watches are not requests here: see `watch`."""
        query = query or {}
        try:
            status, answer = self._answer(method, path, query, body, content_type)
        except StatusError as err:
            status, answer = err.code, err.body
        return ApiResponse(status, answer if isinstance(answer, bytes) else encode(answer))

    def watch(self, path: str, query: Mapping[str, str], deliver: Callable[[bytes], None]) -> WatchStream:
        """Begin a watch of a collection; ``deliver`` gets each line at once, the first ones during this call.

        Raises StatusError when the request is refused. A version that is too old is no refusal: it is answered by
        an error line, as a real server does.
        """
        route = self.route(path)
        if route is None or route.name:
            raise StatusError(404, "", "404 page not found")
        self._permit("watch", route)
        return WatchStream(self.store, self._table(route), route.namespace, query, deliver)

    def subscribe(
        self, listener: Callable[[StoredChange], None], resource: ApiResource | None = None
    ) -> Callable[[], None]:
        """Call ``listener`` at once after each change of a resource, or of all; returns how to stop that.

        A listener must not write; it notes what to do.
        """
        return self.store.subscribe(listener, resource)

    def compact(self, version: int | None = None) -> None:
        """Forget the changes up to a version (default: all), as etcd does: older watches and lists get 410."""
        for table in self.store.tables():
            table.forget(self.store.version if version is None else version)

    def serve(self, kind: ResourceRules) -> None:
        """Serve one more kind, as the creation of its definition would."""
        self.store.add_table(kind)

    def retire(self, resource: ApiResource) -> None:
        """Stop serving a kind and forget its objects, as the deletion of its definition would."""
        self.store.drop_table(resource)

    def _answer(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None, content_type: str
    ) -> tuple[int, Obj | bytes]:
        route = self.route(path)
        if route is None:
            return self._document(method, path, body)
        if method not in _VERBS or (not route.name and method not in ("GET", "POST")):
            raise method_not_allowed()
        self._permit("list" if method == "GET" and not route.name else _VERBS[method], route)
        table = self._table(route)
        if route.subresource in ("binding", "eviction"):
            return self._act_on_pod(method, route, body, query)
        resource, namespace, name = route.resource, route.namespace, route.name
        match method:
            case "GET":
                obj = self.objects.get(resource, namespace, name) if name else None
                return 200, list_objects(self.store, table, namespace, query) if obj is None else obj
            case "POST":
                if name or (resource.namespaced and not namespace):
                    raise method_not_allowed()
                return 201, self._create(route, _decoded(body, resource))
            case "PUT":
                given = _decoded(body, resource)
                return 200, self.objects.replace(resource, namespace, name, given, route.subresource)
            case "PATCH":
                patch = _decoded(body, resource)
                return 200, self.objects.patch(resource, namespace, name, patch, content_type, route.subresource)
            case _:
                return 200, self._delete(route, body, query)

    def _create(self, route: Route, given: Any) -> Obj:
        obj = self.objects.create(route.resource, route.namespace, given)
        if route.resource == CRDS:
            for kind in kinds_of_definition(obj):
                self.serve(kind)
            names = {"acceptedNames": obj["spec"]["names"], "storedVersions": []}
            conditions = [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
            status = {"status": {**names, "conditions": conditions}}
            return self.objects.patch(CRDS, "", obj["metadata"]["name"], status, subresource="status")
        return obj

    def _delete(self, route: Route, body: bytes | None, query: Mapping[str, str]) -> Obj:
        resource = route.resource
        graceful = self._table(route).kind.graceful
        options = delete_options(_decoded(body, resource) if body else None, dict(query))
        obj, gone = self.objects.delete(resource, route.namespace, route.name, options)
        if gone and resource == CRDS:
            for kind in kinds_of_definition(obj):
                self.retire(kind.resource)
        if gone and not graceful:
            return success(resource, obj["metadata"]["name"], obj["metadata"]["uid"])
        return obj

    def _act_on_pod(
        self, method: str, route: Route, body: bytes | None, query: Mapping[str, str]
    ) -> tuple[int, Obj | bytes]:
        if method != "POST":
            raise method_not_allowed()
        given = _decoded(body, PODS)
        stated = (given.get("metadata") or {}).get("name") if isinstance(given, dict) else None
        if stated not in (None, route.name):
            raise bad_request(f"name in URL does not match name in {route.subresource} object: {stated}")
        if route.subresource == "binding":
            self.objects.bind(route.namespace, route.name, given)
        else:
            options = delete_options(given.get("deleteOptions") if isinstance(given, dict) else None, dict(query))
            self.objects.evict(route.namespace, route.name, options)
        return 201, created()

    def _document(self, method: str, path: str, body: bytes | None) -> tuple[int, Obj | bytes]:
        """Answer what is not about objects."""
        if path == ACCESS_REVIEWS and method == "POST":
            return 201, discovery.access_review(_decoded(body, PODS), self.denied)
        if method != "GET":
            return 404, b"404 page not found\n"
        kinds = [table.kind for table in self.store.tables()]
        obj: Obj | None
        match path.strip("/").split("/"):
            case ["version"]:
                obj = discovery.version_document()
            case ["api"]:
                obj = discovery.api_versions()
            case ["apis"]:
                obj = discovery.group_list(kinds)
            case ["apis", group]:
                obj = discovery.group_document(group, kinds)
            case _ if path in _HEALTH:
                return 200, b"ok"
            case _:
                obj = discovery.resource_list(path.rstrip("/"), kinds)
        return (404, b"404 page not found\n") if obj is None else (200, obj)

    def route(self, path: str) -> Route | None:
        """The target of a path; None for a path that is not served."""
        parsed = parse_path(path)
        if parsed is None:
            return None
        table = self.store.find_table(parsed.root, parsed.plural)
        if table is None:
            return None
        resource = table.kind.resource
        if parsed.subresource and parsed.subresource not in table.kind.subresources:
            if table.kind.custom:
                raise not_found(resource, parsed.name)
            return None
        return Route(resource, parsed.namespace, parsed.name, parsed.subresource)

    def _table(self, route: Route) -> KindTable:
        return self.store.table(route.resource)

    def _permit(self, verb: str, route: Route) -> None:
        if not self.denied:
            return
        resource = route.resource
        plural = f"{resource.plural}/{route.subresource}" if route.subresource else resource.plural
        if discovery.is_denied(self.denied, verb, resource.group, plural):
            raise forbidden(resource, route.name, f'User "simulated" cannot {verb} resource "{plural}"')


def _decoded(body: bytes | None, resource: ApiResource) -> Any:
    try:
        return _decode(body or b"")
    except msgspec.DecodeError as err:
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {err}") from None
