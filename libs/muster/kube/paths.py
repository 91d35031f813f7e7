"""Names a request to the API server as its audit log would: for metrics, with few distinct values."""

from __future__ import annotations

OTHER = "other"
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


def describe(method: str, path: str, *, watch: bool = False) -> tuple[str, str]:
    """(verb, resource): ``("patch", "rayjobs.ray.io/status")``, ``("list", "pods")``; never a name or a namespace.

    A path that is no object or collection (``/version``, ``/apis/ray.io/v1``) has the resource ``other``.
    """
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, rest = parts[1], parts[3:]
    else:
        return method.lower(), OTHER
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        rest = rest[2:]
    resource = f"{rest[0]}.{group}" if group else rest[0]
    if len(rest) > 2:
        resource += "/" + rest[2]
    return _verb(method, named=len(rest) > 1, watch=watch), resource


def _verb(method: str, *, named: bool, watch: bool) -> str:
    if watch:
        return "watch"
    match method.upper():
        case "GET":
            return "get" if named else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "DELETE":
            return "delete" if named else "deletecollection"
        case other:
            return other.lower()
