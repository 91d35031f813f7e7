"""The two forms of NATS that benches of the log have side by side: one server, and three as in production."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from kit.threeservers import three_servers
from muster.bus.server import EmbeddedServer
from muster.bus.streams import Limits


class Form(NamedTuple):
    """A NATS that runs."""

    urls: list[str]
    pids: list[int | None]
    limits: Limits


@asynccontextmanager
async def one_server() -> AsyncIterator[Form]:
    """One server that lets the system write its store to disk."""
    async with EmbeddedServer() as server:
        yield Form([server.url], [server.pid], Limits())


@asynccontextmanager
async def production() -> AsyncIterator[Form]:
    """Three servers, each stream on all of them, and written through before it is acknowledged."""
    async with three_servers(sync_interval="always") as servers:
        yield Form([each.url for each in servers], [each.pid for each in servers], Limits(replicas=3))


def together(one: Mapping[str, float], three: Mapping[str, float]) -> dict[str, float]:
    """The figures of both, each of production behind its own of one server."""
    found: dict[str, float] = {}
    for figure, value in one.items():
        found[figure] = value
        found[f"three servers: {figure}"] = three[figure]
    return found
