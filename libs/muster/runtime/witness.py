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
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from muster.bus.beat import beat
from muster.bus.cell import own_genesis
from muster.bus.errors import BusError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.vouching import REACHING, Vouches
from muster.core.objects.meta import PREFIX
from muster.events import subjects
from muster.model.api import LEASES, NAMESPACES
from muster.ports import ApiResponse, ApiTransport, ApiUnreachableError, Clock, Log, LogIdentity, LogLostError
from muster.runtime.clusterlease import NAMESPACE, REQUEST_S, RETRIES, holder_of
from muster.runtime.pairing import record_set_back

if TYPE_CHECKING:
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
        newest = WitnessedCommit.of(identity, known)
        for _ in range(RETRIES):
            body = await self._get()
            record = _read((body or {}).get("metadata", {}).get("annotations") or {})
            if record is not None and not self._follows(newest, record):
                return record
            if (answer := await self._write(body, identity, newest)).ok:
                self._written = asyncio.get_running_loop().time()
                return newest
            if answer.status != 409:  # A conflict: another process was faster.
                raise self._refused("written", answer)
        return None

    def _follows(self, recorded: WitnessedCommit, read: WitnessedCommit) -> bool:
        """Whether a record is later than the one found there, or the same and old."""
        if recorded == read:
            return asyncio.get_running_loop().time() - self._written >= QUIET_S
        if recorded.log_id == read.log_id:
            return recorded.seq > read.seq
        return recorded.generation > read.generation

    async def _get(self) -> dict[str, Any] | None:
        answer = await self._transport.request("GET", self._path, timeout_s=REQUEST_S)
        if answer.status == 404:
            return None
        if not answer.ok:
            raise self._refused("read", answer)
        lease: dict[str, Any] = msgspec.json.decode(answer.body)
        return lease

    def _refused(self, action: str, answer: ApiResponse) -> Exception:
        name = f"Lease {NAMESPACE}/{name_of(self._cell)}"
        message = f"the record of the log, {name}, cannot be {action} (HTTP {answer.status})"
        if answer.status in (429, 500, 502, 503, 504):
            return ApiUnreachableError(message)
        return RecordRefusedError(f"{message}: kubectl apply -k deploy/rbac")

    async def _write(self, body: dict[str, Any] | None, identity: LogIdentity, commit: WitnessedCommit) -> ApiResponse:
        now = datetime.fromtimestamp(self._clock.now() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        notes = {f"{PREFIX}/{key}": str(value) for key, value in msgspec.structs.asdict(commit).items()}
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
    values = {key.removeprefix(f"{PREFIX}/"): value for key, value in notes.items()}
    try:
        bytes.fromhex(values.get("digest", ""))
        return msgspec.convert(values, WitnessedCommit, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None


async def lacking(log: Log, parent: str, commit: WitnessedCommit) -> str:
    """How a log falls short of the record of its cell; empty where the log has the recorded commit.

    ``parent``: the log that the genesis names. Raises the errors of the log, but LogLostError.
    """
    identity = log.identity
    record = f"the record of cell {identity.cell} on the API server names sequence {commit.seq} of generation "
    record += f"{commit.generation}, log {commit.log_id}"
    later = commit.generation - identity.generation
    if later > 0 or (later == 0 and commit.log_id != identity.log_id):
        return f"{record}, and NATS has generation {identity.generation}, log {identity.log_id}: NATS was set back"
    if commit.log_id not in {identity.log_id, *(generation.log_id for generation in identity.earlier)}:
        if later == -1 and commit.log_id != parent:
            return f"{record}, and generation {identity.generation} in NATS follows log {parent}: NATS was set back"
        return ""
    try:
        await log.prove(commit.seq, bytes.fromhex(commit.digest))
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
            identity = log.identity
            genesis = await own_genesis(self._js, identity.cell, identity.generation, identity.first)
            self.parent = genesis.parent if genesis is not None else ""
        self._log = log
        try:
            commit = await self._record.read()
            if await self._has_successor(log, commit):
                return f"generation {log.identity.generation} of the log has a successor"
            why = await self._compare(log, commit)
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

    async def forgotten(self, identity: LogIdentity) -> None:
        """Record, for the keeper, that NATS does not know the stream of a log any more; raises ApiUnreachableError."""
        commit = None
        with suppress(RecordRefusedError):
            commit = await self._record.read()
        later = (commit.generation, commit.log_id) if commit and commit.generation > identity.generation else (0, "")
        stream = subjects.log_stream(identity.cell, identity.generation)
        await record_set_back(self._js, identity, f"NATS has forgotten stream {stream}: it was set back", *later)

    async def run(self) -> None:
        """Keep the record of the log it was asked of, and vouch for it, until cancelled. Raises LogLostError."""
        assert self._log is not None
        log = self._log
        kept = asyncio.get_running_loop().time()
        while True:
            await beat(VOUCH_S)
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
            commit = await self._record.read()
            if await self._has_successor(log, commit):
                return
            why = await self._compare(log, commit)
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

    async def _has_successor(self, log: JetStreamLog, commit: WitnessedCommit | None) -> bool:
        """Whether the record names a later log that NATS has: the log was rolled over, and this process still follows
        the log before it.
        """
        if commit is None or commit.generation <= log.identity.generation:
            return False
        cell = log.identity.cell
        info = await self._js.info(subjects.log_stream(cell, commit.generation), checks=1)
        if info is None:
            return False
        genesis = await own_genesis(self._js, cell, commit.generation, info.state.first_seq)
        return genesis is not None and genesis.log_id == commit.log_id

    async def _compare(self, log: JetStreamLog, commit: WitnessedCommit | None) -> str:
        identity = log.identity
        if commit is None:
            return ""
        why = await lacking(log, self.parent, commit)
        if why and self._service == REACHING[0]:
            await record_set_back(self._js, identity, why, commit.generation, commit.log_id)
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
