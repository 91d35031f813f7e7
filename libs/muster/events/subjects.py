"""Names on the bus: streams, subjects, buckets. No other module has such a literal."""

from __future__ import annotations

import re

DEFAULT_CELL = "main"
_CELL = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


def check_cell(cell: str) -> str:
    """Check a cell name; raises ValueError unless the name is a DNS label of at most 32 characters."""
    if not _CELL.fullmatch(cell):
        raise ValueError(f"cell {cell!r} is not a name of lower-case letters, digits and dashes, at most 32 long")
    return cell


def log_stream(cell: str, generation: int) -> str:
    """The stream of a generation of a cell's log."""
    return f"MUSTER_LOG_{cell}_{generation}"


def next_stream(cell: str) -> str:
    """The stream that keeps room for the next generation of a cell's log."""
    return f"MUSTER_NEXT_{cell}"


def log_subjects(cell: str, generation: int) -> str:
    """Everything a generation of the log holds."""
    return f"muster.log.{cell}.{generation}.>"


def cell_log_subjects(cell: str) -> str:
    """Everything any generation of a cell's log holds."""
    return f"muster.log.{cell}.>"


def log_generation(cell: str, stream: str) -> int | None:
    """The generation of a stream of the cell's log; None for any other stream."""
    match = re.fullmatch(rf"MUSTER_LOG_{re.escape(cell)}_([1-9][0-9]*)", stream)
    return int(match[1]) if match else None


def log_subject(cell: str, generation: int, stage: str, shard: str) -> str:
    """Where one (stage, shard) appends."""
    return f"muster.log.{cell}.{generation}.{stage}.{shard}"


def seat_of_subject(cell: str, subject: str) -> str:
    """``generation.stage.shard`` of a log subject; empty for a subject of no log of the cell."""
    head = f"muster.log.{cell}."
    return subject[len(head) :] if subject.startswith(head) else ""


def seat_subjects(cell: str, seat: str) -> str:
    """Where ``stage.shard`` appends, in any generation."""
    return f"muster.log.{cell}.*.{seat}"


PUBLIC_STREAM = "MUSTER_PUB"
PUBLIC_SUBJECTS = "muster.pub.v1.>"


def public_subject(cell: str, event: str, namespace: str, name: str) -> str:
    """Where outsiders find one public event: muster.pub.v1.<cell>.<event>.<namespace>.<name>."""
    return f"muster.pub.v1.{cell}.{event}.{escape_token(namespace)}.{escape_token(name)}"


def public_cell_subjects(cell: str) -> str:
    """Every public event of one cell."""
    return f"muster.pub.v1.{cell}.>"


def public_namespace_subjects(cell: str, namespace: str) -> str:
    """Every public event of a cell about objects of a namespace."""
    return f"muster.pub.v1.{cell}.*.{escape_token(namespace)}.*"


def quarantine_stream(cell: str) -> str:
    """Where unreadable input is kept with its cause."""
    return f"MUSTER_QUARANTINE_{cell}"


def quarantine_subject(cell: str, stage: str) -> str:
    return f"muster.quarantine.{cell}.{stage}"


def lease_bucket(cell: str) -> str:
    """KV bucket of the leases of a cell; its age limit is the lease time."""
    return f"MUSTER_LEASE_{cell}"


def replica_bucket(cell: str) -> str:
    """KV bucket of the processes of a cell that are alive; its age limit is that of the leases."""
    return f"MUSTER_REPLICA_{cell}"


def state_bucket(cell: str) -> str:
    """KV bucket of a cell's pointers: the generation in force, the newest snapshot of each (stage, shard)."""
    return f"MUSTER_STATE_{cell}"


def base_bucket(cell: str) -> str:
    """Object store bucket of the states that the generations of a cell begin with."""
    return f"MUSTER_SNAP_{cell}"


def snapshot_bucket(cell: str, stage: str) -> str:
    """Object store bucket of the snapshots of a stage: none can remove those of another."""
    return f"MUSTER_SNAP_{cell}_{stage}"


def escape_token(text: str) -> str:
    """A text as one subject token, reversibly: ``=`` and everything NATS treats specially become ``=XX`` (hex)."""
    if not text:
        return "=="
    return "".join(
        char
        if char.isascii() and (char.isalnum() or char in "-_")
        else "".join(f"={byte:02X}" for byte in char.encode())
        for char in text
    )
