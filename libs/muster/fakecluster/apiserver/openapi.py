"""The part of OpenAPI v3 that clients ask for before a write: the resources with ``fieldValidation``.

kubectl leaves validation to a server with this answer. There are no schemas: this server checks nothing by schemas.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.fakecluster.apiserver.status import Obj
from muster.model.api import ApiResource

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("fieldManager", "fieldValidation")
]


def index(resources: Iterable[ApiResource]) -> Obj:
    """``/openapi/v3``: where the document of each group version is."""
    roots = sorted({resource.root.lstrip("/") for resource in resources})
    return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots}}


def document(root: str, resources: Iterable[ApiResource]) -> Obj | None:
    """``/openapi/v3/<root>``, e.g. of ``apis/ray.io/v1``; None when nothing is served there."""
    served = [resource for resource in resources if resource.root.lstrip("/") == root]
    if not served:
        return None
    paths = {_path(resource): _operations(resource) for resource in served}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes (simulated)", "version": "simulated"},
        "paths": paths,
        "components": {"schemas": {}},
    }


def _path(resource: ApiResource) -> str:
    namespace = "namespaces/{namespace}/" if resource.namespaced else ""
    return f"{resource.root}/{namespace}{resource.plural}/{{name}}"


def _operations(resource: ApiResource) -> Obj:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    operation = {
        "parameters": _PARAMETERS,
        "x-kubernetes-group-version-kind": kind,
        "responses": {"200": {"description": "OK"}},
    }
    return {verb: {**operation, "x-kubernetes-action": verb} for verb in ("patch", "put")}
