"""Archives: a log in a folder, as compressed segments of the log's bytes and a manifest of the segments.

``manifest.json`` names the log and the content of each segment; ``log-FIRST-LAST.jsonl.gz`` has one commit per line,
as in an exported log, with the bytes of the log. Segments are cut at fixed sequences, so archives of the same log are
the same files, however often the archiving was interrupted. The manifest is written after the segments, and every
file first under another name.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

import msgspec
from msgspec import Struct, field

from muster.audit.judge import heard
from muster.core.docket import Docket, Judge
from muster.events.envelope import UNREADABLE, Stored, UnknownEventError, UnreadableCommitError, decode_commit
from muster.model.language import say

MANIFEST = "manifest.json"
FORMAT = 1
SEGMENT_COMMITS = 5_000
"""Commits of a whole segment; the last one of a log that goes on may be shorter."""
_LEVEL = 6


class ArchiveError(Exception):
    """A folder is no archive, another log's, or damaged; the message names the file."""


class Segment(Struct, frozen=True, kw_only=True):
    """One file: the commits from ``first`` to ``last``."""

    file: str
    first: int
    last: int
    first_at: int
    """When the writer of its first commit says it was, ms since the epoch."""
    last_at: int
    size: int
    """Bytes of the file."""
    sha256: str
    """Of the file, as ``sha256sum`` has it."""
    lines_sha256: str
    """Of its content, uncompressed: the same for every compressor."""


class ArchiveManifest(Struct, kw_only=True):
    """What an archive holds."""

    format: int = FORMAT
    cell: str
    log_id: str
    generation: int
    segment_commits: int = SEGMENT_COMMITS
    sealed: bool = False
    """Nothing follows: the generation has ended."""
    segments: list[Segment] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The last sequence it holds; 0 for none."""
        return self.segments[-1].last if self.segments else 0


class ArchivedCommit(Struct, frozen=True, omit_defaults=True):
    """A commit of an archive: the bytes of the log, in ``junk`` for bytes that are no line of JSON."""

    seq: int
    commit: msgspec.Raw = msgspec.Raw()
    trace: str = ""
    subject: str = ""
    """``generation.stage.shard``; empty in an archive of before this was kept."""
    stored_at: int = 0
    """When the broker stored it, ms since the epoch; 0: not known."""
    junk: bytes = b""

    @property
    def body(self) -> bytes:
        """Its bytes."""
        return self.junk or bytes(self.commit)


class _At(Struct, frozen=True):
    at: int = 0


_lines = msgspec.json.Decoder(ArchivedCommit)
_at = msgspec.json.Decoder(_At)
_manifests = msgspec.json.Decoder(ArchiveManifest)


def is_archive(path: Path) -> bool:
    """Whether a path is a folder with a manifest."""
    return (path / MANIFEST).is_file()


def read_manifest(folder: Path) -> ArchiveManifest:
    """What an archive says it holds. Raises ArchiveError."""
    path = folder / MANIFEST
    try:
        manifest = _manifests.decode(path.read_bytes())
    except FileNotFoundError as err:
        raise ArchiveError(
            say("{folder} is no archive: it has no {manifest}", folder=folder, manifest=MANIFEST)
        ) from err
    except UNREADABLE as err:
        raise ArchiveError(say("{path} is no manifest of an archive: {err}", path=path, err=err)) from err
    if manifest.format != FORMAT:
        raise ArchiveError(
            say(
                "{path} has format {given} and this build reads {known}; upgrade it",
                path=path,
                given=manifest.format,
                known=FORMAT,
            )
        )
    follows = 1
    for segment in manifest.segments:
        if segment.first != follows or segment.last < segment.first or "/" in segment.file:
            raise ArchiveError(
                say(
                    "{path}: {file} does not follow sequence {follows}; commits are missing",
                    path=path,
                    file=segment.file,
                    follows=follows - 1,
                )
            )
        follows = segment.last + 1
    return manifest


class ArchiveWriter:
    """Writes a log to a folder, or continues an existing archive. A context manager: an open file is closed whole.

    ``after``: the last kept sequence; the next :meth:`write` takes the following sequence.
    """

    def __init__(
        self,
        folder: Path,
        cell: str,
        log_id: str,
        generation: int,
        *,
        commits: int = 0,
        earlier: Collection[str] = (),
        origin: int = 1,
    ) -> None:
        """``commits`` of a segment where the archive is new; ``earlier``: logs this one goes on from; ``origin``: the
        first sequence that can still be read.

        Raises ArchiveError for the archive of another log.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if is_archive(folder):
            self.manifest = read_manifest(folder)
            held = (self.manifest.log_id, self.manifest.generation)
            if held[0] in earlier and held[1] < generation:
                self.manifest.log_id, self.manifest.generation = log_id, generation
            elif held != (log_id, generation):
                raise ArchiveError(
                    say(
                        "{folder} holds log {held_log}, generation {held_generation}, and not {log_id}, "
                        "generation {generation}; give each log a folder of its own",
                        folder=folder,
                        held_log=held[0],
                        held_generation=held[1],
                        log_id=log_id,
                        generation=generation,
                    )
                )
        elif any(folder.iterdir()):
            raise ArchiveError(
                say("{folder} holds other things; give an empty folder, or one that does not exist", folder=folder)
            )
        else:
            size = commits or SEGMENT_COMMITS
            self.manifest = ArchiveManifest(cell=cell, log_id=log_id, generation=generation, segment_commits=size)
        self._short = self._cut_short(origin)
        self.after = self._short.first - 1 if self._short is not None else self.manifest.end
        self._open: _Segment | None = None

    def _cut_short(self, origin: int) -> Segment | None:
        """The last segment, when it is not whole and can be read again: it is written again, longer."""
        last = self.manifest.segments[-1] if self.manifest.segments else None
        if last is None or last.first < origin:
            return None
        return last if last.last % self.manifest.segment_commits else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is None:
            return
        if kind is None:
            self._close()
        else:
            self._open.discard()

    def write(self, seq: int, body: bytes, trace: str = "", subject: str = "", stored_at: int = 0) -> None:
        """Take the commit that follows, as the log has it."""
        if seq != self.after + 1:
            raise ArchiveError(
                say(
                    "{folder}: sequence {seq} follows {after}; commits are missing",
                    folder=self.folder,
                    seq=seq,
                    after=self.after,
                )
            )
        if self._open is None:
            self._open = _Segment(self.folder, seq)
        self._open.write(line_of(seq, body, trace, subject, stored_at), seq, body)
        self.after = seq
        if seq % self.manifest.segment_commits == 0:
            self._close()

    def seal(self) -> None:
        """Nothing follows any more."""
        if self._open is not None:
            self._close()
        self.manifest.sealed = True
        self._save()

    def _close(self) -> None:
        assert self._open is not None
        made, self._open = self._open.close(), None
        segments = self.manifest.segments
        old, self._short = self._short, None
        if old is not None:
            segments = segments[:-1]
            if made.last < old.last:
                raise ArchiveError(
                    say(
                        "{folder} holds sequences up to {last}, and the log ends at {end}",
                        folder=self.folder,
                        last=old.last,
                        end=made.last,
                    )
                )
        self.manifest.segments = [*segments, made]
        self._save()
        if old is not None and old.file != made.file:
            (self.folder / old.file).unlink(missing_ok=True)

    def _save(self) -> None:
        body = msgspec.json.format(msgspec.json.encode(self.manifest), indent=2) + b"\n"
        part = self.folder / f".{MANIFEST}.part"
        with part.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.folder / MANIFEST)


class _Segment:
    """A segment being written, under another name."""

    def __init__(self, folder: Path, first: int) -> None:
        self._folder = folder
        self._part = folder / f".log-{first:010}.part"
        self._file = self._part.open("wb")
        # Neither a name nor a time of day inside: equal commits are equal files.
        self._zip = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, compresslevel=_LEVEL, mtime=0)
        self._sha = hashlib.sha256()
        self._first = self._last = first
        self._first_at = self._last_at = -1

    def write(self, line: bytes, seq: int, body: bytes) -> None:
        self._zip.write(line)
        self._sha.update(line)
        try:
            at = _at.decode(body).at
        except UNREADABLE:
            at = max(0, self._last_at)  # Junk has no time of its own.
        if self._first_at < 0:
            self._first_at = at
        self._last, self._last_at = seq, at

    def close(self) -> Segment:
        self._zip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        name = f"log-{self._first:010}-{self._last:010}.jsonl.gz"
        path = self._part.replace(self._folder / name)
        return Segment(
            file=name,
            first=self._first,
            last=self._last,
            first_at=self._first_at,
            last_at=self._last_at,
            size=path.stat().st_size,
            sha256=_sha256(path),
            lines_sha256=self._sha.hexdigest(),
        )

    def discard(self) -> None:
        self._zip.close()
        self._file.close()
        self._part.unlink(missing_ok=True)


def line_of(seq: int, body: bytes, trace: str = "", subject: str = "", stored_at: int = 0) -> bytes:
    """A line of a recorded log, with the line feed: the bytes of the commit, and the broker's subject and time."""
    more = b',"trace":%b' % msgspec.json.encode(trace) if trace else b""
    more += b',"subject":%b' % msgspec.json.encode(subject) if subject else b""
    more += b',"stored_at":%d' % stored_at if stored_at else b""
    name, shown = (b"commit", body) if _is_line(body) else (b"junk", msgspec.json.encode(body))
    return b'{"seq":%d,"%b":%b%b}\n' % (seq, name, shown, more)


def _is_line(body: bytes) -> bool:
    """Whether it can be a value in a line of JSON, and come back as the same bytes."""
    if b"\n" in body or not body.startswith(b"{") or not body.endswith(b"}"):
        return False
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except UNREADABLE:
        return False
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_lines(folder: Path, manifest: ArchiveManifest | None = None) -> Iterator[ArchivedCommit]:
    """The commits of an archive, in order, as they are in the log; each file is compared with the manifest first.

    Raises ArchiveError.
    """
    for segment in (manifest or read_manifest(folder)).segments:
        path = folder / segment.file
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if digest != segment.sha256:
                    raise ArchiveError(
                        say(
                            "{path} is damaged: its sha256 is {digest}, and {manifest} says {sha256}",
                            path=path,
                            digest=digest,
                            manifest=MANIFEST,
                            sha256=segment.sha256,
                        )
                    )
                file.seek(0)
                yield from _of_segment(path, file, segment)
        except FileNotFoundError as err:
            raise ArchiveError(say("{path} is missing; {manifest} names it", path=path, manifest=MANIFEST)) from err


def _of_segment(path: Path, file: IO[bytes], segment: Segment) -> Iterator[ArchivedCommit]:
    seq = segment.first - 1
    with cast("IO[bytes]", gzip.open(file, "rb")) as lines:
        for line in bounded_lines(lines):
            try:
                line_read = _lines.decode(line)
            except UNREADABLE as err:
                raise ArchiveError(
                    say("{path}: what follows sequence {seq} is no commit: {err}", path=path, seq=seq, err=err)
                ) from err
            if line_read.seq != seq + 1:
                raise ArchiveError(
                    say(
                        "{path}: sequence {seq} follows {before}; commits are missing",
                        path=path,
                        seq=line_read.seq,
                        before=seq,
                    )
                )
            seq = line_read.seq
            yield line_read
    if seq != segment.last:
        raise ArchiveError(
            say(
                "{path} ends at sequence {seq}, and {manifest} says {last}",
                path=path,
                seq=seq,
                manifest=MANIFEST,
                last=segment.last,
            )
        )


MAX_LINE = 8 * 1024 * 1024
"""Bytes of a line with a commit; what unpacks to longer ones is no log."""
MAX_STATE_LINE = 4 * 1024**3
"""Bytes of a line with a state of a stage."""


def bounded_lines(file: IO[bytes], state: bytes = b"") -> Iterator[bytes]:
    """The lines of a file; a line longer than any line of a log is cut, and so no longer a commit.

    ``state``: the beginning of a line that may be longer.
    """
    while line := file.readline(MAX_LINE):
        if len(line) == MAX_LINE and not line.endswith(b"\n") and state and line.startswith(state):
            line += file.readline(MAX_STATE_LINE)
        yield line


def read_archive(folder: Path) -> Iterator[Stored]:
    """The commits of an archive, judged. Raises ArchiveError, also where this build is too old for it."""
    judge = Judge(Docket())
    try:
        for line in read_lines(folder):
            yield judge.hear(stored_of(line))
    except (UnknownEventError, UnreadableCommitError) as err:
        raise ArchiveError(f"{folder}: {err}") from err


def stored_of(line: ArchivedCommit) -> Stored:
    """The commit of a line. Without a subject the stage and shard of the commit count. Raises the errors of
    decode_commit.
    """
    if line.subject:
        return heard(line.seq, line.subject, line.body, line.stored_at, line.trace)
    return Stored(line.seq, decode_commit(line.body), line.trace)
