"""The servers of NATS looked at all the time, and what each has of the log: slowly, and always.

Every server is asked how it is, over a connection of its own: where that is not allowed, only the looking ends. What
every copy of the log holds is read along and compared. The keeper, which may change streams, rebuilds a damaged copy
(``muster.runtime.logkeeping.healing``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from muster.bus.connection import Connection
from muster.bus.copies import CopyReader
from muster.bus.errors import ApiError, BusError, ForbiddenError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.servers import STATES, Server, ask_servers
from muster.runtime.logkeeping.comparing import compare
from muster.runtime.logkeeping.copies import Cause, Repair, ServerTrouble, judge, log_copies, repairs
from muster.runtime.logkeeping.healing import rebuild, restore
from muster.runtime.runners.hooks import Hooks

LOOK_S = 5.0
"""How often every server is asked; the keeper reports what two looks in a row find."""
UNANSWERED_LOOKS = 3
"""After so many without an answer the account is taken not to have the right to ask."""


class Guard:
    """Looks at the servers of a cell for as long as it is run. ``connect``: makes the connection it asks over."""

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], cell: str, hooks: Hooks, *, look_s: float = LOOK_S
    ) -> None:
        self._connect = connect
        self._cell = cell
        self._hooks = hooks
        self.look_s = look_s
        """Seconds from one look to the next."""
        self._before: Sequence[Server] = ()
        self._once: dict[tuple[Cause, str, str], ServerTrouble] = {}
        self._reader: CopyReader | None = None
        self._found: list[ServerTrouble] = []
        """What it has found so far."""
        self._compared: set[str] = set()
        """Generations that were compared in this turn."""
        self._changed: set[str] = set()
        """Streams with other copies than when the present comparison began."""
        self._differing: dict[str, list[ServerTrouble]] = {}
        """{stream: what its last comparison found}"""
        self._due: list[Repair] = []
        self._fewer: set[str] = set()
        self.troubles: list[ServerTrouble] = []
        """What is wrong and has lasted for two looks."""

    async def run(self) -> None:
        """Look until cancelled, or until it is clear that this user may not."""
        try:
            allowed = True
            while allowed:
                allowed = await self._ask()
                await asyncio.sleep(self.look_s)
        except ForbiddenError as err:
            self._hooks.note("error", "servers_not_asked", why=str(err))

    async def _ask(self) -> bool:
        """Look for as long as one connection lasts; False where no server answers on it. Raises ForbiddenError."""
        unanswered = 0
        try:
            async with contextlib.AsyncExitStack() as stack:
                connection = await self._connect()
                stack.push_async_callback(connection.close)
                js = JetStream(connection)
                while unanswered < UNANSWERED_LOOKS:
                    try:
                        await self._look(js, await ask_servers(connection))
                        unanswered = 0
                    except UnansweredError:
                        unanswered += connection.connected
                    except ApiError as err:
                        self._hooks.note("warning", "log_not_compared", why=str(err))
                    await asyncio.sleep(self.look_s)
        except ForbiddenError:
            raise
        except BusError as err:
            self._hooks.note("warning", "servers_not_asked", why=str(err))
            return True
        self._hooks.note("warning", "servers_not_asked", why=f"no server of NATS answers this user on {STATES}")
        return False

    async def repair(self, js: JetStream) -> None:
        """Rebuild the damaged copies that were found, and complete what was begun before. Never raises."""
        due, self._due = self._due, []
        try:
            for stream in sorted(self._fewer):
                if await restore(js, stream):
                    self._hooks.note("warning", "log_copies_restored", stream=stream)
            for damage in due:
                self._hooks.note("error", "log_copy_damaged", stream=damage.stream, servers=sorted(damage.damaged))
                done = await rebuild(js, damage)
                self._forget(damage.stream)
                self._hooks.note(
                    "warning" if done else "error", "log_copy_rebuilt", stream=damage.stream, of=damage.whole, done=done
                )
        except (BusError, UnansweredError) as err:
            self._hooks.note("error", "log_copy_not_rebuilt", why=str(err))

    def lost(self) -> list[ServerTrouble]:
        """What of the log is in no copy."""
        return [trouble for trouble in self.troubles if trouble.cause == "lost"]

    async def _look(self, js: JetStream, servers: Sequence[Server]) -> None:
        if len(servers) == 1 or any(server.leader for server in servers):
            await self._compare(js, servers)
        differing = [trouble for troubles in self._differing.values() for trouble in troubles]
        troubles = {trouble.key: trouble for trouble in (*judge(servers, self._before, self._cell), *differing)}
        lasting = [trouble for key, trouble in troubles.items() if key in self._once]
        known = {trouble.key for trouble in self.troubles}
        for trouble in lasting:
            if trouble.key not in known:
                self._tell("error", "nats_trouble", trouble)
        for trouble in self.troubles:
            if trouble.key not in troubles:
                self._tell("info", "nats_trouble_over", trouble)
        self.troubles, self._once = lasting, dict(troubles)
        lasts = {trouble.stream for trouble in lasting}
        self._due = [
            repair for repair in repairs(servers, self._before, self._cell, differing) if repair.stream in lasts
        ]
        self._fewer = {
            stream for stream, copies in log_copies(servers, self._cell).items() if len(copies) < len(servers)
        }
        self._before = servers

    def _tell(self, level: str, event: str, trouble: ServerTrouble) -> None:
        numbers = {"number": trouble.number, "seq": trouble.seq}
        told = {name: value for name, value in numbers.items() if value}
        self._hooks.note(
            level,  # type: ignore[arg-type]
            event,
            cause=trouble.cause,
            server=trouble.server,
            stream=trouble.stream,
            said=trouble.said,
            **told,
        )

    async def _compare(self, js: JetStream, servers: Sequence[Server]) -> None:
        """One step of reading along: a generation after the other, from its first message to its present end."""
        copies = log_copies(servers, self._cell)
        self._differing = {stream: troubles for stream, troubles in self._differing.items() if stream in copies}
        at = self._reader
        if at is not None and (at.stream in self._changed or at.servers != copies.get(at.stream, {}).keys()):
            await self._leave()
            at = None
        if at is None:
            stream = next((copied for copied in copies if copied not in self._compared), "")
            if not stream:
                self._compared.clear()
                return
            first = min((copy.first for copy in copies[stream].values() if copy.last), default=0)
            if not first:
                return
            at = self._reader = CopyReader(js, stream, copies[stream], first)
            self._found = []
            self._changed.clear()
        try:
            read = await at.step()
        except BusError:
            await self._leave()
            raise
        if at.stream in self._changed:
            return
        self._found += compare(at.stream, read.copies, read.first, read.last)
        if self._found:
            self._differing[at.stream] = self._found[:]
        if read.ended:
            if not self._found:
                self._differing.pop(at.stream, None)
            self._compared.add(at.stream)
            await self._leave()

    async def _leave(self) -> None:
        at, self._reader = self._reader, None
        if at is not None:
            with contextlib.suppress(BusError):
                await at.close()

    def _forget(self, stream: str) -> None:
        """What was found of a stream, for its copies are others now."""
        self._differing.pop(stream, None)
        self._once = {key: trouble for key, trouble in self._once.items() if trouble.stream != stream}
        self._changed.add(stream)
