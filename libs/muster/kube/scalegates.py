"""Whether the API server serves ``scaleStrategy.scaleGate`` such that one entry of it can be applied.

It takes two lists that are merged by key: an entry applied to a list that is replaced as a whole takes the list away
from its owner. KubeRay marks scaleGate so, ``workerGroupSpecs`` it does not yet (kuberay#5094, #4840).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct, field

from muster.model import api
from muster.ports import ApiStatusError, ApiTransport

TOLD = ("message", "reason")
"""Fields of an entry that can be filled beside its name, where they are texts."""
UNDESCRIBED = ("the OpenAPI of this server does not describe RayClusters",)


class ScaleGates(Struct, frozen=True):
    """What the served schema lacks, in words, nothing where an entry can be applied; and what an entry says."""

    missing: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


class _KindName(Struct):
    kind: str = ""


class _OpenSchema(Struct):
    """Of an object or a list, as far as we look; ``properties`` are decoded one by one, for they are many."""

    properties: dict[str, msgspec.Raw] = field(default_factory=dict)
    items: msgspec.Raw = msgspec.Raw(b"{}")
    required: tuple[str, ...] = ()
    type: str = ""
    enum: tuple[object, ...] = ()
    list_type: str = field(default="", name="x-kubernetes-list-type")
    keys: tuple[str, ...] = field(default=(), name="x-kubernetes-list-map-keys")
    kinds: tuple[_KindName, ...] = field(default=(), name="x-kubernetes-group-version-kind")

    def at(self, *path: str) -> _OpenSchema:
        """The schema of a property below, or of an empty object where there is none; ``*``: of the entries."""
        found = self
        for name in path:
            raw = found.items if name == "*" else found.properties.get(name, msgspec.Raw(b"{}"))
            found = _schema.decode(raw)
        return found

    def is_map(self, key: str) -> bool:
        return self.list_type == "map" and self.keys == (key,)


class _OpenSchemas(Struct):
    schemas: dict[str, msgspec.Raw] = field(default_factory=dict)


class _OpenDocument(Struct):
    components: _OpenSchemas = field(default_factory=_OpenSchemas)


_schema = msgspec.json.Decoder(_OpenSchema)


async def scale_gates(transport: ApiTransport) -> ScaleGates:
    """What the server says of the field now, by its OpenAPI: one request of some megabytes.

    Raises ApiStatusError for an answer that is neither a description nor none, and ApiUnreachableError for no answer.
    """
    answer = await transport.request("GET", f"/openapi/v3{api.RAYCLUSTERS.root}", timeout_s=30.0)
    if answer.status == 404:
        return ScaleGates(UNDESCRIBED)
    if not answer.ok:
        raise ApiStatusError(answer.status, "its OpenAPI cannot be read", answer.retry_after_s)
    try:
        document = msgspec.json.decode(answer.body, type=_OpenDocument)
        for name, raw in document.components.schemas.items():
            if name.endswith(api.RAYCLUSTERS.kind):
                schema = _schema.decode(raw)
                if any(each.kind == api.RAYCLUSTERS.kind for each in schema.kinds):
                    return _of(schema)
    except ValueError as err:
        raise ApiStatusError(answer.status, f"its OpenAPI of RayClusters cannot be read: {err}") from err
    return ScaleGates(UNDESCRIBED)


def _of(cluster: _OpenSchema) -> ScaleGates:
    groups = cluster.at("spec", "workerGroupSpecs")
    gates = groups.at("*", "scaleStrategy", "scaleGate")
    entry = gates.at("*")
    texts = {name: entry.at(name) for name in TOLD if name in entry.properties}
    told = tuple(name for name, schema in texts.items() if schema.type == "string" and not schema.enum)
    return ScaleGates(tuple(_missing(groups, gates, {*entry.required} - {"name", *told})), told)


def _missing(groups: _OpenSchema, gates: _OpenSchema, unknown: set[str]) -> Iterator[str]:
    if not groups.is_map("groupName"):
        yield "workerGroupSpecs is no list by groupName (x-kubernetes-list-type: map)"
    if gates.type != "array":
        yield "workerGroupSpecs[].scaleStrategy has no scaleGate"
    elif not gates.is_map("name"):
        yield "scaleGate is no list by name (x-kubernetes-list-type: map)"
    elif unknown:
        yield f"an entry of scaleGate needs {', '.join(sorted(unknown))}, which Muster does not know"
