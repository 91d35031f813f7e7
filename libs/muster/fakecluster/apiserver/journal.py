"""A simulated cluster on disk: every change is written to a file at once, so the cluster outlives its process.

One change per line, in the form of a watch event. Written before the next change can happen, without a buffer of our
own: a killed process loses nothing. Opening a journal reads the file, drops a line cut off by a crash, and rewrites
the file with the existing objects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct, field

from muster.fakecluster.apiserver.kinds import kinds_of_definition
from muster.fakecluster.apiserver.server import SimApiServer
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import StoredChange, encode, watch_line
from muster.model.api import CRDS

_decode = msgspec.json.Decoder().decode


class JournalError(Exception):
    """The file is no journal of a simulated cluster; the message names the line."""


class Saved(Struct):
    """A cluster as it was when its process ended."""

    objects: list[Obj] = field(default_factory=list)
    """In the order in which they were created."""
    version: int = 0
    """Of the last change."""
    boots: int = 0
    """How often the cluster was started: names and uids must differ from those of the times before."""


class Journal:
    """An open journal. ``saved``: the former content, None for a new journal. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        saved = _read(path)
        self.saved = saved if saved.boots else None
        self._file = self._begin(saved)

    def follow(self, server: SimApiServer) -> None:
        """Write down every change from here on; what exists already, first."""
        if self.saved is None:
            for table in server.store.tables():
                for obj in table.objects.values():
                    self._write(watch_line("ADDED", obj))
        server.subscribe(self._changed)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, saved: Saved) -> int:
        """Write the existing objects to a new file, put the file in place of the old one, and leave it open."""
        fresh = self.path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(encode({"boot": saved.boots + 1, "version": saved.version}) + b"\n")
            for obj in saved.objects:
                file.write(watch_line("ADDED", obj) + b"\n")
        fresh.replace(self.path)
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _changed(self, change: StoredChange) -> None:
        self._write(change.line)

    def _write(self, line: bytes) -> None:
        os.write(self._file, line + b"\n")


def restore(server: SimApiServer, saved: Saved) -> None:
    """Make a server hold what was saved, with the same uids and versions, and nothing else."""
    for obj in saved.objects:
        if obj["kind"] == CRDS.kind:
            for kind in kinds_of_definition(obj):
                server.serve(kind)
    server.store.load(saved.objects, saved.version)


def _read(path: Path) -> Saved:
    saved = Saved()
    objects: dict[str, Obj] = {}
    for event in _lines(path):
        if "boot" in event:
            saved.boots, saved.version = event["boot"], max(saved.version, event["version"])
            continue
        obj = event["object"]
        meta = obj["metadata"]
        saved.version = max(saved.version, int(meta["resourceVersion"]))
        if event["type"] == "DELETED":
            objects.pop(meta["uid"], None)
        else:
            objects[meta["uid"]] = obj
    saved.objects = list(objects.values())
    return saved


def _lines(path: Path) -> Iterator[Any]:
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line:
            continue
        try:
            yield _decode(line)
        except msgspec.DecodeError as err:
            if number > 1 and _is_last(path, line):
                return  # Cut off by the end of the process that wrote it.
            raise JournalError(f"{path} line {number} is not a change of a simulated cluster: {err}") from err


def _is_last(path: Path, line: bytes) -> bool:
    return path.read_bytes().endswith(line)
