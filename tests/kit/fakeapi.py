"""A small API server on a real socket that misbehaves by script.

Serves one collection (list in pages, watch with history) and canned answers for other paths. Each request first takes
the next fault queued for its sort, `list` or `watch`; without one it is served properly.
"""

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from aiohttp import web

Object = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """A plain HTTP answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Close:
    """Hang up without an answer."""


@dataclass(frozen=True)
class Hang:
    """Take the request and never answer."""


@dataclass(frozen=True)
class Stream:
    """A 200 answer in these chunks, then the end: `eof` in order, `drop` by reset, `hang` never."""

    chunks: Sequence[bytes]
    end: Literal["eof", "drop", "hang"] = "eof"
    content_type: str = "application/json"


Fault = Answer | Close | Hang | Stream


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


def status(code: int, message: str, *, reason: str = "", retry_after_s: int | None = None) -> Object:
    """A Kubernetes Status."""
    details = {"retryAfterSeconds": retry_after_s} if retry_after_s is not None else {}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "message": message,
        "reason": reason,
        "details": details,
    }


def refusal(code: int, message: str, headers: Mapping[str, str] | None = None, **details: Any) -> Answer:
    """The answer a real server gives with that status."""
    return Answer(code, json.dumps(status(code, message, **details)).encode(), headers or {})


def event(kind: str, found: Object) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


class FakeApi:
    """`async with FakeApi("/api/v1/pods") as api`; requests go to `api.url`."""

    def __init__(self, collection: str = "/api/v1/pods") -> None:
        self.collection = collection
        self.url = ""
        self.seen: list[Seen] = []
        #: Answers for paths beyond the collection: (method, path) -> answer.
        self.canned: dict[tuple[str, str], Answer] = {}
        #: Whether the collection is served at all.
        self.served = True
        #: Token to demand; None takes everybody.
        self.token: str | None = None
        #: Faults still to come, per sort of request.
        self.faults: dict[str, deque[Fault]] = {"list": deque(), "watch": deque()}
        self._objects: dict[str, Object] = {}
        self._history: list[tuple[int, str, Object]] = []
        self._rv = 100
        self._uids = 0
        self._changed = asyncio.Condition()
        self._stopping = asyncio.Event()
        self._lists: dict[str, tuple[int, list[Object]]] = {}
        self._runner: web.ServerRunner | None = None

    async def __aenter__(self) -> "FakeApi":
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        async with self._changed:
            self._changed.notify_all()
        if self._runner is not None:
            await self._runner.cleanup()

    # ---- what a test does to the cluster

    async def put(self, name: str, **fields: Any) -> Object:
        """Create or change an object; returns it as stored."""
        held = self._objects.get(name)
        self._rv += 1
        if held is None:
            self._uids += 1
        uid = held["metadata"]["uid"] if held else f"uid-{self._uids}"
        meta = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(self._rv)}
        stored = {"kind": "Pod", "apiVersion": "v1", "metadata": meta, **fields}
        self._objects[name] = stored
        await self._note("MODIFIED" if held else "ADDED", stored)
        return stored

    async def remove(self, name: str) -> None:
        """Delete an object."""
        self._rv += 1
        gone = self._objects.pop(name)
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._rv)}}
        await self._note("DELETED", gone)

    async def bookmark(self) -> None:
        """Tell all watches how far they are."""
        await self._note("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(self._rv)}})

    def compact(self) -> None:
        """Forget the history: watches and pages from before get 410."""
        self._history.clear()
        self._lists.clear()

    @property
    def rv(self) -> str:
        """The newest resourceVersion."""
        return str(self._rv)

    def requests(self, sort: str) -> list[Seen]:
        """Requests for the collection of that sort, in the order of arrival."""
        return [seen for seen in self.seen if seen.path == self.collection and _sort(seen.query) == sort]

    # ---- serving

    async def _note(self, kind: str, found: Object) -> None:
        async with self._changed:
            self._history.append((self._rv, kind, found))
            self._changed.notify_all()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(Seen(request.method, request.path, dict(request.query), dict(request.headers), body))
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _plain(refusal(401, "Unauthorized", reason="Unauthorized"))
        if (request.method, request.path) in self.canned:
            return _plain(self.canned[request.method, request.path])
        if request.path != self.collection or not self.served:
            return _plain(Answer(404, b"404 page not found\n", {"Content-Type": "text/plain"}))
        sort = _sort(request.query)
        if self.faults[sort]:
            return await self._misbehave(request, self.faults[sort].popleft())
        return await self._watch(request) if sort == "watch" else _plain(self._list(request.query))

    async def _misbehave(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
        match fault:
            case Answer():
                return _plain(fault)
            case Close():
                _reset(request)
                return web.Response()
            case Hang():
                await self._stopping.wait()
                return web.Response()
            case Stream():
                response = web.StreamResponse(headers={"Content-Type": fault.content_type})
                response.enable_chunked_encoding()
                await response.prepare(request)
                for chunk in fault.chunks:
                    await response.write(chunk)
                if fault.end == "hang":
                    await self._stopping.wait()
                elif fault.end == "drop":
                    _reset(request)
                return response

    def _list(self, query: Mapping[str, str]) -> Answer:
        """One page of the state as it was when its first page was asked for."""
        token = query.get("continue", "")
        if token:
            if token not in self._lists:
                return refusal(410, "The provided continue parameter is too old", reason="Expired")
            rv, items = self._lists.pop(token)
        else:
            rv, items = self._rv, list(self._objects.values())
        limit = int(query.get("limit", 0)) or len(items)
        meta = {"resourceVersion": str(rv)}
        if items[limit:]:
            meta["continue"] = f"a+b/{rv}=={len(items) - limit}&x"
            self._lists[meta["continue"]] = (rv, items[limit:])
        found = {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items[:limit] or None}
        return Answer(200, json.dumps(found).encode())

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        position = int(request.query.get("resourceVersion", 0))
        if position < self._rv and not any(rv > position for rv, _, _ in self._history):
            return _plain(refusal(410, f"too old resource version: {position}", reason="Expired"))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        sent = next((i for i, (rv, _, _) in enumerate(self._history) if rv > position), len(self._history))
        while not self._stopping.is_set():
            pending = self._history[sent:]
            for _, kind, found in pending:
                await response.write(event(kind, found))
            sent += len(pending)
            async with self._changed:
                while len(self._history) == sent and not self._stopping.is_set():
                    await self._changed.wait()
        return response


def _sort(query: Mapping[str, str]) -> str:
    return "watch" if query.get("watch") in {"true", "1"} else "list"


def _plain(answer: Answer) -> web.Response:
    headers = {"Content-Type": "application/json", **answer.headers}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


def _reset(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
