"""The API server is away for a minute and forbids everything while it starts: an admission follows within 15 s."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from kit.shell import Cell, play, small_job, small_tree
from muster.model import api
from muster.ports import ApiResponse, ApiStatusError, ApiTransport, ApiUnreachableError

AWAY_S = 60.0
FIRST_S = 15.0
FORBIDDEN = b'{"kind": "Status", "message": "User cannot patch resource", "code": 403}'


class Outage:
    """What stands between the services and the API server."""

    def __init__(self) -> None:
        self.code: int | None = 200
        """What is answered; None: nothing."""
        self.changed = asyncio.Event()
        self.began = 0
        """How often it has started: a position of before is one that it has forgotten."""

    def begins(self, code: int | None) -> None:
        self.code = code
        self.began += code == 200
        self.changed.set()
        self.changed = asyncio.Event()


class Behind:
    """An ApiTransport behind an outage."""

    def __init__(self, inner: ApiTransport, outage: Outage) -> None:
        self._inner = inner
        self._outage = outage
        self._known: dict[str, int] = {}

    async def request(self, method: str, path: str, **given: Any) -> ApiResponse:
        if self._outage.code is None:
            raise ApiUnreachableError("connection refused")
        if self._outage.code != 200:
            return ApiResponse(self._outage.code, FORBIDDEN)
        return await self._inner.request(method, path, **given)

    async def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        if self._outage.code is None:
            raise ApiUnreachableError("connection refused")
        if self._outage.code != 200:
            raise ApiStatusError(self._outage.code, "forbidden")
        known, self._known[path] = self._known.get(path, self._outage.began), self._outage.began
        if known != self._outage.began:
            raise ApiStatusError(410, "too old resource version")
        lines = aiter(self._inner.watch(path, query=query, idle_limit_s=idle_limit_s))
        away = asyncio.ensure_future(self._outage.changed.wait())
        try:
            while True:
                line = asyncio.ensure_future(anext(lines))
                await asyncio.wait({line, away}, return_when=asyncio.FIRST_COMPLETED)
                if away.done():
                    line.cancel()
                    raise ApiUnreachableError("connection reset")
                try:
                    yield line.result()
                except StopAsyncIteration:
                    return
        finally:
            away.cancel()


class CellBehind(Cell):
    """``outage``: between its services and the API server."""

    outage: Outage

    def _transport(self) -> Any:
        return Behind(super()._transport(), self.outage)


@pytest.mark.parametrize(("code", "starts_s"), [(403, 8.0), (503, 8.0), (403, 40.0)])
def test_the_first_admission_follows_the_end_of_the_outage(code: int, starts_s: float) -> None:
    cell = CellBehind()

    async def scene(cell: CellBehind) -> None:
        cell.create(small_tree())
        cell.create(small_job("before"))
        await cell.until(lambda: resumed(cell, "before"), what="the first job is resumed")
        cell.outage.begins(None)
        await asyncio.sleep(AWAY_S)
        cell.outage.begins(code)
        cell.create(small_job("after"))
        await asyncio.sleep(starts_s)
        cell.outage.begins(200)
        await cell.until(lambda: resumed(cell, "after"), max(FIRST_S - starts_s, 7.0), "the second job is resumed")

    async def played(_: Cell) -> None:
        await scene(cell)

    cell.outage = Outage()
    play(cell, played)


def resumed(cell: Cell, name: str) -> bool:
    return not cell.request("GET", api.RAYJOBS, "video", name)["spec"]["suspend"]
