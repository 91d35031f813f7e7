"""Whether an entry of ``scaleStrategy.scaleGate``, as served by the API server, can be applied.

An apply needs two lists merged by key: an entry applied to a list that is replaced as a whole takes the list away from
its owner. KubeRay marks scaleGate so, ``workerGroupSpecs`` not yet (kuberay#5094, #4840).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct, field

from muster.model import api
from muster.model.language import listed, say
from muster.ports import ApiStatusError, ApiTransport


class _Schema(Struct):
    """Of a value, as far as we look."""

    properties: dict[str, _Schema] = field(default_factory=dict)
    items: _Schema | None = None
    required: tuple[str, ...] = ()
    list_type: str = field(default="", name="x-kubernetes-list-type")
    keys: tuple[str, ...] = field(default=(), name="x-kubernetes-list-map-keys")

    def at(self, *path: str) -> _Schema:
        """The schema of a property below, or of nothing where there is none; ``*``: of the entries of a list."""
        gate = self
        for name in path:
            gate = (gate.items if name == "*" else gate.properties.get(name)) or _Schema()
        return gate

    def is_map(self, key: str) -> bool:
        return self.list_type == "map" and self.keys == (key,)


class _Components(Struct):
    schemas: dict[str, msgspec.Raw] = field(default_factory=dict)


class _Document(Struct):
    components: _Components = field(default_factory=_Components)


async def lacking(transport: ApiTransport) -> tuple[str, ...]:
    """The missing parts of the served RayCluster for an apply of an entry, in words; empty if an apply works.

    One request of some megabytes. Raises ApiStatusError for an answer that is neither a description nor none, and
    ApiUnreachableError for no answer.
    """
    answer = await transport.request("GET", f"/openapi/v3{api.RAYCLUSTERS.root}", timeout_s=30.0)
    if not answer.ok and answer.status != 404:
        raise ApiStatusError(answer.status, say("its OpenAPI cannot be read"), answer.retry_after_s)
    try:
        schemas = msgspec.json.decode(answer.body, type=_Document).components.schemas if answer.ok else {}
        for name, raw in schemas.items():
            if name.endswith(f".{api.RAYCLUSTERS.kind}"):
                return tuple(_lacking(msgspec.json.decode(raw, type=_Schema).at("spec", "workerGroupSpecs")))
    except ValueError as err:
        raise ApiStatusError(answer.status, say("its OpenAPI of RayClusters cannot be read: {err}", err=err)) from err
    return (say("the OpenAPI of this server does not describe RayClusters"),)


def _lacking(groups: _Schema) -> Iterator[str]:
    gates = groups.at("*", "scaleStrategy", "scaleGate")
    if not groups.is_map("groupName"):
        yield say("workerGroupSpecs is no list by groupName (x-kubernetes-list-type: map)")
    if gates.items is None:
        yield say("workerGroupSpecs[].scaleStrategy has no scaleGate")
    elif not gates.is_map("name"):
        yield say("scaleGate is no list by name (x-kubernetes-list-type: map)")
    elif unknown := {*gates.items.required} - {"name"}:
        yield say("an entry of scaleGate needs {names}, which Muster does not know", names=listed(sorted(unknown)))
