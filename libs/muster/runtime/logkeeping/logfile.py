"""Exported logs: one commit per line, ``{"seq": N, "commit": {...}}``, plain or gzip by the name's ending; with the
broker's subject and time, so that a file is judged as the cell was.

An archive (``runtime.logkeeping.archive``) is read the same way. If the first generations of the log were deleted, the
file begins with the states of the stages there, one per line:
``{"base": {"stage": ..., "seq": N, "body": "<base64>"}}``.
"""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self, cast

import msgspec
from msgspec import Struct

from muster.core.docket import Docket, Judge
from muster.core.stage import StageState
from muster.events.envelope import UNREADABLE, Stored, UnknownEventError, UnreadableCommitError, encode_commit
from muster.model.language import say
from muster.ports import Snapshot
from muster.runtime.logkeeping.archive import (
    ArchivedCommit,
    bounded_lines,
    is_archive,
    line_of,
    read_archive,
    stored_of,
)
from muster.runtime.logkeeping.snapshotting import decode_state


class LogFileError(Exception):
    """A file is not an exported log, or it is cut off; the message names the line."""


class _Base(Struct, frozen=True):
    base: Snapshot


_lines = msgspec.json.Decoder(ArchivedCommit)
_bases = msgspec.json.Decoder(_Base)
_BASE = b'{"base":'


class LogWriter:
    """Writes commits in order to an open file. ``count``: how many so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self.count = 0
        self._file = file

    @classmethod
    @contextmanager
    def to(cls, path: Path) -> Iterator[Self]:
        """A writer to a new file, compressed by the name's ending."""
        with _open(path, "wb") as file:
            yield cls(file)

    def begin_with(self, base: Iterable[Snapshot]) -> None:
        """The states that the first commit follows, where that is not the first of all; before any commit."""
        for state in base:
            self._file.write(msgspec.json.encode(_Base(state)) + b"\n")

    def write(self, stored: Stored) -> None:
        body = stored.body or encode_commit(stored.commit)
        self._file.write(line_of(stored.seq, body, "", stored.subject, stored.stored_at))
        self.count += 1


def write_log(path: Path, commits: Iterable[Stored]) -> int:
    """Write commits in order; returns how many."""
    with LogWriter.to(path) as writer:
        for stored in commits:
            writer.write(stored)
        return writer.count


def read_log(path: Path) -> Generator[Stored, None, None]:
    """The commits of an exported log or an archive, in order, judged, without holding all commits.

    Raises LogFileError for a file that is no log or is cut off, on a missing sequence, and on an unreadable commit
    (the cause says whether this build is too old for the commit); OSError for an unreadable file.
    """
    if is_archive(path):
        yield from read_archive(path)
        return
    before: int | None = None
    judge, number, empty = _judge_of(read_base(path)), 0, False
    with _open(path, "rb") as file:
        try:
            for number, line in enumerate(bounded_lines(file, _BASE), start=1):
                if empty and not line.strip():
                    raise LogFileError(
                        say(
                            "{path} line {number} is not a commit of an exported log: it is empty",
                            path=path,
                            number=number,
                        )
                    )
                empty = not line.strip()
                if not empty and not line.startswith(_BASE):
                    stored = _stored(path, number, line)
                    if before is not None and stored.seq != before + 1:
                        raise LogFileError(
                            say(
                                "{path} line {number}: sequence {seq} follows {before}; commits are missing",
                                path=path,
                                number=number,
                                seq=stored.seq,
                                before=before,
                            )
                        )
                    before = stored.seq
                    yield judge.hear(stored)
        except UnknownEventError as err:
            raise LogFileError(f"{path} line {number}: {err}") from err
        except (EOFError, zlib.error, gzip.BadGzipFile) as err:
            raise LogFileError(
                say("{path} is cut off or damaged after line {number}: {err}", path=path, number=number, err=err)
            ) from err


def read_base(path: Path) -> list[Snapshot]:
    """The states at the beginning of a log file; none if the file begins with the first commit of all.

    Raises LogFileError, OSError.
    """
    snapshots: list[Snapshot] = []
    if path.is_dir():
        return snapshots
    with _open(path, "rb") as file:
        try:
            for line in bounded_lines(file, _BASE):
                if not line.startswith(_BASE):
                    break
                snapshots.append(_bases.decode(line).base)
        except (EOFError, zlib.error, gzip.BadGzipFile, *UNREADABLE) as err:
            raise LogFileError(
                say("{path} line {number} is no state of a stage: {err}", path=path, number=len(snapshots) + 1, err=err)
            ) from err
    return snapshots


def _judge_of(base: Iterable[Snapshot]) -> Judge:
    """A judge that knows the states at the beginning of a file."""
    for snapshot in base:
        with contextlib.suppress(ValueError):  # A state of another version: what it knew is not known.
            state = decode_state(snapshot.body, StageState)
            return Judge(state.docket, state.log_id, state.generation)
    return Judge(Docket())


def _stored(path: Path, number: int, line: bytes) -> Stored:
    cut_off = "" if line.endswith(b"\n") else "; the file is cut off there"
    try:
        entry = _lines.decode(line)
        return stored_of(entry)
    except UnknownEventError as err:
        raise LogFileError(f"{path} line {number}: {err}") from err
    except (*UNREADABLE, UnreadableCommitError) as err:
        raise LogFileError(
            say(
                "{path} line {number} is not a commit of an exported log: {err}{cut_off}",
                path=path,
                number=number,
                err=err,
                cut_off=cut_off,
            )
        ) from err


def _open(path: Path, mode: str) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, mode))
    return cast("IO[bytes]", path.open(mode))
