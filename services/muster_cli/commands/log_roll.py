"""``muster log roll``."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from muster.bus.cell import own_genesis
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.marks import give_up, hear_marks
from muster.bus.snapshots import JetStreamSnapshots
from muster.events.wire import FOLDS, WIRE
from muster.model.language import listed, say
from muster.model.text import counted
from muster.ports import LogIdentity
from muster.runtime.clock import SystemClock
from muster.runtime.layouts import USERS
from muster.runtime.logkeeping.rolling import kept_snapshots, roll
from muster_cli.console import Output
from muster_cli.exits import FAILED, OK, USAGE, VIOLATED, CliError
from muster_cli.marking import short
from muster_cli.options import Bus
from muster_cli.reading import connected, locate, tell_which


async def log_roll(
    *,
    complete: Annotated[
        bool,
        Parameter(negative="", help="Only finish a roll-over that broke off; do nothing where none did."),
    ] = False,
    reason: Annotated[str, Parameter(show_default=False, help="The reason; the log records it with your name.")] = "",
    wire: Annotated[
        int,
        Parameter(
            show_default=False,
            help="Go back: the next generation is for builds of this wire (`muster version`), and begins from the "
            "cluster. Services of this build go forward again, so give them the other image first.",
        ),
    ] = WIRE,
    from_cluster: Annotated[
        bool,
        Parameter(
            negative="",
            help="Begin the next generation from the state of the cluster, where this build cannot read the states "
            "that the log begins with: running jobs are adopted, and waiting jobs keep their order.",
        ),
    ] = False,
    bus: Bus | None = None,
) -> int:
    """Roll a log over to its next generation."""
    place = locate(bus)
    out = Output()
    tell_which(out, place)
    async with connected(place) as js:
        generations = JetStreamGenerations(js, place.config.cell)
        log, sealed = await generations.current()
        identity = log.identity
        if complete and not sealed:
            out.line(
                say(
                    "Generation {generation} of cell {cell} is not sealed: nothing to finish.",
                    generation=identity.generation,
                    cell=identity.cell,
                )
            )
            return OK
        if (await hear_marks(js, log, USERS)).agrees:
            out.line(say("The log lost commits that were read: nothing is built on it. See `muster log recover`."))
            return FAILED
        kept = await kept_snapshots(JetStreamSnapshots(js, identity, warn=lambda _: None))
        by = short(os.environ.get("USER") or "unknown")
        begun = await own_genesis(js, identity.cell, identity.generation, identity.first)
        if wire != WIRE and begun is not None and begun.wire == wire and not from_cluster and not sealed:
            out.line(
                say(
                    "Generation {generation} of cell {cell} has wire {wire} already: nothing to do.",
                    generation=identity.generation,
                    cell=identity.cell,
                    wire=wire,
                )
            )
            return OK
        if from_cluster or wire != WIRE:
            made = await _from_cluster(js, identity, wire, by, short(reason))
            out.line(
                say(
                    "Generation {generation} of cell {cell} is sealed; generation {next} (log {log_id}) has "
                    "wire {wire} and begins from the cluster: running jobs are adopted, and waiting jobs "
                    "keep their order.",
                    generation=identity.generation,
                    cell=identity.cell,
                    next=made.generation,
                    log_id=made.log_id,
                    wire=wire,
                )
            )
            return OK
        done = await roll(generations, clock=SystemClock(), snapshots=kept, by=by, reason=short(reason))
    before = say("was sealed already; ") if sealed else ""
    out.line(
        say(
            "Generation {generation} of cell {cell} {before}ended at sequence {end}; generation "
            "{next} (log {log_id}) goes on at {first}.",
            generation=done.before.generation,
            cell=identity.cell,
            before=before,
            end=done.end,
            next=done.after.generation,
            log_id=done.after.log_id,
            first=done.after.first,
        )
    )
    out.line(
        say(
            "{snapshots} of the stages compared with the log, {unlike} differ.",
            snapshots=counted(done.compared, "snapshot"),
            unlike=len(done.unlike),
        )
    )
    for seat in done.unlike:
        out.line(say("  {seat} differs from the log: the next generation begins with the state of the log.", seat=seat))
    return VIOLATED if done.unlike else OK


async def _from_cluster(js: JetStream, identity: LogIdentity, wire: int, by: str, reason: str) -> LogIdentity:
    """The next generation, from the state of the cluster; builds of an earlier wire cannot read the states that this
    build folds. Raises CliError for a wire that this build does not know.
    """
    if wire not in FOLDS or wire > WIRE:
        known = listed(str(number) for number in sorted(FOLDS))
        raise CliError(
            say("this build knows the wires {known}: --wire {wire} is none of these", known=known, wire=wire), USAGE
        )
    return await give_up(
        js,
        identity,
        SystemClock().now(),
        by=by,
        reason=reason or say("from the cluster, for wire {wire}", wire=wire),
        wire=wire,
    )
