"""Three servers of NATS under the log in memory: they switch JetStream off, deny a right, and one copy has a hole.

What a process then sees is what the bus makes of it: nothing is answered, a denied right ends the process, a reader
that misses a message asks other servers, and what one server alone is asked for is asked of the leader.
"""

from __future__ import annotations

import asyncio
from random import Random

from muster.bus.errors import ForbiddenError
from muster.bus.reader import GAPS
from muster.bus.servers import Copy, Server
from muster.events import subjects
from muster.ports import LogGapError, LogIdentity
from muster.runtime.logkeeping.copies import Repair, repairs

SERVERS = ("nats-0", "nats-1", "nats-2")
ASK_S = 0.25
LEASE_TRY_S = 3.0


class Broker:
    """The servers of one cell. Without a fault nothing of it is noticed."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = Random(seed)
        self.on = True
        """Whether a quorum of the servers has JetStream."""
        self.denied: set[tuple[str, str]] = set()
        """{(append, lease or snapshots; stage)} that the accounts do not allow"""
        self.leader = SERVERS[0]
        self.holes: dict[tuple[str, str], frozenset[int]] = {}
        """{(log, server): the sequences that its copy lacks}"""
        self.rebuilt: list[Repair] = []
        self._before: list[Server] = []

    async def answers(self, right: str = "", stage: str = "") -> None:
        """Wait until JetStream is on. Raises ForbiddenError."""
        while not self.on:
            await asyncio.sleep(ASK_S)
        if (right, stage) in self.denied:
            raise ForbiddenError(f"NATS denies {right} of {stage}", right)

    async def answers_lease(self, stage: str) -> bool:
        """Whether it answers as long as a lease waits. Raises ForbiddenError."""
        if not self.on:
            await asyncio.sleep(LEASE_TRY_S)
        elif ("lease", stage) in self.denied:
            raise ForbiddenError(f"NATS denies the lease of {stage}", "lease")
        return self.on

    def lacks(self, identity: LogIdentity, server: str) -> frozenset[int]:
        """The sequences of a log that the copy of a server lacks."""
        return self.holes.get((identity.log_id, server), frozenset())

    async def reads(self, identity: LogIdentity, after: int, upto: int) -> int:
        """How far a reader gets that begins behind a sequence: up to the next hole of a copy that chance chooses.

        Raises LogGapError.
        """
        for _ in range(GAPS + 1):
            server = self.rng.choice(SERVERS)
            hole = min((seq for seq in self.lacks(identity, server) if after < seq <= upto), default=upto + 1)
            if hole > after + 1:
                return hole - 1
            await asyncio.sleep(ASK_S)
        raise LogGapError(f"log has no commit {after + 1}: stop")

    def tear(self, identity: LogIdentity, first: int, last: int) -> str:
        """A server comes back without some commits, and leads from then on; its name."""
        server = self.rng.choice(SERVERS)
        self.holes[identity.log_id, server] = frozenset(range(first, last + 1))
        self.leader = server
        return server

    def servers(self, identity: LogIdentity, end: int) -> list[Server]:
        """What each says of itself."""
        stream = subjects.log_stream(identity.cell, identity.generation)
        found: list[Server] = []
        for name in SERVERS:
            copy = Copy(identity.first, end, end - identity.first + 1 - len(self.lacks(identity, name)), self.leader)
            peers = tuple(each for each in SERVERS if each != name)
            found.append(Server(name, jetstream=self.on, leader=self.leader, peers=peers, copies={stream: copy}))
        return found

    def keep(self, identity: LogIdentity, end: int) -> None:
        """As the keeper does at each look: damaged copies are made anew from the one that it names."""
        now = self.servers(identity, end)
        for repair in repairs(now, self._before, identity.cell, []):
            for server in repair.damaged:
                self.holes[identity.log_id, server] = self.lacks(identity, repair.whole)
            self.leader = repair.whole
            self.rebuilt.append(repair)
        self._before = now

    def torn(self) -> dict[tuple[str, str], frozenset[int]]:
        return {copy: hole for copy, hole in self.holes.items() if hole}
