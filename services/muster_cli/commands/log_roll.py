"""``muster log roll``."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from muster.bus.generations import JetStreamGenerations
from muster.bus.marks import hear_marks
from muster.bus.snapshots import JetStreamSnapshots
from muster.model.text import counted
from muster.runtime.clock import SystemClock
from muster.runtime.layouts import USERS
from muster.runtime.logkeeping.rolling import kept_snapshots, roll
from muster_cli.console import Output
from muster_cli.exits import FAILED, OK, VIOLATED
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
            out.line(f"Generation {identity.generation} of cell {identity.cell} is not sealed: nothing to finish.")
            return OK
        if (await hear_marks(js, log, USERS)).agrees:
            out.line("The log lost commits that were read: nothing is built on it. See `muster log recover`.")
            return FAILED
        kept = await kept_snapshots(JetStreamSnapshots(js, identity, warn=lambda _: None))
        by = short(os.environ.get("USER") or "unknown")
        done = await roll(generations, clock=SystemClock(), snapshots=kept, by=by, reason=short(reason))
    begun = "was sealed already; " if sealed else ""
    out.line(
        f"Generation {done.before.generation} of cell {identity.cell} {begun}ended at sequence {done.end}; "
        f"generation {done.after.generation} (log {done.after.log_id}) goes on at {done.after.first}."
    )
    out.line(f"{counted(done.compared, 'snapshot')} of the stages compared with the log, {len(done.unlike)} differ.")
    for seat in done.unlike:
        out.line(f"  {seat} differs from the log: the next generation begins with the state of the log.")
    return VIOLATED if done.unlike else OK
