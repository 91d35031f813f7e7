"""The configuration of every stream and bucket, and the check of existing streams against the configuration.

Each stream has a budget of the store (BUDGETS). JetStream reserves the budget, so no stream takes the room of another:
a service with a full bucket is refused, and no other service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from muster.bus.errors import STREAM_NAME_IN_USE, ApiError, BusError
from muster.bus.jetstream import JetStream, StreamInfo
from muster.events import subjects
from muster.model.language import say

_NS = 1_000_000_000
_DAY = 24 * 3600 * _NS
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


class Limits(Struct, frozen=True):
    """Size of a log in bytes, and on how many servers each stream is kept (1 or 3)."""

    max_bytes: int = 4 * _GIB
    replicas: int = 1


class StoreBudget(Struct, frozen=True):
    """What a stream may take of the store: bytes, messages, and bytes of one message; -1 for no bound of its own."""

    bytes: int
    messages: int = -1
    message_bytes: int = -1

    def config(self) -> dict[str, int]:
        """In the fields of the server."""
        return {"max_bytes": self.bytes, "max_msgs": self.messages, "max_msg_size": self.message_bytes}


Kind = Literal["log", "next", "public", "quarantine", "leases", "replicas", "state", "snapshots", "bases"]

BUDGETS: dict[Kind, Callable[[Limits], StoreBudget]] = {
    # A stage has its part of the log: muster.bus.shares.
    "log": lambda limits: StoreBudget(limits.max_bytes),
    "next": lambda limits: StoreBudget(limits.max_bytes, message_bytes=1),
    # 14 days of 50,000 jobs a day (tests/perf/bench_store.py).
    "public": lambda limits: StoreBudget(max(_GIB, limits.max_bytes)),
    "quarantine": lambda _: StoreBudget(_GIB // 4, 100_000),
    # A key may write the keys that its rights name, and no others: all of them at their largest fit.
    "leases": lambda _: StoreBudget(4 * _MIB, 1_024, 4 * _KIB),
    "replicas": lambda _: StoreBudget(4 * _MIB, 1_024, 4 * _KIB),
    "state": lambda _: StoreBudget(32 * _MIB, 1_024, 64 * _KIB),
    # Three snapshots of the largest size there is, and the one that is being written.
    "snapshots": lambda limits: _objects(max(16 * _MIB, limits.max_bytes // 16)),
    "bases": lambda limits: _objects(max(32 * _MIB, limits.max_bytes // 2)),
}
"""{kind of stream: its budget, by the size of a generation of the log}"""


def _objects(size: int) -> StoreBudget:
    """Of a bucket of objects: most of its messages are chunks of 256 KiB."""
    return StoreBudget(size, size // (16 * _KIB), 512 * _KIB)


BOUNDS = frozenset({"max_bytes", "max_msgs", "max_msg_size"})
"""The fields of a budget."""

SIZES = frozenset({"max_bytes", "num_replicas"})
"""What an operator may set otherwise on a log without harm to its promises."""

BUDGETED = SIZES | BOUNDS
"""The same of a stream beside the log: an earlier version gave it no budget."""

BUDGETED_AND_AGE = BUDGETED | {"max_age"}
"""The same of the streams that need not keep everything."""

COMPRESSED = frozenset({"compression"})
"""How the log is stored; what was made compressed goes on so until it is rolled over."""
ROLLED_UP = frozenset({"allow_rollup_hdrs"})
"""What buckets of objects were made with once."""
NARROWED = frozenset({"subjects"})
"""What differs in a log of which stages are closed for a while (muster.bus.shares)."""
SEALED = frozenset({"sealed"})
"""A generation of the log that has a successor, or is about to have one."""

_NEVER = (
    "sealed",
    "mirror",
    "sources",
    "subject_transform",
    "allow_rollup_hdrs",
    "allow_msg_ttl",
    "allow_msg_schedules",
    "allow_msg_counter",
)
"""Features that would make holes in the log, let others write it, or end it."""


def log_config(cell: str, generation: int, limits: Limits, *, first: int = 1) -> dict[str, Any]:
    """A generation of the log: keeps all, and refuses a message beyond the room. ``first``: the first sequence."""
    begins = {"first_seq": first} if first > 1 else {}
    return {
        **begins,
        "name": subjects.log_stream(cell, generation),
        "description": f"Muster: the log of cell {cell}, generation {generation}",
        "subjects": [subjects.log_subjects(cell, generation)],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "deny_delete": True,
        "deny_purge": True,
        "max_age": 0,
        **BUDGETS["log"](limits).config(),
        "max_msgs_per_subject": -1,
        "num_replicas": limits.replicas,
        # A server that had been killed could not read a compressed log after its next start: docs/decisions/0024.
        "compression": "none",
        "allow_direct": False,
        # Nothing is sent with a message id; the server wants a window of its own all the same.
        "duplicate_window": 1 * _NS,
        **dict.fromkeys(_NEVER, False),
    }


def next_config(cell: str, limits: Limits) -> dict[str, Any]:
    """The room of a generation of the log, and nothing inside: the next generation is founded in its place."""
    return {
        "name": subjects.next_stream(cell),
        "description": f"Muster: room for the next generation of the log of cell {cell}",
        "subjects": [f"muster.next.{cell}"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        **BUDGETS["next"](limits).config(),
        "num_replicas": limits.replicas,
    }


def public_config(limits: Limits) -> dict[str, Any]:
    """The stream for outsiders: the oldest goes first, so a slow reader never holds us up."""
    return {
        "name": subjects.PUBLIC_STREAM,
        "description": "Muster: public events",
        "subjects": [subjects.PUBLIC_SUBJECTS],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": 14 * _DAY,
        **BUDGETS["public"](limits).config(),
        "num_replicas": limits.replicas,
        "duplicate_window": 120 * _NS,
    }


def quarantine_config(cell: str, limits: Limits) -> dict[str, Any]:
    """Input that could not be read."""
    return {
        "name": subjects.quarantine_stream(cell),
        "description": f"Muster: unreadable input of cell {cell}",
        "subjects": [subjects.quarantine_subject(cell, ">")],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": 30 * _DAY,
        **BUDGETS["quarantine"](limits).config(),
        "num_replicas": limits.replicas,
    }


def bucket_config(bucket: str, kind: Kind, limits: Limits, *, ttl_s: float = 0) -> dict[str, Any]:
    """A key-value bucket that keeps the newest value of each key, for ``ttl_s`` (0: for ever)."""
    ttl = int(ttl_s * _NS)
    return {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        **BUDGETS[kind](limits).config(),
        "max_msgs_per_subject": 1,
        "max_age": ttl,
        # A roll-up of everything needs no more than the right to write one key: it would empty what others keep.
        "allow_rollup_hdrs": False,
        "deny_delete": True,
        "allow_direct": False,
        "num_replicas": limits.replicas,
        "duplicate_window": min(ttl, 120 * _NS) or 120 * _NS,
    }


def objects_config(bucket: str, kind: Kind, limits: Limits) -> dict[str, Any]:
    """An object store bucket."""
    return {
        "name": f"OBJ_{bucket}",
        "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        **BUDGETS[kind](limits).config(),
        "max_age": 0,
        # Each object has a name of its own, so none replaces another; a roll-up would empty what others keep.
        "allow_rollup_hdrs": False,
        "allow_direct": False,
        "num_replicas": limits.replicas,
    }


async def ensure(
    js: JetStream, config: Mapping[str, Any], *, create: bool, ignore: frozenset[str] = frozenset()
) -> StreamInfo | None:
    """The existing stream; created when missing and ``create``, else None when missing. ``create`` also gives an
    existing stream the bounds that it lacks.

    Raises BusError naming every field that differs from ``config`` (fields in ``ignore`` may), or the reason of a
    failed creation.
    """
    name = config["name"]
    # Creating one that exists all the same does no harm, so one look is enough then.
    info = await js.info(name, checks=1) if create else await js.info(name)
    if info is None:
        if not create:
            return None
        wanted = {key: value for key, value in config.items() if key not in _NEVER or value}
        try:
            info = await js.create(wanted)
        except ApiError as err:
            # Another process created it at the same time, with other limits.
            info = await js.info(name) if err.err_code == STREAM_NAME_IN_USE else None
            if info is None:
                raise BusError(
                    say(
                        "cannot create stream {name}: {description}; check the limits of the server",
                        name=name,
                        description=err.description,
                    )
                ) from err
    lacks = unbounded(config, info.config)
    if create and lacks:
        await js.ask(f"STREAM.UPDATE.{name}", {**info.config, **lacks})
    differing = differences(config, info.config, ignore)
    if differing:
        raise BusError(
            say(
                "stream {name} is not as it must be: {differing}; it was changed or created by other "
                "means: correct it, or start with another cell",
                name=name,
                differing="; ".join(differing),
            )
        )
    return info


def unbounded(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, int]:
    """The bounds of a budget that a stream lacks: an earlier version made the stream, or an operator."""
    return {field: wanted[field] for field in sorted(BOUNDS) if wanted[field] > 0 and actual.get(field, -1) <= 0}


def differences(wanted: Mapping[str, Any], actual: Mapping[str, Any], ignore: frozenset[str]) -> list[str]:
    """One phrase per field that is not as wanted, in sorted order."""
    unlike: list[str] = []
    for field, value in sorted(wanted.items()):
        if field in ignore or field == "description":
            continue
        # The server leaves out what is false, and writes "none of it" as null, 0, [] or {}.
        other = actual.get(field) or False if value is False else actual.get(field)
        if other != value:
            unlike.append(f"{field} is {other!r}, must be {value!r}")
    return unlike
