"""What a URL path names: ``/apis/ray.io/v1/namespaces/video/rayjobs/a/status`` and its like."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from muster.model.api import ApiResource


class ParsedPath(Struct, frozen=True):
    """A path taken apart; whether such a resource is served is not its business."""

    root: str
    """``/api/v1`` or ``/apis/<group>/<version>``."""
    plural: str
    namespace: str
    name: str
    subresource: str


class Route(Struct, frozen=True):
    """What a request is about. An empty name means the collection."""

    resource: ApiResource
    namespace: str
    name: str
    subresource: str


@lru_cache(maxsize=16384)
def parse_path(path: str) -> ParsedPath | None:
    """The parts of a path to objects; None for any other path."""
    parts = path.strip("/").split("/")
    length = {"api": 2, "apis": 3}.get(parts[0], 0)
    rest = parts[length:]
    if not length or not rest:
        return None
    namespace = ""
    in_namespace = len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize")
    if in_namespace:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or not all(rest):
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    return ParsedPath("/" + "/".join(parts[:length]), plural, namespace, name, subresource)
