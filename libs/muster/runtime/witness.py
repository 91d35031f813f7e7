"""The witness outside NATS: how far the log of a cell has come, written on the API server.

Whatever NATS says of itself goes back with NATS: pointer, marks, snapshots and leases lie on the servers that have the
log. So the processes that reach the API server keep there a record of the cell, Lease ``muster-log-CELL`` in Muster's
own namespace: log, generation, sequence and digest of the newest commit that they know. A log that ends before it, has
another commit there, or is of an earlier generation, is lost: no process builds on it, and the keeper founds the next
generation behind the one that the record names.

No process builds on a log before this was compared: a process that reaches the API server compares by itself, all
others wait until one of those vouches for the log (:mod:`muster.bus.vouching`). The record names the end of a log,
and of a new generation its first commit, before anything but that is appended to it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from muster.bus.errors import BusError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.reader import message_at
from muster.bus.vouching import REACHING, Vouches
from muster.core.objects.meta import PREFIX
from muster.events.envelope import genesis_of
from muster.model.api import LEASES, NAMESPACES
from muster.ports import ApiResponse, ApiTransport, ApiUnreachableError, Clock, Log, LogIdentity, LogLostError
from muster.runtime.clusterlease import NAMESPACE, REQUEST_S, RETRIES, holder_of
from muster.runtime.pairing import record_set_back
from muster.telemetry.logs import Logger

VOUCH_S = 2.0
"""How often a process says that the log may be built on: so long waits one that starts."""
RECORD_S = 5.0
"""How often the record is brought up to date while the log grows, and compared."""
QUIET_S = 60.0
"""How often it is renewed while the log does not grow."""


class WitnessedCommit(Struct, frozen=True):
    """The newest commit of a cell that is known; ``digest`` in hexadecimal."""

    log_id: str
    generation: int
    seq: int
    digest: str

    @classmethod
    def of(cls, identity: LogIdentity, known: tuple[int, bytes]) -> WitnessedCommit:
        return cls(identity.log_id, identity.generation, known[0], known[1].hex())


class RecordRefusedError(Exception):
    """The API server does not let the record be read or written."""


def name_of(cell: str) -> str:
    """The Lease with the record of a cell."""
    return f"muster-log-{cell}"


class CellRecord:
    """The record of a cell on an API server."""

    def __init__(self, transport: ApiTransport, cell: str, clock: Clock) -> None:
        self._transport, self._cell, self._clock = transport, cell, clock
        self._path = LEASES.path(NAMESPACE, name_of(cell))
        self._written = float("-inf")
        """When (time of the loop) it was written by this process."""

    async def read(self) -> WitnessedCommit | None:
        """What it says; None for nothing. Raises ApiUnreachableError, RecordRefusedError."""
        return _read((await self._get() or {}).get("metadata", {}).get("annotations") or {})

    async def keep(self, identity: LogIdentity, known: tuple[int, bytes]) -> WitnessedCommit | None:
        """Make the record name a commit, unless the record has an equal or later one; returns the record's commit.

        None after too many conflicts. Raises ApiUnreachableError, RecordRefusedError.
        """
        said = WitnessedCommit.of(identity, known)
        for _ in range(RETRIES):
            body = await self._get()
            found = _read((body or {}).get("metadata", {}).get("annotations") or {})
            if found is not None and not self._follows(said, found):
                return found
            if (answer := await self._write(body, identity, said)).ok:
                self._written = asyncio.get_running_loop().time()
                return said
            if answer.status != 409:  # A conflict: another process was faster.
                raise self._refused("written", answer)
        return None

    def _follows(self, said: WitnessedCommit, found: WitnessedCommit) -> bool:
        """Whether a record is later than the one found there, or the same and old."""
        if said == found:
            return asyncio.get_running_loop().time() - self._written >= QUIET_S
        if said.log_id == found.log_id:
            return said.seq > found.seq
        return said.generation > found.generation

    async def _get(self) -> dict[str, Any] | None:
        answer = await self._transport.request("GET", self._path, timeout_s=REQUEST_S)
        if answer.status == 404:
            return None
        if not answer.ok:
            raise self._refused("read", answer)
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return found

    def _refused(self, what: str, answer: ApiResponse) -> Exception:
        name = f"Lease {NAMESPACE}/{name_of(self._cell)}"
        said = f"the record of the log, {name}, cannot be {what} (HTTP {answer.status})"
        if answer.status in (429, 500, 502, 503, 504):
            return ApiUnreachableError(said)
        return RecordRefusedError(f"{said}: kubectl apply -k deploy/rbac")

    async def _write(self, body: dict[str, Any] | None, identity: LogIdentity, said: WitnessedCommit) -> ApiResponse:
        now = datetime.fromtimestamp(self._clock.now() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        notes = {f"{PREFIX}/{key}": str(value) for key, value in msgspec.structs.asdict(said).items()}
        spec = {"holderIdentity": holder_of(identity), "renewTime": now}
        labels = {"app.kubernetes.io/part-of": "muster"}
        if body is not None:
            meta = {**body["metadata"], "annotations": {**(body["metadata"].get("annotations") or {}), **notes}}
            sent = msgspec.json.encode({**body, "metadata": meta, "spec": {**(body.get("spec") or {}), **spec}})
            return await self._transport.request("PUT", self._path, body=sent, timeout_s=REQUEST_S)
        meta = {"name": name_of(self._cell), "namespace": NAMESPACE, "labels": labels, "annotations": notes}
        made = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": spec}
        answer = await self._post(LEASES.path(NAMESPACE), made)
        if answer.status == 404:
            await self._post(NAMESPACES.path(), {"metadata": {"name": NAMESPACE, "labels": labels}})
            answer = await self._post(LEASES.path(NAMESPACE), made)
        return answer

    async def _post(self, path: str, body: dict[str, Any]) -> ApiResponse:
        return await self._transport.request("POST", path, body=msgspec.json.encode(body), timeout_s=REQUEST_S)


def _read(notes: dict[str, str]) -> WitnessedCommit | None:
    said = {key.removeprefix(f"{PREFIX}/"): value for key, value in notes.items()}
    try:
        bytes.fromhex(said.get("digest", ""))
        return msgspec.convert(said, WitnessedCommit, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None


async def lacking(log: Log, parent: str, found: WitnessedCommit) -> str:
    """How a log falls short of the record of its cell; empty where the log has the recorded commit.

    ``parent``: the log that the genesis names. Raises the errors of the log, but LogLostError.
    """
    identity = log.identity
    record = f"the record of cell {identity.cell} on the API server names sequence {found.seq} of generation "
    record += f"{found.generation}, log {found.log_id}"
    later = found.generation - identity.generation
    if later > 0 or (later == 0 and found.log_id != identity.log_id):
        return f"{record}, and NATS has generation {identity.generation}, log {identity.log_id}: NATS was set back"
    if found.log_id not in {identity.log_id, *(each.log_id for each in identity.earlier)}:
        if later == -1 and found.log_id != parent:
            return f"{record}, and generation {identity.generation} in NATS follows log {parent}: NATS was set back"
        return ""
    try:
        await log.prove(found.seq, bytes.fromhex(found.digest))
    except LogLostError as err:
        return f"{record}, and {err}"
    return ""


class Witness:
    """Of a process that reaches the API server: compares, keeps the record, and vouches for the log.

    ``service``: in whose name it vouches; ``writes``: whether anything may be written to the cluster.
    """

    def __init__(
        self,
        record: CellRecord,
        js: JetStream,
        cell: str,
        service: str,
        process: str,
        logger: Logger,
        *,
        writes: bool,
    ) -> None:
        self._record = record
        self._js = js
        self._service, self._process = service, process
        self._vouches = Vouches(js, cell)
        self._logger = logger
        self._writes = writes
        self._log: JetStreamLog | None = None
        """The log it was asked of last."""
        self._told = ""
        self.parent = ""
        """The log before this one, as its genesis says."""
        self.missing = ""
        """Why the record cannot be kept; empty while it is."""

    async def ask(self, log: JetStreamLog) -> str:
        """Why a log may not be built on; empty where the log may: then the record names the end, and the log is
        vouched for.

        A loss is recorded beside the log, for the keeper. Raises the errors of the log, but LogLostError.
        """
        if self._log is None or self._log.identity != log.identity:
            first = await message_at(self._js, log.stream, log.identity.first)
            genesis = genesis_of(first.data) if first is not None else None
            self.parent = genesis.parent if genesis is not None else ""
        self._log = log
        try:
            why = await self._compare(log)
            if not why:
                await log.learn()
                await self._keep(log)
        except ApiUnreachableError as err:
            return f"whether NATS has lost commits cannot be known: {err}"
        except RecordRefusedError as err:
            self._tell(str(err))
            why = ""
        if not why:
            await self._vouches.give(self._service, self._process, log.identity)
        return why

    async def run(self) -> None:
        """Keep the record of the log it was asked of, and vouch for it, until cancelled. Raises LogLostError."""
        assert self._log is not None
        log = self._log
        kept = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(VOUCH_S)
            try:
                await log.prove(*log.known)
                await self._vouches.give(self._service, self._process, log.identity)
                if asyncio.get_running_loop().time() - kept >= RECORD_S:
                    kept = asyncio.get_running_loop().time()
                    await self.keep(log)
            except (BusError, UnansweredError) as err:
                self._logger.warning("not_vouched_for", why=str(err))

    async def keep(self, log: JetStreamLog) -> None:
        """Compare, and have the record name what is known by now. Raises LogLostError."""
        try:
            why = await self._compare(log)
            if not why:
                await self._keep(log)
        except (ApiUnreachableError, RecordRefusedError) as err:
            self._tell(str(err))
        else:
            self._tell("")
            if why:
                raise LogLostError(why)

    async def testify(self) -> None:
        """Have the record name the newest commit that this process knows: it ends, or the log has lost commits."""
        assert self._log is not None
        try:
            await self._keep(self._log)
        except (ApiUnreachableError, RecordRefusedError) as err:
            self._tell(str(err))

    def _tell(self, missing: str) -> None:
        self.missing = missing
        if missing != self._told:
            self._told = missing
            self._logger.warning("record_not_kept" if missing else "record_kept", why=missing)

    async def _keep(self, log: JetStreamLog) -> None:
        if self._writes and log.known[0]:
            await self._record.keep(log.identity, log.known)

    async def _compare(self, log: JetStreamLog) -> str:
        found, identity = await self._record.read(), log.identity
        if found is None:
            return ""
        why = await lacking(log, self.parent, found)
        if why and self._service == REACHING[0]:
            await record_set_back(self._js, identity, why, found.generation, found.log_id)
        return why


class Bystander:
    """Of a process that does not reach the API server: waits for the word of one that does."""

    def __init__(self, js: JetStream, cell: str) -> None:
        self._vouches = Vouches(js, cell)

    async def ask(self, log: JetStreamLog) -> str:
        """Why a log may not be built on yet; empty once a process that compared it has said so. Raises BusError."""
        if await self._vouches.given(log.identity):
            return ""
        return "no watcher or actuator has compared the log with its record on the API server since this process asked"
