"""A damaged copy of a stream rebuilt: its server is taken out of the stream, and joins again with nothing.

JetStream refuses to remove a server from a stream where there is no other to take its place
(``STREAM.PEER.REMOVE``: 10075), as among three servers with a stream on each. But it keeps the leader when a stream is
to be on fewer servers, and fills a server that comes to it from the leader. So the lead goes to a whole copy, the
number of copies goes down until the damaged ones are gone, and up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from muster.bus.errors import BusError
from muster.bus.jetstream import GrowingPause, JetStream, StreamInfo
from muster.runtime.logkeeping.copies import Repair

WANTED = "muster.dev/copies"
"""In the metadata of a stream whose copies are fewer for the moment: on how many servers it is to be."""
STEP_S = 20.0
"""How long one change of the members may take: nothing is copied for it."""


async def rebuild(js: JetStream, repair: Repair) -> bool:
    """Whether every damaged copy was taken out. Either way the stream is to be on as many servers as before.

    Raises BusError, also for a step that takes longer than STEP_S; :func:`restore` completes what was begun.
    """
    stream, damaged = repair.stream, repair.damaged
    info = await _info(js, stream)
    if info.cluster.leader in damaged:
        await js.ask(f"STREAM.LEADER.STEPDOWN.{stream}", {"placement": {"preferred": repair.whole}})
        info = await _until(js, stream, lambda info: info.cluster.leader not in ("", *damaged))
    wanted = int(info.config["num_replicas"])
    metadata = {**(info.config.get("metadata") or {}), WANTED: str(wanted)}
    for count in range(wanted - 1, 0, -1):
        if info.cluster.leader in damaged:
            break
        await _update(js, {**info.config, "num_replicas": count, "metadata": metadata})
        info = await _until(js, stream, lambda info, count=count: len(info.cluster.members) == count)  # type: ignore[misc]
        if damaged.isdisjoint(info.cluster.members):
            break
    await restore(js, stream)
    return damaged.isdisjoint(info.cluster.members)


async def restore(js: JetStream, stream: str) -> bool:
    """Have a stream on as many servers again as it was before a repair, where one was begun. Raises BusError."""
    info = await js.info(stream, checks=1)
    metadata = dict((info.config.get("metadata") or {}) if info is not None else {})
    wanted = metadata.pop(WANTED, "")
    if info is None or not wanted.isdigit():
        return False
    await _update(js, {**info.config, "num_replicas": int(wanted), "metadata": metadata})
    return True


async def _update(js: JetStream, config: Mapping[str, Any]) -> None:
    await js.ask(f"STREAM.UPDATE.{config['name']}", config)


async def _info(js: JetStream, stream: str) -> StreamInfo:
    info = await js.info(stream, checks=1)
    if info is None:
        raise BusError(f"stream {stream} is gone")
    return info


async def _until(js: JetStream, stream: str, settled: Callable[[StreamInfo], bool]) -> StreamInfo:
    """The stream, once it is as it was asked to be."""
    backoff = GrowingPause()
    info = await _info(js, stream)
    try:
        async with asyncio.timeout(STEP_S):
            while not settled(info):
                await backoff.pause()
                info = await _info(js, stream)
    except TimeoutError:
        on = ", ".join(sorted(info.cluster.members)) or "no server"
        raise BusError(f"stream {stream} did not change its members within {STEP_S:g} s: it is on {on}") from None
    return info
