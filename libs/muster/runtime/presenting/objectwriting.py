"""The presenter's requests: objects, Events and patches, counted and limited in rate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from muster.core.actuation.orders import message_of
from muster.core.objects.meta import rfc3339
from muster.core.reading.kubequeue import QUEUE_NAMESPACE
from muster.kube.discovery import served_names
from muster.model import api
from muster.model.api import JSON, MERGE_PATCH, ApiResource
from muster.ports import ApiResponse, ApiStatusError, ApiTransport
from muster.runtime.presenting.there import There
from muster.runtime.runners.hooks import Hooks
from muster.told.presentation.desired import Body, DesiredObject, EventNote

RATE_PER_S = 50.0
"""Writes per second, all objects together; a burst of two seconds' worth is let through."""

REPORTER = "muster"
ABSENT_S = 60.0
"""How long a resource that the server does not have is not asked for."""


class ObjectWriter:
    """Makes the requests at once; the caller keeps the rate, and first asks whether the rate is exhausted."""

    def __init__(self, transport: ApiTransport, hooks: Hooks, there: There, rate_per_s: float = RATE_PER_S) -> None:
        self._transport = transport
        self.there = there
        self._hooks = hooks
        self._rate = rate_per_s
        self._tokens = 2 * rate_per_s
        self._refilled = 0.0
        self._split_status: dict[str, bool] = {}
        self._absent: dict[str, float] = {}
        """Resources that the server did not have, and until which loop time this is not asked again."""
        self._asking = asyncio.Lock()

    @property
    def exhausted(self) -> bool:
        return self._tokens < 1

    def refill(self, now: float) -> None:
        self._tokens = min(2 * self._rate, self._tokens + (now - self._refilled) * self._rate)
        self._refilled = now

    async def upsert(self, wanted: DesiredObject) -> bool:
        """Make or change the object, in a request for each different part; whether the API server has the right
        state now.
        """
        if not await self._serves(wanted.resource):
            return False
        split = await self.has_split_status(wanted.resource)
        whole = wanted.body
        if wanted.seen is None and self.there.left(wanted.key) is None:
            body = {
                "apiVersion": wanted.resource.api_version,
                "kind": wanted.resource.kind,
                **whole,
                "metadata": {"name": wanted.name, "namespace": wanted.namespace, **wanted.metadata},
            }
            answer = await self._create(wanted, body)
            if answer.status == 404:
                self._split_status.pop(str(wanted.resource), None)
                return False
            if answer.status != 409:
                return await self._made(wanted, answer, split)
        body_differs, status_differs = self.there.differs(wanted.key, whole) if split else (True, True)
        answer = ApiResponse(200, b"")
        if body_differs:
            answer = await self._patch(wanted, whole)
        if answer.ok and split and status_differs:
            answer = await self._patch(wanted, {"status": wanted.status}, "status")
        return self._wrote(wanted, answer)

    async def _made(self, wanted: DesiredObject, answer: ApiResponse, split: bool) -> bool:
        """The object was made; a status kept apart is still missing."""
        if answer.ok and split:
            answer = await self._patch(wanted, {"status": wanted.status}, "status")
        return self._wrote(wanted, answer)

    async def _patch(self, wanted: DesiredObject, body: Body, subresource: str = "") -> ApiResponse:
        encoded = msgspec.json.encode(body)
        return await self.send(
            "PATCH", wanted.resource, wanted.namespace, wanted.name, MERGE_PATCH, encoded, subresource=subresource
        )

    def _wrote(self, wanted: DesiredObject, answer: ApiResponse) -> bool:
        if answer.ok:
            now = asyncio.get_running_loop().time()
            self.there.wrote(wanted.key, wanted.shown, wanted.body, answer.body, now)
        return self.took(wanted.key, answer)

    def took(self, key: str, answer: ApiResponse) -> bool:
        """Whether the API server took a write; a refusal is noted."""
        if not answer.ok:
            body = answer.body[:300].decode(errors="replace")
            self._hooks.note("warning", "presentation_refused", object=key, status=answer.status, body=body)
        return answer.ok

    async def _create(self, wanted: DesiredObject, body: dict[str, Any]) -> ApiResponse:
        encoded = msgspec.json.encode(body)
        answer = await self.send("POST", wanted.resource, wanted.namespace, "", JSON, encoded)
        if answer.status == 404 and wanted.namespace == QUEUE_NAMESPACE:
            namespace = msgspec.json.encode(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": QUEUE_NAMESPACE}}
            )
            await self.send("POST", api.NAMESPACES, "", "", JSON, namespace)
            answer = await self.send("POST", wanted.resource, wanted.namespace, "", JSON, encoded)
        return answer

    async def event(self, note: EventNote, count: int = 0) -> None:
        """``count``: number of occurrences, for an Event that is kept up to date."""
        stamp = rfc3339(note.at // 1000 * 1000)
        namespace = note.ref.namespace or "default"
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": note.name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": note.api_version,
                "kind": note.ref.kind,
                "name": note.ref.name,
                "namespace": note.ref.namespace,
                "uid": note.ref.uid,
            },
            "type": note.type,
            "reason": note.reason,
            "message": note.message[:1024],
            "source": {"component": REPORTER},
            "reportingComponent": REPORTER,
            "reportingInstance": REPORTER,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": max(count, 1),
        }
        answer = await self.send("POST", api.EVENTS, namespace, "", JSON, msgspec.json.encode(body))
        if count and answer.status == 409:
            now = {key: body[key] for key in ("message", "reason", "lastTimestamp", "count")}
            await self.send("PATCH", api.EVENTS, namespace, note.name, MERGE_PATCH, msgspec.json.encode(now))

    async def _serves(self, resource: ApiResource) -> bool:
        """Whether the server has the resource; one that it does not have is asked for again later."""
        async with self._asking:
            now, key = asyncio.get_running_loop().time(), str(resource)
            if key in self._split_status:
                return True
            if now < self._absent.get(key, 0.0):
                return False
            names = await served_names(self._transport, resource)
            if resource.plural in names:
                self._split_status[key] = f"{resource.plural}/status" in names
                return True
            self._absent[key] = now + ABSENT_S
            return False

    async def has_split_status(self, resource: ApiResource) -> bool:
        """Whether the status of a resource is written apart; False for one that is not served."""
        return await self._serves(resource) and self._split_status[str(resource)]

    async def send(
        self,
        method: str,
        resource: ApiResource,
        namespace: str,
        name: str,
        content_type: str = JSON,
        body: bytes | None = None,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
    ) -> ApiResponse:
        """One request; raises ApiStatusError where it should be made again later."""
        self._tokens -= 1
        answer = await self._transport.request(
            method, resource.path(namespace, name, subresource), query=query, body=body, content_type=content_type
        )
        if answer.status in (401, 403, 429) or answer.status >= 500:
            raise ApiStatusError(answer.status, message_of(answer.body), answer.retry_after_s)
        return answer
