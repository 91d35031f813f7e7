"""Which served kinds have a field for suspension, from the schemas that the API server publishes.

Read with the rights of every account (``system:discovery``). Kubernetes' own groups are left out: Jobs and CronJobs
have the field, and both are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from muster.model.api import ApiResource
from muster.ports import ApiStatusError, ApiTransport

FIELDS = ("suspend", "runPolicy.suspend")
"""Fields of the spec that are true for waiting objects: by the convention of Kubernetes, and of Kubeflow."""
_SCHEDULES = ("schedule", "jobTemplate")
"""Fields of a schedule: its suspension makes no job wait."""


async def suspendable(transport: ApiTransport, known: Collection[ApiResource]) -> list[tuple[ApiResource, str]]:
    """(resource, field for suspension) of each served kind besides ``known``, in the order of the names.

    Raises ApiStatusError and ApiUnreachableError.
    """
    index = await _get(transport, "/openapi/v3")
    own = {(resource.group, resource.kind) for resource in known}
    unread: dict[tuple[str, str], tuple[ApiResource, str]] = {}
    for path in sorted(index.get("paths") or {}):
        _, _, rest = path.partition("apis/")
        group, _, version = rest.partition("/")
        if not version or "." not in group or (group.endswith(".k8s.io") and "x-k8s.io" not in group):
            continue
        kinds = dict(_with_field(await _get(transport, f"/openapi/v3/{path}"), group))
        kinds = {kind: at for kind, at in kinds.items() if (group, kind) not in own}
        if not kinds:
            continue
        listed = await _get(transport, f"/{path}")
        for entry in listed.get("resources") or ():
            kind, name = entry.get("kind", ""), entry.get("name", "")
            if kind in kinds and "/" not in name:
                unread.setdefault((group, kind), (ApiResource(group, version, name, kind), kinds[kind]))
    return [unread[key] for key in sorted(unread)]


def _with_field(document: dict[str, Any], group: str) -> Iterator[tuple[str, str]]:
    schemas = (document.get("components") or {}).get("schemas") or {}
    for schema in schemas.values():
        named = [
            version for version in schema.get("x-kubernetes-group-version-kind") or () if version.get("group") == group
        ]
        spec = _fields(_fields(schema).get("spec") or {})
        if not named or any(name in spec for name in _SCHEDULES):
            continue
        for field in FIELDS:
            at: dict[str, Any] = {"properties": spec}
            for step in field.split("."):
                at = _fields(at).get(step) or {}
            if at.get("type") == "boolean":
                yield named[0]["kind"], f"spec.{field}"
                break


def _fields(schema: dict[str, Any]) -> dict[str, Any]:
    return schema.get("properties") or {}


async def _get(transport: ApiTransport, path: str) -> dict[str, Any]:
    answer = await transport.request("GET", path, timeout_s=30.0)
    if answer.status == 404:
        return {}
    if not answer.ok:
        raise ApiStatusError(answer.status, answer.body[:200].decode(errors="replace"))
    body = msgspec.json.decode(answer.body)
    return body if isinstance(body, dict) else {}
