"""Which kinds have a field for suspension, by their CustomResourceDefinitions; Kubernetes' own kinds are known."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
from msgspec import Raw, Struct

from muster.kube.discovery import decode_answer
from muster.model.api import CRDS, ApiResource
from muster.ports import ApiTransport

FIELDS = ("spec.suspend", "spec.runPolicy.suspend")
"""Fields that are true for waiting objects: by the convention of Kubernetes, and of Kubeflow."""
_SCHEDULES = ("schedule", "schedules", "jobTemplate")
"""Fields of a schedule: its suspension makes no job wait."""
_PODS = (b'"containers":', b'"template":', b'"templates":')
"""Fields of kinds that make pods: others are suspended too, such as the deliveries of Flux."""

NOTHING = Raw(b"{}")


class _CrdSchema(Struct, rename={"open": "x-kubernetes-preserve-unknown-fields"}):
    type: str = ""
    properties: dict[str, Raw] = {}
    open: bool = False


class _CrdVersion(Struct):
    name: str
    served: bool = False
    schema: dict[str, Raw] = {}


class _CrdNames(Struct):
    plural: str
    kind: str


class _CrdSpec(Struct):
    group: str
    names: _CrdNames
    versions: list[_CrdVersion] = []


class _Definition(Struct):
    spec: _CrdSpec


class _Definitions(Struct):
    items: list[_Definition] = []


async def suspendable(transport: ApiTransport, known: Collection[ApiResource]) -> list[tuple[ApiResource, str]]:
    """(resource, field for suspension) of each served kind of jobs besides ``known``, in the order of the names.

    Raises ApiStatusError and ApiUnreachableError.
    """
    answer = await transport.request("GET", CRDS.path(), timeout_s=30.0)
    own = {(resource.group, resource.kind) for resource in known}
    unread: dict[tuple[str, str], tuple[ApiResource, str]] = {}
    for definition in decode_answer(answer, _Definitions).items:
        row = definition.spec
        for version in row.versions if (row.group, row.names.kind) not in own else ():
            resource = ApiResource(row.group, version.name, row.names.plural, row.names.kind)
            for at in _fields(version.schema.get("openAPIV3Schema", NOTHING)) if version.served else ():
                unread.setdefault((row.group, row.names.kind), (resource, at))
    return [unread[key] for key in sorted(unread)]


def _fields(schema: Raw) -> Iterator[str]:
    """The fields for suspension of a kind that makes pods."""
    spec = _at(schema, "spec")
    inner = _decoded(spec)
    if any(name in inner.properties for name in _SCHEDULES) or not (
        inner.open or any(word in bytes(spec) for word in _PODS)
    ):
        return
    yield from (at for at in FIELDS if _decoded(_at(schema, *at.split("."))).type == "boolean")


def _at(schema: Raw, *path: str) -> Raw:
    for step in path:
        schema = _decoded(schema).properties.get(step, NOTHING)
    return schema


def _decoded(schema: Raw) -> _CrdSchema:
    return msgspec.json.decode(schema, type=_CrdSchema)
