"""A Reflector on the real transport: it outlives every fault of the table and misses nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from random import Random

import pytest
import pytest_asyncio

from kit.fakeapi import Answer, Close, FakeApi, Fault, Stream, event, refusal, status
from muster.kube.config import connect
from muster.kube.deltas import Absent, Delete, Delta, ListSynced, Upsert
from muster.kube.reflector import Reflector
from muster.kube.sources import Explicit
from muster.kube.transport import KubeTransport
from muster.model.api import PODS


@pytest_asyncio.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi("/api/v1/pods") as server:
        yield server


@pytest_asyncio.fixture
async def transport(api: FakeApi) -> AsyncIterator[KubeTransport]:
    made = await connect(Explicit(api.url), environ={})
    yield made
    await made.close()


class Follower:
    """Reads deltas into a model; does not wait between tries but remembers for how long it should have."""

    def __init__(self, transport: KubeTransport) -> None:
        self.waits: list[float] = []
        self.words: list[str] = []
        self.live: dict[str, str] = {}
        self._deltas = Reflector(transport, PODS, page_size=2, rng=Random(1), sleep=self._sleep).deltas()

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    async def until(self, word: str) -> list[str]:
        """Read on until this was reported; everything reported on the way."""
        start = len(self.words)
        async with asyncio.timeout(60):
            while word not in self.words[start:]:
                self._take(await anext(self._deltas))
        return self.words[start:]

    def _take(self, delta: Delta) -> None:
        match delta:
            case Upsert(meta, _):
                self.live[meta.name] = meta.resource_version
                self.words.append(f"+{meta.name}")
            case Delete(meta, _):
                del self.live[meta.name]
                self.words.append(f"-{meta.name}")
            case ListSynced(_, relist):
                self.words.append("resynced" if relist else "synced")
            case Absent():
                self.words.append("absent")

    async def close(self) -> None:
        async with aclosing(self._deltas):
            pass


@pytest_asyncio.fixture
async def follower(transport: KubeTransport) -> AsyncIterator[Follower]:
    made = Follower(transport)
    yield made
    await made.close()


GONE = event("ERROR", status(410, "too old resource version", reason="Expired"))
PART = b'{"type":"ADDED","object":{"metadata":{"name":"part'


@pytest.mark.parametrize(
    ("faults", "waits_s"),
    [
        ([Close()] * 6, 0.0),  # three watches: aiohttp tries each of them twice
        ([Stream([])] * 3, 0.0),
        ([Answer(500)] * 3, 0.0),
        ([Answer(502, b"<html>\n</html>", {"Content-Type": "text/html"})] * 3, 0.0),
        ([refusal(429, "slow down", {"Retry-After": "7"})], 7.0),
        ([refusal(503, "starting", {"Retry-After": "5"})], 5.0),
        ([refusal(403, "forbidden")], 2.5),
        ([Stream([PART])] * 2, 0.0),
        ([Stream([PART], "drop")] * 2, 0.0),
        ([refusal(504, "Timeout: Too large resource version: 9, current: 7", retry_after_s=1)], 1.0),
    ],
    ids=["close", "eof", "e500", "html502", "r429", "r503", "forbidden", "trunc", "drop", "lag"],
)
async def test_watch_that_failed_goes_on_where_it_was(
    api: FakeApi, follower: Follower, faults: list[Fault], waits_s: float
) -> None:
    await api.put("a")
    api.faults["watch"].extend(faults)
    await follower.until("synced")
    await api.put("b")
    await api.remove("a")
    assert await follower.until("-a") == ["+b", "-a"]
    assert len(api.requests("list")) == 1
    assert follower.waits[0] >= waits_s
    assert all(wait > 0 for wait in follower.waits)


@pytest.mark.parametrize("fault", [Stream([GONE]), refusal(410, "too old resource version")], ids=["gone", "gone-http"])
async def test_expired_watch_lists_and_reports_the_difference(api: FakeApi, follower: Follower, fault: Fault) -> None:
    for name in ("same", "changed", "gone"):
        await api.put(name)
    api.faults["watch"].append(fault)
    await follower.until("synced")
    await api.remove("gone")
    await api.put("changed")
    await api.put("new")
    assert await follower.until("resynced") == ["+changed", "+new", "-gone", "resynced"]


async def test_server_that_forgot_is_listed_anew(api: FakeApi, follower: Follower) -> None:
    """The watch ends, and what happened until the next one has left the server's memory."""
    for name in ("same", "changed", "gone"):
        await api.put(name)
    api.faults["watch"].append(Stream([], "eof"))
    await follower.until("synced")
    await api.remove("gone")
    await api.put("changed")
    await api.put("new")
    api.compact()
    assert await follower.until("resynced") == ["+changed", "+new", "-gone", "resynced"]


async def test_unserved_resource_appears(api: FakeApi, follower: Follower) -> None:
    api.served = False
    await follower.until("absent")
    api.served = True
    await api.put("a")
    assert await follower.until("synced") == ["+a", "synced"]
    assert follower.waits == [60.0]


async def test_expired_page_restarts_the_list(api: FakeApi, follower: Follower) -> None:
    for name in "abcde":
        await api.put(name)
    await follower.until("+b")
    await api.remove("a")
    api.compact()
    assert await follower.until("synced") == ["+c", "+d", "+e", "-a", "synced"]
