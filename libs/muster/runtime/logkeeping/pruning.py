"""Deleting sealed generations of a log: the oldest first, and only generations that an archive holds and no process
needs.

Before a stream is deleted every byte is compared with the archive, the states at the beginning of the next generation
are read, and the public events of the generation are known to have been published.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from muster.audit.judge import heard
from muster.bus.errors import BusError
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.log import Body, JetStreamLog
from muster.bus.public import PublicPublisher
from muster.core.docket import Judge
from muster.core.stage import StageState
from muster.events import subjects
from muster.events.envelope import Stored
from muster.events.public import parse_ce_id
from muster.model.language import say
from muster.ports import LogIdentity, RollError
from muster.runtime.logkeeping.archive import ArchivedCommit, read_lines, read_manifest
from muster.runtime.logkeeping.rolling import restored, seats
from muster.runtime.logkeeping.snapshotting import decode_state
from muster.told.views.publication import public_event


class PruneError(Exception):
    """A generation cannot be deleted: what is in the way, and what to do."""


class Sealed(Struct, frozen=True):
    """A sealed generation that still has its stream: sequences, and size in bytes."""

    generation: int
    first: int
    last: int
    size: int


async def sealed(js: JetStream, identity: LogIdentity) -> list[Sealed]:
    """Every sealed generation that can be read, the oldest first."""
    firsts = [*(generation.first for generation in identity.earlier), identity.first]
    generations: list[Sealed] = []
    for generation, follows in zip(identity.earlier, firsts[1:], strict=True):
        info = await js.info(subjects.log_stream(identity.cell, generation.generation))
        generations.append(
            Sealed(generation.generation, generation.first, follows - 1, info.state.bytes if info is not None else 0)
        )
    return generations


def surplus(there: Sequence[Sealed], keep: int) -> Sequence[Sealed]:
    """The oldest ones, all but as many as may stay."""
    return there[: max(len(there) - keep, 0)]


async def deletable(js: JetStream, log: JetStreamLog, generation: int, folder: Path) -> Sealed:
    """The generation, if it may be deleted: ``folder`` is the archive with the log. Raises PruneError, ArchiveError."""
    identity = log.identity
    sealed = await _oldest(js, identity, generation)
    await _check_states(js, identity)
    await _check_archive(js, identity, sealed, folder)
    return sealed


async def delete(js: JetStream, log: JetStreamLog, sealed: Sealed) -> None:
    """Delete what :func:`deletable` returned. Raises BusError."""
    await js.delete(subjects.log_stream(log.identity.cell, sealed.generation))


async def _oldest(js: JetStream, identity: LogIdentity, generation: int) -> Sealed:
    """The generation, if it is the oldest and sealed."""
    there = await sealed(js, identity)
    cell = identity.cell
    if generation == identity.generation:
        raise PruneError(
            say(
                "generation {generation} of cell {cell} is in force: it can be deleted once `muster log "
                "roll` has sealed it and the next one goes on",
                generation=generation,
                cell=cell,
            )
        )
    if generation not in [kept.generation for kept in there]:
        names = ", ".join(str(kept.generation) for kept in there) or "none"
        raise PruneError(
            say(
                "cell {cell} has no sealed generation {generation} (sealed ones: {names}); see `muster log info`",
                cell=cell,
                generation=generation,
                names=names,
            )
        )
    if generation != there[0].generation:
        raise PruneError(
            say(
                "generation {generation} of cell {cell} comes after {oldest}, which is still there: "
                "delete the oldest first, so that what is left has no hole",
                generation=generation,
                cell=cell,
                oldest=there[0].generation,
            )
        )
    info = await js.info(subjects.log_stream(cell, generation))
    if info is None or not info.config.get("sealed"):
        raise PruneError(
            say(
                "generation {generation} of cell {cell} is not sealed; `muster log roll` seals one",
                generation=generation,
                cell=cell,
            )
        )
    return there[0]


async def _check_states(js: JetStream, identity: LogIdentity) -> None:
    """Check that the rest of the log can begin: with the states of the next generation, and of the generation in
    force.
    """
    generations = JetStreamGenerations(js, identity.cell)
    rest = replace(identity, earlier=identity.earlier[1:])
    for wanted in {rest.earlier[0].generation if rest.earlier else rest.generation, rest.generation}:
        try:
            base = await generations.base(await generations.as_it_began(identity, wanted))
            restored(base, seats())
        except (BusError, RollError) as err:
            raise PruneError(
                say(
                    "generation {wanted} would have nothing to begin with, so what is before it is still needed: {err}",
                    wanted=wanted,
                    err=err,
                )
            ) from err


async def _check_archive(js: JetStream, identity: LogIdentity, sealed: Sealed, folder: Path) -> None:
    """That the archive has the very bytes of the generation, and its public events have been published."""
    manifest = read_manifest(folder)
    if manifest.cell != identity.cell:
        raise PruneError(
            say(
                "{folder} is the archive of cell {cell}, and not of {wanted}",
                folder=folder,
                cell=manifest.cell,
                wanted=identity.cell,
            )
        )
    if manifest.end < sealed.last:
        raise PruneError(
            say(
                "{folder} ends at sequence {end}, and generation {generation} at {last}: bring it up to "
                "date with `muster export --segments {folder}`",
                folder=folder,
                end=manifest.end,
                generation=sealed.generation,
                last=sealed.last,
            )
        )
    mine = [segment for segment in manifest.segments if segment.last >= sealed.first and segment.first <= sealed.last]
    manifest.segments = mine
    lines = (line for line in read_lines(folder, manifest) if sealed.first <= line.seq <= sealed.last)
    old = next(ended for ended in identity.earlier if ended.generation == sealed.generation)
    stream = JetStreamLog(js, LogIdentity(identity.cell, old.log_id, old.generation, old.first))
    settled = parse_ce_id((await PublicPublisher(js, identity.cell).resume()).settled)
    known = (settled.generation, settled.sequence) if settled is not None else (0, 0)
    # What is void was never published, and is not waited for.
    judge = await _judge_of(js, identity, sealed.generation)
    async with contextlib.aclosing(stream.own_bodies(sealed.first - 1, sealed.last)) as bodies:
        async for body in bodies:
            _check_same(body, lines, folder)
            stored = judge.hear(heard(body.seq, body.subject, body.data, body.stored_at))
            if (sealed.generation, body.seq) > known:
                _check_published(identity, sealed, stored)


def _check_same(body: Body, lines: Iterator[ArchivedCommit], folder: Path) -> None:
    line = next(lines, None)
    if line is None or line.seq != body.seq or line.body != body.data:
        raise PruneError(
            say(
                "{folder} does not have sequence {seq} as the log has it: it is the archive of something "
                "else; take the right one, or begin a new one with `muster export --segments`",
                folder=folder,
                seq=body.seq,
            )
        )


async def _judge_of(js: JetStream, identity: LogIdentity, generation: int) -> Judge:
    """A judge that knows the states at the beginning of a generation."""
    generations = JetStreamGenerations(js, identity.cell)
    base = await generations.base(await generations.as_it_began(identity, generation))
    state = decode_state(base[0].body, StageState) if base else StageState()
    return Judge(state.docket, state.log_id, state.generation)


def _check_published(identity: LogIdentity, sealed: Sealed, stored: Stored) -> None:
    commit = stored.commit
    for index, event in enumerate(commit.events):
        if public_event(identity.cell, sealed.generation, stored.seq, index, commit.at, event) is not None:
            raise PruneError(
                say(
                    "the publisher has not published sequence {seq} of generation {generation}: wait until "
                    "the publisher has caught up, or start it",
                    seq=stored.seq,
                    generation=sealed.generation,
                )
            )
