"""The publisher: copies public events out of the log to the public stream, in order, one per message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Protocol

from muster.bus.beat import beat
from muster.bus.errors import BusError, UnansweredError
from muster.bus.public import Published
from muster.core.stage import Folder
from muster.events.envelope import Stored
from muster.events.public import PublicEvent, PublicWorkloadEvent, ce_id, ce_type, parse_ce_id, schema_address
from muster.events.registry import encode
from muster.events.subjects import public_subject
from muster.ports import Lease, Log, LogLostError, Snapshot, Snapshots
from muster.runtime.logkeeping.snapshotting import read_state, restore_before
from muster.runtime.runners.hooks import Hooks, NoHooks
from muster.runtime.runners.leasing import KeptLease
from muster.telemetry.traceids import traceparent
from muster.told.readmodel.model import ReadModel
from muster.told.views.publication import facets_in, public_event

KEEP_S = 5.0
"""How often it is written down how far it has published."""


class Outlet(Protocol):
    """Where public events go (``bus.public.PublicPublisher``)."""

    async def resume(self) -> Published: ...

    async def publish(self, subject: str, headers: dict[str, str], body: bytes, digest: str = "") -> None: ...

    async def settle(self) -> str: ...

    async def keep(self) -> None: ...


class Publisher:
    """At least once, exactly once after de-duplication by ``ce-id``: goes on after what is known to be stored."""

    def __init__(
        self,
        *,
        log: Log,
        outlet: Outlet,
        lease: Lease,
        snapshots: Snapshots | None = None,
        base: Callable[[], Awaitable[Sequence[Snapshot]]] | None = None,
        testify: Callable[[int, bytes], Awaitable[object]] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """``snapshots``: of the read model, with the jobs queued before a restart; ``base``: the states at the
        beginning of a log without its first generations; ``testify``: write down that the log was read up to a commit,
        by its sequence and digest.
        """
        self._log = log
        self._outlet = outlet
        self.lease = KeptLease(lease, "the publisher")
        self._hooks: Hooks = hooks if hooks is not None else NoHooks()
        self.caught_up = False
        self.published = 0
        self._sent_since: float | None = None
        """Since when (time of the loop) something waits to be stored."""
        self._snapshots = snapshots
        self._base = base
        self._testify = testify
        self._folder = Folder(ReadModel())
        self.state = ReadModel().initial()
        self.unfolded_since = 0
        """When the first commit was stored (ms) that was read and is not published yet; 0 where there is none."""

    async def run(self) -> None:
        """Publish until cancelled; a standby while another publisher holds the lease."""
        self._hooks.role("standby", 0)
        await self.lease.acquire()
        self._hooks.role("leading", 0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.lease.keep())
            tasks.create_task(self._keep())
            await self._publish()

    async def _keep(self) -> None:
        while True:
            await beat(KEEP_S)
            try:
                await self._outlet.keep()
            except (BusError, UnansweredError) as err:
                self._hooks.note("warning", "published_not_kept", why=str(err))

    def waits_s(self) -> float:
        """For how many seconds a public event has been waiting to be stored; 0 where none is."""
        return 0.0 if self._sent_since is None else asyncio.get_running_loop().time() - self._sent_since

    async def stop(self) -> None:
        """Write down how far it has published, and give up the lease."""
        with suppress(BusError, UnansweredError):
            await self._outlet.keep()
        await self.lease.release()

    async def _publish(self) -> None:
        published = await self._outlet.resume()
        settled, identity = parse_ce_id(published.settled), self._log.identity
        newest = parse_ce_id(published.newest)
        if newest is not None and published.digest and newest.generation == identity.generation:
            await self._prove(newest.sequence, bytes.fromhex(published.digest))
        after, skip = identity.origin - 1, -1  # What was deleted unpublished is gone.
        # Generations that succeed each other are read as one log; what a lost one held is gone with it.
        known = {identity.generation, *(generation.generation for generation in identity.earlier)}
        if settled is not None and settled.generation in known and settled.sequence >= identity.origin:
            after, skip = settled.sequence - 1, settled.index
        async with aclosing(self._log.follow(await self._recall(after))) as stream:
            async for batch in stream:
                if not batch:
                    self.caught_up = True
                for stored in batch:
                    self.unfolded_since = stored.stored_at
                    if stored.seq <= after:
                        self._folder.fold(self.state, stored)
                    else:
                        await self._publish_commit(stored, skip if stored.seq == after + 1 else -1)
                if batch:
                    self._hooks.folded(batch)
                    self._sent_since = asyncio.get_running_loop().time()
                    await self._outlet.settle()
                    self._sent_since = None
                self.unfolded_since = 0

    async def _prove(self, seq: int, digest: bytes) -> None:
        """Raise LogLostError unless the log holds everything that outsiders have read. Outsiders may have read more
        than was written down; the missing part is then written down.
        """
        try:
            await self._log.prove(seq, digest)
        except LogLostError:
            if self._testify is not None:
                await self._testify(seq, digest)
            raise

    async def _recall(self, after: int) -> int:
        """Know the jobs as of a sequence, or as late before it as a snapshot allows: that is returned."""
        if not after or self._snapshots is None:
            return 0
        fresh = ReadModel().initial()
        state = await restore_before(self._snapshots, self._log.identity, "readmodel", "0", fresh, after)
        for base in await self._base() if state is None and self._base is not None else ():
            if base.stage == "readmodel":
                state, _ = read_state(base, fresh)
        if state is None:
            return 0
        self.state = state
        return state.seq

    async def _publish_commit(self, stored: Stored, skip: int) -> None:
        """Publish the events of a commit with an index over ``skip``, with the earlier states of the commit's jobs."""
        identity = self._log.identity
        generation, known = identity.generation_of(stored.seq), facets_in(self.state, stored)
        stored = self._folder.fold(self.state, stored)
        for index, event in enumerate(stored.commit.events):
            if index > skip:
                public = public_event(identity.cell, generation, stored.seq, index, self.state.now, event, known)
                if public is not None:
                    await self._send(public, stored.trace)

    async def _send(self, event: PublicEvent, trace: str) -> None:
        if isinstance(event, PublicWorkloadEvent):
            namespace, name = event.workload.namespace, event.workload.name
        else:
            namespace, name = getattr(event, "namespace", ""), getattr(event, "name", "")
        tag = str(type(event).__struct_config__.tag)
        headers = {
            "ce-specversion": "1.0",
            "ce-id": ce_id(event.cell, event.position),
            "ce-source": f"/muster/{event.cell}",
            "ce-type": ce_type(event),
            "ce-time": event.at,
            "ce-subject": f"{namespace}/{name}",
            "ce-datacontenttype": "application/json",
            "ce-dataschema": schema_address(tag),
        }
        if trace:
            uid = event.workload.uid if isinstance(event, PublicWorkloadEvent) else ""
            at = event.position
            headers["traceparent"] = traceparent(uid, at.generation, at.sequence) if uid else trace
        self._sent_since = asyncio.get_running_loop().time()
        await self._outlet.publish(
            public_subject(event.cell, tag, namespace, name), headers, encode(event), self.state.docket.last.hex()
        )
        self._sent_since = None
        self.published += 1
        self._hooks.published(event)
