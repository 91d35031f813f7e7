"""What is wrong with the servers of NATS and with their copies of the log: a judgement of their own reports.

Pure. A generation of the log keeps everything (``muster.bus.streams``), so a copy from which something is missing is
damaged, whatever nats-server says of it: one that lost the end of a file calls itself current.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from muster.bus.servers import Copy, Server
from muster.events import subjects

Cause = Literal[
    "down",
    "jetstream_off",
    "unwritable",
    "nearly_full",
    "no_quorum",
    "no_leader",
    "unhealthy",
    "behind",
    "hole",
    "differs",
    "lost",
    "absent",
    "few",
]
NEARLY_FULL_PERCENT = 85
COPIES = 3
"""On so many servers a stream is, where there are as many."""
DAMAGED: frozenset[Cause] = frozenset({"hole", "differs"})
"""Causes for which a copy is rebuilt from another one."""


class ServerTrouble(Struct, frozen=True):
    """One thing that is wrong. ``server``: empty where it is not about one; ``stream``: of a copy.

    ``number``: messages that are missing or that it is behind, percent, or how many servers it takes or is on; ``seq``:
    the first sequence that differs; ``said``: words of the server.
    """

    cause: Cause
    server: str = ""
    stream: str = ""
    number: int = 0
    seq: int = 0
    said: str = ""

    @property
    def key(self) -> tuple[Cause, str, str]:
        """What stays the same as long as it lasts."""
        return self.cause, self.server, self.stream


class Repair(Struct, frozen=True):
    """The copies of a stream that are damaged, and a server that has a whole one."""

    stream: str
    damaged: frozenset[str]
    whole: str


def members(servers: Sequence[Server]) -> set[str]:
    """The names of all servers that there are, as far as those that are up know."""
    return {name for server in servers for name in (server.name, *server.peers)}


def judge(servers: Sequence[Server], before: Sequence[Server], cell: str) -> list[ServerTrouble]:
    """What is wrong now. ``before``: what they said a moment ago, so that what passes by itself is not told."""
    return [
        *_of_servers(servers, before),
        *_of_all(servers),
        *_of_copies(servers, before, cell),
        *(_of_streams(servers, before) if all_up(servers) else ()),
    ]


def log_copies(servers: Sequence[Server], cell: str) -> dict[str, dict[str, Copy]]:
    """{each generation of the log that a server has, oldest first: {server: its copy}}"""
    by_stream: dict[str, dict[str, Copy]] = {}
    for server in servers:
        for stream, copy in server.copies.items():
            if subjects.log_generation(cell, stream) is not None:
                by_stream.setdefault(stream, {})[server.name] = copy
    return dict(sorted(by_stream.items(), key=lambda item: subjects.log_generation(cell, item[0]) or 0))


def all_up(servers: Sequence[Server]) -> bool:
    """Whether every server that there is says how it is, and has JetStream."""
    return len(members(servers)) == len(servers) and all(server.jetstream for server in servers)


def repairs(
    servers: Sequence[Server], before: Sequence[Server], cell: str, differing: Sequence[ServerTrouble]
) -> list[Repair]:
    """Which copies are to be rebuilt. None as long as a server is missing: each may be needed for a quorum."""
    if not all_up(servers):
        return []
    troubles = [*_of_copies(servers, before, cell), *differing]
    due = []
    for stream, copies in log_copies(servers, cell).items():
        damaged = frozenset(
            trouble.server for trouble in troubles if trouble.stream == stream and trouble.cause in DAMAGED
        )
        damaged &= copies.keys()
        behind = {trouble.server for trouble in troubles if trouble.stream == stream and trouble.cause == "behind"}
        whole = sorted(copies.keys() - damaged - behind, key=lambda name: (name != copies[name].leader, name))
        if damaged and whole:
            due.append(Repair(stream, damaged, whole[0]))
    return due


def _of_servers(servers: Sequence[Server], before: Sequence[Server]) -> Iterator[ServerTrouble]:
    for name in sorted(members([*servers, *before]) - {server.name for server in servers}):
        yield ServerTrouble("down", name)
    complained = {server.name for server in before if server.complaint}
    for server in servers:
        if not server.jetstream:
            yield ServerTrouble("jetstream_off", server.name)
        elif "write error" in server.complaint:
            yield ServerTrouble("unwritable", server.name, said=server.complaint)
        elif server.limit and server.used * 100 >= server.limit * NEARLY_FULL_PERCENT:
            yield ServerTrouble("nearly_full", server.name, number=server.used * 100 // server.limit)
        elif server.complaint and server.name in complained and len(members(servers)) == len(servers):
            yield ServerTrouble("unhealthy", server.name, said=server.complaint)


def _of_all(servers: Sequence[Server]) -> Iterator[ServerTrouble]:
    """What concerns JetStream as a whole: without a majority nothing is stored, and nothing answers."""
    count, working = len(members(servers)), [server for server in servers if server.jetstream]
    if count > 1 and len(working) * 2 <= count:
        yield ServerTrouble("no_quorum", number=count // 2 + 1)
    elif count > 1 and not any(server.leader for server in working):
        yield ServerTrouble("no_leader")


def _of_copies(servers: Sequence[Server], before: Sequence[Server], cell: str) -> Iterator[ServerTrouble]:
    earlier = log_copies(before, cell)
    complete = all_up(servers)
    for stream, copies in log_copies(servers, cell).items():
        started = {name: copy for name, copy in copies.items() if copy.last}
        lacks = {name: number for name, number in _lacks(started).items() if number}
        for name, number in lacks.items():
            yield ServerTrouble("hole", name, stream, number=number)
        if complete and started and len(lacks) == len(started):
            yield ServerTrouble("lost", "", stream, number=min(lacks.values()))
        reached = max((copy.last for copy in earlier.get(stream, {}).values()), default=0)
        for name, copy in copies.items():
            if copy.last < reached:
                yield ServerTrouble("behind", name, stream, number=reached - copy.last)
        if len(copies) > 1 and complete and not any(copy.leader for copy in copies.values()):
            yield ServerTrouble("no_leader", "", stream)


def _of_streams(servers: Sequence[Server], before: Sequence[Server]) -> Iterator[ServerTrouble]:
    """The streams that a server should have and has not, by the word of their leaders; those on too few servers."""
    earlier = {server.name: server.copies for server in before}
    for leading in servers:
        for stream, copy in leading.copies.items():
            if copy.leader != leading.name or stream not in earlier.get(leading.name, {}):
                continue
            if 1 + len(copy.others) < min(COPIES, len(servers)):
                yield ServerTrouble("few", "", stream, number=1 + len(copy.others))
            for server in servers:
                missing = stream not in server.copies and stream not in earlier.get(server.name, {})
                if server.name in copy.others and missing:
                    yield ServerTrouble("absent", server.name, stream)


def _lacks(copies: Mapping[str, Copy]) -> dict[str, int]:
    """{server: how many messages its copy lacks, from the first that any copy has up to its own last}"""
    first = min((copy.first for copy in copies.values()), default=0)
    return {name: copy.missing + copy.first - first for name, copy in copies.items()}
