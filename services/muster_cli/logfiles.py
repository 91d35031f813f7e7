"""Exported logs as commands use them: opened with good messages, read with a progress bar on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from muster.events.envelope import Stored
from muster.model.language import say
from muster.runtime.logkeeping.archive import is_archive, read_manifest
from muster.runtime.logkeeping.logfile import read_base, read_log
from muster_cli.exits import FAILED, NOT_FOUND, CliError

LONG_BYTES = 4 * 1024 * 1024
"""From this size on a progress bar is shown."""


def existing(path: Path) -> Path:
    """The path of a log file. Raises CliError when there is none."""
    if not path.exists():
        raise CliError(
            say("cannot read {path}: there is no such file; `muster export --out {path}` makes one", path=path),
            NOT_FOUND,
        )
    if not path.is_file() and not is_archive(path):
        raise CliError(say("cannot read {path}: it is no file, and no folder of segments", path=path), FAILED)
    return path


@contextlib.contextmanager
def progress(path: Path, verb: str, *, quiet: bool = False) -> Iterator[Iterator[Stored]]:
    """The commits of a log file, with a bar on stderr while a long one is read on a terminal, unless ``quiet``."""
    size = path.stat().st_size if path.is_file() else sum(segment.size for segment in read_manifest(path).segments)
    if quiet or not sys.stderr.isatty() or size < LONG_BYTES:
        with contextlib.closing(read_log(path)) as commits:
            yield commits
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn(verb),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("commits"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar, contextlib.closing(read_log(path)) as commits:
        task = bar.add_task(verb, total=_estimate(path, size))

        def counted() -> Iterator[Stored]:
            for number, stored in enumerate(commits, start=1):
                if number % 500 == 0:
                    bar.update(task, completed=number)
                yield stored

        yield counted()


def _estimate(path: Path, size: int) -> int | None:
    """The number of commits: exact for an archive, an estimate by the first lines for a plain file, None for a
    compressed one.
    """
    if path.is_dir():
        return read_manifest(path).end
    if path.suffix == ".gz":
        return None
    with path.open("rb") as file:
        head = file.read(1 << 20)
    return size * max(head.count(b"\n"), 1) // len(head)


def complete(path: Path, commits: Iterator[Stored], *, begin: int = 1) -> Iterator[Stored]:
    """The commits of a log from the beginning, or from ``begin`` on. Raises CliError for any other log."""
    first = next(commits, None)
    if first is None:
        raise CliError(say("{path} holds no commit; was the export cut off?", path=path))
    if first.seq != begin:
        based = bool(read_base(path))
        raise CliError(
            say("{path} begins at sequence {seq}", path=path, seq=first.seq)
            + (
                say(
                    ", with the states of the stages there: `muster replay` and `muster debug` take it; this "
                    "asks for the whole log: its archive, with --log"
                )
                if based
                else say(": what was decided can be judged only from sequence 1 on; export the whole log")
            )
        )
    yield first
    yield from commits
