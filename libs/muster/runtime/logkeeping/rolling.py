"""Rolling a log over: the generation in force is sealed, and the next generation begins with the state of every stage.

All possible work is done while the old generation still takes commits: room for the next is reserved, and the old
generation is read from its beginning and folded into every state. Then the generation is sealed, the rest is read, the
states are kept, and the next generation is founded on the states. Sequences go on counting, so causes and intents keep
their meaning.

A crash before the seal leaves everything unchanged; after the seal, the next try completes the roll-over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from muster.core.actuation.intents import Actuator
from muster.core.cell.deciders import DECIDERS
from muster.core.cell.seats import AnySeat, Seat
from muster.core.reading.watched import WATCHED
from muster.core.reading.watcher import Watcher
from muster.core.stage import Stage, StageState
from muster.events.envelope import Stored, body_hash
from muster.model.language import say
from muster.ports import (
    Clock,
    Fingerprint,
    Generations,
    Log,
    LogIdentity,
    LogSealedError,
    RollError,
    Snapshot,
    Snapshots,
)
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state, make_snapshot, state_schema
from muster.told.readmodel.model import ReadModel

StageShard = tuple[str, str]
"""(stage, shard)"""


class Rolled(Struct, frozen=True):
    """What was done. ``end``: last sequence of the old generation; ``unlike``: snapshots the log contradicts."""

    before: LogIdentity
    after: LogIdentity
    end: int
    compared: int = 0
    unlike: tuple[str, ...] = ()


class SnapshotTally(Struct):
    """How often a snapshot that a running stage kept was compared with the log, and which were found wrong."""

    compared: int = 0
    unlike: list[str] = field(default_factory=list)


def seats() -> dict[StageShard, Stage[Any]]:
    """Everything that keeps a state of the log, whether it runs in this cell or not."""
    made: dict[StageShard, Stage[Any]] = {("watcher", shard): Watcher(shard) for shard in WATCHED}
    made |= {(name, "0"): make() for name, make in DECIDERS.items()}
    others: tuple[Stage[Any], ...] = (Actuator(), ReadModel())
    return made | {(stage.name, "0"): stage for stage in others}


class States:
    """The state of every seat, folded side by side."""

    def __init__(self, base: Sequence[Snapshot] = ()) -> None:
        stages = seats()
        begun = restored(base, stages) if base else {}
        self._seats: dict[StageShard, AnySeat] = {key: Seat(stage, begun.get(key)) for key, stage in stages.items()}
        self._kept: dict[StageShard, Fingerprint] = {}
        self.tally = SnapshotTally()

    @property
    def states(self) -> dict[StageShard, StageState]:
        return {key: seat.state for key, seat in self._seats.items()}

    @property
    def seq(self) -> int:
        newest: int = next(iter(self._seats.values())).state.seq
        return newest

    @property
    def prefix(self) -> str:
        """The rolling hash of the folded commits."""
        state = next(iter(self._seats.values())).state
        hash_: str = state.docket.hash_at(state.seq, state.seq)
        return hash_

    def compare_with(self, kept: Mapping[StageShard, Fingerprint]) -> None:
        """Snapshots of running stages: each snapshot is compared when its position is reached."""
        self._kept = dict(kept)

    def fold(self, stored: Stored) -> None:
        for key, seat in self._seats.items():
            seat.fold(stored)
            kept = self._kept.get(key)
            if kept is not None and kept.seq == stored.seq:
                self._compare(key, kept)

    def _compare(self, seat: StageShard, kept: Fingerprint) -> None:
        state = self._seats[seat].state
        if kept.schema != state_schema(type(state)):
            return
        self.tally.compared += 1
        if body_hash(encode_state(state)) != kept.digest:
            self.tally.unlike.append(f"{'/'.join(seat)} at {kept.seq}")

    def snapshots(self, identity: LogIdentity) -> list[Snapshot]:
        """All states as of now; a state that does not return from its encoding is refused."""
        made = [make_snapshot(identity, *seat, state) for seat, state in sorted(self.states.items())]
        for snapshot, (_, state) in zip(made, sorted(self.states.items()), strict=True):
            if encode_state(decode_state(snapshot.body, type(state))) != snapshot.body:
                raise RollError(
                    say(
                        "the state of {stage}/{shard} does not survive being kept",
                        stage=snapshot.stage,
                        shard=snapshot.shard,
                    )
                )
        return made


def restored(base: Sequence[Snapshot], stages: Mapping[StageShard, Stage[Any]]) -> dict[StageShard, StageState]:
    """The states a generation began with, for every seat. Raises RollError for a state that this build cannot read."""
    states: dict[StageShard, StageState] = {}
    by_seat = {(snapshot.stage, snapshot.shard): snapshot for snapshot in base}
    for seat, stage in stages.items():
        kind = type(stage.initial())
        kept = by_seat.get(seat)
        if kept is None or kept.schema != state_schema(kind):
            raise RollError(
                say(
                    "the state of {seat} that the log begins with is not one of this version's; use the "
                    "version that wrote it, or begin from the cluster: `muster log roll --from-cluster`",
                    seat="/".join(seat),
                )
            )
        states[seat] = decode_state(kept.body, kind)
    return states


async def roll(
    generations: Generations,
    *,
    clock: Clock,
    snapshots: Mapping[StageShard, Fingerprint] | None = None,
    by: str = "",
    reason: str = "",
    only: LogIdentity | None = None,
) -> Rolled:
    """Roll the log over, or complete an interrupted roll-over. ``snapshots``: of the running stages, to compare;
    ``by`` and ``reason`` are recorded in the log; ``only``: the intended generation, which another process may have
    rolled over meanwhile.

    Raises RollError, LogGoneError, LogSealedError when another generation than ``only`` is in force, and the errors of
    the bus.
    """
    log, sealed = await generations.current()
    identity = log.identity
    if only is not None and identity != only:
        raise LogSealedError(f"generation {identity.generation} of the log is in force: go on with that")
    states = await _begin(generations, log)
    states.compare_with(snapshots or {})
    if not sealed:
        # Nothing is sealed whose successor has no place: decisions would stop with it.
        await generations.reserve(identity)
        await _read(log, states, None)
    end = await generations.seal(identity)
    await _read(log, states, end)
    digest = await generations.keep(states.snapshots(identity))
    now = max(clock.now(), *(state.now for state in states.states.values()))
    after = await generations.succeed(identity, end, digest, now, by=by, reason=reason, prefix=states.prefix)
    return Rolled(identity, after, end, states.tally.compared, tuple(states.tally.unlike))


async def kept_snapshots(snapshots: Snapshots) -> dict[StageShard, Fingerprint]:
    """The last snapshots of running stages: no body is read, of any size."""
    fingerprints = {seat: await snapshots.newest(*seat) for seat in seats()}
    return {seat: kept for seat, kept in fingerprints.items() if kept is not None}


async def _begin(generations: Generations, log: Log) -> States:
    """The states this generation began with; all there is from the very beginning where those are of no use."""
    identity = log.identity
    base = await generations.base(identity)
    try:
        return States(base)
    except RollError:
        if identity.origin != 1:
            raise
        return States()


async def _read(log: Log, states: States, end: int | None) -> None:
    """Fold up to a sequence; without one up to where the log ends now."""
    if end is not None and states.seq >= end:
        return
    async with contextlib.aclosing(log.follow(states.seq)) as stream:
        async for batch in stream:
            for stored in batch:
                states.fold(stored)
            if (not batch and end is None) or (end is not None and states.seq >= end):
                return
