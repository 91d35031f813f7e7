"""What the API server adds to a pod when the pod is created: the overhead of its RuntimeClass, defaults of LimitRanges.

A job is read with these amounts in its pod templates: it is charged what its pods will ask for, and not what their
template says. Rules: admission plugins ``RuntimeClass`` and ``LimitRanger`` of Kubernetes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from muster.kube import deltas
from muster.kube.hooks import WatchHooks
from muster.kube.reflector import Reflector
from muster.model.api import LIMIT_RANGES, RUNTIME_CLASSES, ApiResource
from muster.ports import ApiTransport

Amounts = dict[str, Any]
"""{resource: quantity as written}"""
CLASS = "runtimeClassName"


class PodDefaults:
    """The RuntimeClasses and LimitRanges of one cluster, as they are now."""

    def __init__(self) -> None:
        self._overheads: dict[str, Amounts] = {}
        """{RuntimeClass: amounts for each of its pods}"""
        self._limits: dict[str, dict[str, Amounts]] = {}
        """{namespace: {LimitRange: request of a container that has neither request nor limit of a resource}}"""
        self._listed = {resource: asyncio.Event() for resource in (RUNTIME_CLASSES, LIMIT_RANGES)}

    async def listed(self) -> None:
        """Wait until both resources have been listed, or are known to be absent."""
        for event in self._listed.values():
            await event.wait()

    def unlisted(self) -> list[str]:
        """The resources that have not been listed: no job is read until then."""
        return [str(resource) for resource, event in self._listed.items() if not event.is_set()]

    async def run(self, transport: ApiTransport, hooks: Mapping[ApiResource, WatchHooks]) -> None:
        """Follow both resources until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for resource in self._listed:
                tasks.create_task(self._follow(Reflector(transport, resource, hooks=hooks.get(resource)), resource))

    async def _follow(self, reflector: Reflector, resource: ApiResource) -> None:
        async with aclosing(reflector.deltas()) as stream:
            async for delta in stream:
                match delta:
                    case deltas.Upsert():
                        self.observe(resource, delta.meta.namespace, delta.meta.name, delta.raw)
                    case deltas.Delete():
                        self.observe(resource, delta.meta.namespace, delta.meta.name, b"{}")
                    case deltas.ListSynced() | deltas.Absent():
                        self._listed[resource].set()
                    case deltas.Unreadable():
                        pass

    def observe(self, resource: ApiResource, namespace: str, name: str, raw: bytes) -> None:
        """Take an object as it is now; ``{}`` for an object that is gone."""
        body = msgspec.json.decode(raw)
        if resource == RUNTIME_CLASSES:
            self._overheads[name] = (body.get("overhead") or {}).get("podFixed") or {}
            return
        rows = [row for row in (body.get("spec") or {}).get("limits") or () if row.get("type") == "Container"]
        asked: Amounts = {}
        for row in rows:
            asked |= {**(row.get("default") or {}), **(row.get("defaultRequest") or {})}
        ranges = self._limits.setdefault(namespace, {})
        ranges.pop(name, None)
        if asked:
            ranges[name] = asked

    def added(self, namespace: str, raw: bytes) -> bytes:
        """An object of a job as its pods will be: with the overhead and the requests that the API server adds to them.

        A pod spec is any mapping of the object's spec with a list ``containers``; no kind tells here where its own are.
        """
        # Of several LimitRanges with a default for one resource the API server takes any; the first by name is read.
        asked: Amounts = {}
        for _, defaults in sorted(self._limits.get(namespace, {}).items(), reverse=True):
            asked |= defaults
        if not asked and CLASS.encode() not in raw:
            return raw
        try:
            body = msgspec.json.decode(raw)
            self._walk(body.get("spec"), asked)
            return msgspec.json.encode(body)
        except (msgspec.DecodeError, AttributeError, TypeError, OverflowError, RecursionError):
            return raw  # The reader names what is wrong with the object.

    def _walk(self, value: Any, asked: Amounts) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("containers"), list):
                self._add(value, asked)
            value = list(value.values())
        for inner in value if isinstance(value, list) else ():
            self._walk(inner, asked)

    def _add(self, spec: dict[str, Any], asked: Amounts) -> None:
        name = spec.get(CLASS)
        overhead = self._overheads.get(name) if isinstance(name, str) else None
        if overhead and not spec.get("overhead"):
            spec["overhead"] = overhead
        for container in (*spec["containers"], *(spec.get("initContainers") or ())):
            if asked and isinstance(container, dict):
                resources = container.get("resources") or {}
                own = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
                container["resources"] = {**resources, "requests": {**asked, **own}}
