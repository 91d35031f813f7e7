"""The log as NATS stores it: bytes by raw requests, and what each server says of its own copy. Nothing of Muster."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

Object = dict[str, Any]
API = "$JS.MUSTER.API"
NAME = re.compile(r"MUSTER_LOG_main_(\d+)")
AT_ONCE = 16
ASK_S = 3.0


class Unanswered(Exception):
    """NATS gave no answer, or an error."""


class Loss:
    """A generation that ends before what was read of it. ``known``: the last sequence that was read."""

    def __init__(self, generation: int, end: int, known: int, at: float) -> None:
        self.generation = generation
        self.end = end
        self.known = known
        self.at = at
        self.named = False
        self.regained = False
        """The server holds again what was read: it was behind for a moment."""


class Stream:
    """Every (generation, sequence) that was ever read, and the digest of what stood there.

    ``tell(kind, text, what it is about)`` gets what is wrong; ``heard(generation, seq, subject, commit)`` each commit.
    """

    def __init__(
        self,
        url: str,
        seed: Path,
        tls: ssl.SSLContext,
        tell: Callable[[str, str, str], None],
        heard: Callable[[int, int, str, Object], None],
    ) -> None:
        self._url, self._seed, self._tls = url, seed, tls
        self._tell, self._heard = tell, heard
        self._nats: Client | None = None
        self.digests: dict[int, dict[int, bytes]] = {}
        self.losses: list[Loss] = []
        self.used_twice: dict[int, list[int]] = {}
        self.founded: dict[int, float] = {}
        """{generation: when it was first seen}"""
        self.first: dict[int, int] = {}
        self.sealed: set[int] = set()
        self.answered_at = 0.0
        self._swept = 0
        self.read = 0
        self.recent: deque[tuple[float, str]] = deque(maxlen=20_000)
        """(when it was read, stage) of the newest commits"""

    async def open(self) -> None:
        async def quiet(_: Exception) -> None:
            return None

        self._nats = await nats.connect(
            self._url.split(","),
            nkeys_seed=str(self._seed),
            inbox_prefix=b"_INBOX_admin",
            tls=self._tls,
            tls_hostname="127.0.0.1",
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.5,
            error_cb=quiet,
            allow_reconnect=True,
        )

    async def close(self) -> None:
        if self._nats is not None:
            await self._nats.close()

    async def ask(self, what: str, body: Object | None = None) -> Object:
        """A request of the JetStream API. Raises Unanswered."""
        assert self._nats is not None
        try:
            message = await self._nats.request(f"{API}.{what}", json.dumps(body or {}).encode(), timeout=ASK_S)
        except (NatsError, OSError, TimeoutError) as err:
            raise Unanswered(repr(err)) from err
        said: Object = json.loads(message.data)
        if "error" in said:
            raise Unanswered(f"{said['error'].get('code')} {said['error'].get('description')}")
        return said

    async def generations(self) -> list[int]:
        said = await self.ask("STREAM.NAMES", {"subject": "muster.log.main.>"})
        found = [NAME.fullmatch(name) for name in said.get("streams") or ()]
        return sorted(int(match[1]) for match in found if match)

    async def newest(self) -> str:
        """The name of the stream of the newest generation that was seen."""
        return self.name(max(self.digests, default=1))

    def name(self, generation: int) -> str:
        return f"MUSTER_LOG_main_{generation}"

    async def look(self) -> None:
        """Read what is new. Raises Unanswered."""
        for generation in await self.generations():
            if generation not in self.founded:
                self.founded[generation] = time.monotonic()
            await self._look_at(generation)
        self.answered_at = time.monotonic()

    async def _look_at(self, generation: int) -> None:
        info = await self.ask(f"STREAM.INFO.{self.name(generation)}")
        state = info["state"]
        if info["config"].get("sealed"):
            self.sealed.add(generation)
        known = self.digests.setdefault(generation, {})
        first, last, top = state["first_seq"], state["last_seq"], max(known, default=0)
        if state["messages"] and generation not in self.first:
            self.first[generation] = first
        lost = self._open_loss(generation)
        if last < top and lost is None:
            self.losses.append(Loss(generation, last, top, time.monotonic()))
        if lost is not None:
            # Whatever stands now where something else was read is a sequence used twice.
            same = await self._verify(generation, range(lost.end + 1, min(last, lost.known) + 1))
            lost.regained = lost.regained or (same and last >= lost.known)
        await self._take(generation, range(max(first, top + 1), last + 1))

    async def _take(self, generation: int, seqs: Iterable[int]) -> None:
        for chunk in _chunks(seqs):
            for seq, found in await self._get(generation, chunk):
                if found is None:
                    continue
                self.digests[generation][seq] = _digest(found)
                self.read += 1
                subject = found["subject"]
                self.recent.append((time.monotonic(), subject.split(".")[4]))
                try:
                    commit = json.loads(base64.b64decode(found.get("data", "")))
                except ValueError:
                    commit = {}
                self._heard(generation, seq, subject, commit)

    async def _get(self, generation: int, seqs: list[int]) -> list[tuple[int, Object | None]]:
        async def one(seq: int) -> tuple[int, Object | None]:
            try:
                said = await self.ask(f"STREAM.MSG.GET.MUSTER_LOG_main_{generation}", {"seq": seq})
            except Unanswered as err:
                if str(err).startswith("404"):
                    return seq, None
                raise
            return seq, said["message"]

        return [*await asyncio.gather(*(one(seq) for seq in seqs))]

    def _open_loss(self, generation: int) -> Loss | None:
        """What is missing of a generation, and was not regained."""
        return next((each for each in self.losses if each.generation == generation and not each.regained), None)

    async def sweep(self, count: int = 64) -> None:
        """Read some of what was read once more, the next ones each time. Raises Unanswered."""
        generation = max(self.digests, default=0)
        known = self.digests.get(generation, {})
        top = max(known, default=0)
        if top:
            first = min(known)
            at = first + self._swept % (top - first + 1)
            self._swept += count
            await self._verify(generation, range(at, min(at + count, top + 1)))

    async def verify(self, most: int = 400) -> None:
        """Read the newest of what was read once more, and see that it is the same. Raises Unanswered."""
        for generation in await self.generations():
            known = sorted(self.digests.get(generation, ()))
            await self._verify(generation, known[-most:])

    async def _verify(self, generation: int, seqs: Iterable[int]) -> bool:
        """Whether each of these is what it was."""
        known = self.digests[generation]
        missing: list[int] = []
        other: list[int] = []
        for chunk in _chunks(seqs):
            for seq, found in await self._get(generation, chunk):
                if seq not in known:
                    continue
                if found is None:
                    missing.append(seq)
                elif _digest(found) != known[seq]:
                    other.append(seq)
        if other:
            used = self.used_twice.setdefault(generation, [])
            used += [seq for seq in other if seq not in used]
            text = f"generation {generation}: from {used[0]} on other commits stand where others were read"
            self._tell("sequence used twice", text, str(generation))
        if missing and self._open_loss(generation) is None:
            self.losses.append(Loss(generation, missing[0] - 1, missing[-1], time.monotonic()))
        return not missing and not other

    def rates(self, within_s: float = 60.0) -> Counter[str]:
        """Commits of each stage that were read within so many seconds."""
        since = time.monotonic() - within_s
        return Counter(stage for at, stage in self.recent if at >= since)


def _digest(message: Object) -> bytes:
    return hashlib.sha256(f"{message['subject']}\n{message.get('data', '')}".encode()).digest()


def _chunks(seqs: Iterable[int]) -> Iterable[list[int]]:
    found = [*seqs]
    return (found[at : at + AT_ONCE] for at in range(0, len(found), AT_ONCE))
