"""An ApiTransport that answers by script, in memory, for tests in virtual time."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.ports import ApiResponse

Object = dict[str, Any]

#: What a watch does next: yield a line, let seconds pass, fail.
Step = bytes | float | Exception


@dataclass(frozen=True)
class Call:
    """A list or watch as it was asked for, with the loop's time."""

    sort: str
    at_s: float
    query: Mapping[str, str]


@dataclass
class ScriptedTransport:
    """Takes the next answer or watch from its queue; with none left it never answers."""

    lists: deque[ApiResponse | Exception] = field(default_factory=deque)
    watches: deque[Iterable[Step]] = field(default_factory=deque)
    calls: list[Call] = field(default_factory=list)
    #: Watches that were left before their end, or reached it.
    closed: int = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
    ) -> ApiResponse:
        self._note("list", query or {})
        if not self.lists:
            await asyncio.Event().wait()
        answer = self.lists.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        self._note("watch", query)
        try:
            if not self.watches:
                await asyncio.Event().wait()
            for step in self.watches.popleft():
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    yield step
        finally:
            self.closed += 1

    def times(self, sort: str) -> list[float]:
        """When each list or watch was asked for."""
        return [call.at_s for call in self.calls if call.sort == sort]

    def queries(self, sort: str) -> list[Mapping[str, str]]:
        """What each list or watch asked for."""
        return [call.query for call in self.calls if call.sort == sort]

    def _note(self, sort: str, query: Mapping[str, str]) -> None:
        self.calls.append(Call(sort, asyncio.get_running_loop().time(), dict(query)))


def obj(name: str, rv: int | str, *, uid: str = "", namespace: str = "default", **fields: Any) -> Object:
    """An object; its uid is `uid-<name>` unless given."""
    meta = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": str(rv)}
    return {"metadata": meta, **fields}


def page(rv: int | str, *items: Object, token: str = "") -> ApiResponse:
    """A list's answer; `token` asks for a further page."""
    return ApiResponse(
        200, json.dumps({"metadata": {"resourceVersion": str(rv), "continue": token}, "items": items}).encode()
    )


def line(kind: str, found: Object) -> bytes:
    """A watch event."""
    return json.dumps({"type": kind, "object": found}).encode()


def bookmark(rv: int | str) -> bytes:
    """A watch event that only says how far the stream is."""
    return line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(rv), "creationTimestamp": None}})


def error(code: int, message: str = "", reason: str = "", **details: Any) -> bytes:
    """An ERROR event."""
    return line("ERROR", {"kind": "Status", "code": code, "message": message, "reason": reason, "details": details})
