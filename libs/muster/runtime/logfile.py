"""Exported logs: one commit per line, ``{"seq": N, "commit": {...}}``, plain or gzip by the name's ending."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

import msgspec
from msgspec import Struct

from muster.events.envelope import Commit, Stored, decode_commit, encode_commit


class LogFileError(Exception):
    """A file is not an exported log, or it is cut off; the message names the line."""


class _Line(Struct, frozen=True):
    seq: int
    commit: msgspec.Raw


_lines = msgspec.json.Decoder(_Line)


def line_of(seq: int, commit: Commit) -> bytes:
    """One line of an exported log, with its line feed."""
    return b'{"seq":%d,"commit":%b}\n' % (seq, encode_commit(commit))


def write_log(path: Path, commits: Iterable[Stored]) -> int:
    """Write commits in order; returns how many."""
    count = 0
    with _open(path, "wb") as file:
        for stored in commits:
            file.write(line_of(stored.seq, stored.commit))
            count += 1
    return count


def read_log(path: Path) -> Iterator[Stored]:
    """The commits of an exported log, in order, without holding them all.

    Raises LogFileError on a line that is none, on a missing sequence, and what decode_commit raises.
    """
    before: int | None = None
    with _open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                found = _lines.decode(line)
            except (msgspec.DecodeError, msgspec.ValidationError) as err:
                raise LogFileError(f"{path} line {number} is not a commit of an exported log: {err}") from err
            if before is not None and found.seq != before + 1:
                raise LogFileError(f"{path} line {number}: sequence {found.seq} follows {before}; commits are missing")
            before = found.seq
            yield Stored(found.seq, decode_commit(bytes(found.commit)))


def _open(path: Path, mode: str) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, mode))
    return cast("IO[bytes]", path.open(mode))
