"""ApiTransport over the simulated server: the transport of services in simulations and tests.

Time is the event loop's, so the transport works unchanged under virtual time. All faults are drawn from the given
`FaultDraw`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from muster.fakecluster.apiserver.faults import FaultDraw, LineFault
from muster.fakecluster.apiserver.server import SimApiServer
from muster.fakecluster.apiserver.status import StatusError, expired
from muster.fakecluster.apiserver.store import encode, watch_line
from muster.fakecluster.apiserver.watches import WatchStream
from muster.model.api import JSON
from muster.ports import ApiResponse, ApiStatusError, ApiUnreachableError

BOOKMARK_INTERVAL_S = 60.0
"""How often a quiet watch gets a bookmark."""
WATCH_LIMIT_S = 3600.0
"""When the server ends a watch that set no limit itself."""
MAX_PENDING_LINES = 100_000
"""A watcher that is further behind is cut off."""


class SimTransport:
    """One client's connection to a simulated API server."""

    def __init__(self, server: SimApiServer, faults: FaultDraw | None = None) -> None:
        self._server = server
        self._faults = faults
        self._down_until = 0.0
        self._watches: dict[_PendingLines, None] = {}

    def break_connections(self, for_s: float = 0.0) -> None:
        """Break all watches, and refuse requests for a while: an outage, or a restart of the server."""
        self._down_until = asyncio.get_running_loop().time() + for_s
        for pending in list(self._watches):
            pending.break_off()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout_s: float = 10.0,
    ) -> ApiResponse:
        """One request, one answer. Raises ApiUnreachableError when a fault swallows either."""
        fault = self._faults.request() if self._faults is not None else None
        if fault is None:
            await asyncio.sleep(0)
            self._check_reachable(method, path)
            return self._server.handle(method, path, query, body, content_type)
        if fault.outage_s:
            self.break_connections(fault.outage_s)
        await asyncio.sleep(min(fault.delay_s, timeout_s))
        self._check_reachable(method, path)
        if fault.lose_request:
            raise ApiUnreachableError(f"cannot {method} {path}: simulated: the request was lost")
        if fault.status:
            refusal = StatusError(fault.status, "", f"simulated: answered with {fault.status}")
            return ApiResponse(fault.status, encode(refusal.body), fault.retry_after_s)
        answer = self._server.handle(method, path, query, body, content_type)
        if fault.lose_response or fault.delay_s > timeout_s:
            raise ApiUnreachableError(f"cannot {method} {path}: simulated: the answer was lost")
        return answer

    async def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        """The lines of a watch. Raises ApiStatusError, ApiUnreachableError as the port says."""
        await asyncio.sleep(0)
        self._check_reachable("GET", path)
        pending = _PendingLines()
        try:
            stream = self._server.watch(path, query, pending.add)
        except StatusError as err:
            raise ApiStatusError(err.code, err.message) from None
        self._watches[pending] = None
        lines = self._lines(path, stream, pending, float(query.get("timeoutSeconds") or WATCH_LIMIT_S), idle_limit_s)
        try:
            async for line in lines:
                yield line
        finally:
            await lines.aclose()
            stream.close()
            del self._watches[pending]

    async def _lines(
        self, path: str, stream: WatchStream, pending: _PendingLines, limit_s: float, idle_limit_s: float
    ) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        start = last = loop.time()
        end, bookmark = start + limit_s, start + BOOKMARK_INTERVAL_S
        while True:
            if pending.broken:
                raise ApiUnreachableError(f"cannot watch {path}: simulated: the connection broke")
            while pending.lines:
                last = loop.time()
                fault = self._faults.line() if self._faults is not None else ""
                if fault == "cut":
                    raise ApiUnreachableError(f"cannot watch {path}: simulated: the stream was cut off")
                for line in pending.taken(fault):
                    yield line
                if fault in ("end", "expire"):
                    return
            if stream.failed:
                return
            # What is due follows from the time that was waited for, not from the time it is then: a timer may fire
            # a little early, and a virtual clock does not go on by itself.
            until = min(end, bookmark, last + idle_limit_s)
            if await pending.wait(until):
                continue
            if until == end:
                return
            if until == bookmark:
                stream.bookmark()
                bookmark += BOOKMARK_INTERVAL_S
            else:
                raise ApiUnreachableError(f"cannot watch {path}: nothing came for {idle_limit_s:g} s")

    def _check_reachable(self, method: str, path: str) -> None:
        if asyncio.get_running_loop().time() < self._down_until:
            raise ApiUnreachableError(f"cannot {method} {path}: simulated: connection refused")


class _PendingLines:
    """Lines on their way to one watcher."""

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.broken = False
        self._arrived = asyncio.Event()

    def add(self, line: bytes) -> None:
        self.lines.append(line)
        if len(self.lines) > MAX_PENDING_LINES:
            self.broken = True
        self._arrived.set()

    def taken(self, fault: LineFault) -> list[bytes]:
        """The next line, or what a fault makes of it."""
        match fault:
            case "end":
                return []
            case "expire":
                return [watch_line("ERROR", expired("simulated: the version is too old").body)]
            case "repeat":
                return [self.lines[0], self.lines.popleft()]
            case "swap" if len(self.lines) > 1:
                self.lines[0], self.lines[1] = self.lines[1], self.lines[0]
        return [self.lines.popleft()]

    def break_off(self) -> None:
        self.broken = True
        self._arrived.set()

    async def wait(self, until: float) -> bool:
        """Return when a line has come or the connection has broken; False when it is ``until`` before that."""
        self._arrived.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True
