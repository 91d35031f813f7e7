"""Bringing an archive up to date with a running log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from muster.bus.log import Body
from muster.model.language import say
from muster.ports import LogIdentity
from muster.runtime.logkeeping.archive import (
    SEGMENT_COMMITS,
    ArchiveError,
    ArchiveManifest,
    ArchiveWriter,
    is_archive,
    read_manifest,
)

RESTARTED = "from-generation-"
"""Folder of a log that began again after one was lost: which generation it begins with."""


class Copied(Protocol):
    """A log whose bytes can be copied (``bus.log.JetStreamLog``)."""

    @property
    def identity(self) -> LogIdentity: ...

    def bodies(self, after: int) -> AsyncIterator[Body]: ...


class Archived(Struct, frozen=True):
    """What was done. ``begun``: where the archive ended before; ``first``, ``last``: what was written."""

    manifest: ArchiveManifest
    begun: int
    first: int
    last: int


def archive_of(folder: Path, identity: LogIdentity) -> Path:
    """The archive of a log in a folder: the folder itself, or a folder below for a log that began again.

    Raises ArchiveError.
    """
    mine = {identity.log_id, *(generation.log_id for generation in identity.earlier)}
    for archive in (folder, *sorted(folder.glob(f"{RESTARTED}*"))):
        if not is_archive(archive):
            continue
        if read_manifest(archive).log_id in mine:
            return archive
    return folder / f"{RESTARTED}{identity.generation}" if is_archive(folder) else folder


async def archive(
    folder: Path, log: Copied, *, commits: int = SEGMENT_COMMITS, progress: Callable[[int], None] | None = None
) -> Archived:
    """Write what an archive does not have yet, from all generations. ``progress``: called with each sequence.

    Raises ArchiveError, OSError.
    """
    identity = log.identity
    earlier = [generation.log_id for generation in identity.earlier]
    with ArchiveWriter(
        folder,
        identity.cell,
        identity.log_id,
        identity.generation,
        commits=commits,
        earlier=earlier,
        origin=identity.origin,
    ) as writer:
        begun, first = writer.manifest.end, writer.after + 1
        if first < identity.origin:
            raise ArchiveError(
                say(
                    "the log of cell {cell} begins at sequence {origin}: the generations before were "
                    "deleted, and {folder} ends at {begun}; go on with the archive that has them, or export "
                    "a file (`muster export --out`), which begins with the states of the stages",
                    cell=identity.cell,
                    origin=identity.origin,
                    folder=folder,
                    begun=begun,
                )
            )
        async for body in log.bodies(writer.after):
            writer.write(body.seq, body.data, body.trace, body.subject, body.stored_at)
            if progress is not None:
                progress(body.seq)
    return Archived(writer.manifest, begun, first, writer.after)
