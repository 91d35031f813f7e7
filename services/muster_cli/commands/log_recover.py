"""``muster log recover``."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from muster.bus.cell import open_log
from muster.bus.jetstream import JetStream
from muster.bus.marks import LOST, JetStreamMarks, give_up, hear_marks
from muster.events import subjects
from muster.model.language import say
from muster.model.text import counted, few
from muster.ports import LogIdentity
from muster.runtime.clock import SystemClock
from muster.runtime.layouts import USERS, user_of
from muster.runtime.pairing import recorded_cluster
from muster_cli.console import Output
from muster_cli.exits import FAILED, OK
from muster_cli.marking import short
from muster_cli.options import Bus
from muster_cli.reading import connected, locate, tell_which


async def log_recover(
    *,
    yes: Annotated[
        bool, Parameter(negative="", help="Found the next generation, where a process misses commits.")
    ] = False,
    distrust: Annotated[
        str,
        Parameter(help="Withdraw first what this user of NATS says it read: its key was in other hands."),
    ] = "",
    bus: Bus | None = None,
) -> int:
    """Give up a log that lost commits."""
    place = locate(bus)
    out = Output()
    tell_which(out, place)
    async with connected(place) as js:
        log = await open_log(js, place.config.cell)
        identity = log.identity
        if distrust and not await _withdrawn(JetStreamMarks(js, identity.cell), identity, user_of(distrust), out):
            return FAILED
        testimony = await hear_marks(js, log, USERS)
        if not testimony.begins:
            out.line(say("the log does not have its first commit: NATS lost all of it"))
        missing = await _missing(js, identity)
        if missing:
            out.line(missing)
        for user, mark in testimony.lost.items():
            out.line(
                say("{user} has read the log up to sequence {seq}, and that is not in it", user=user, seq=mark.seq)
            )
        known = await recorded_cluster(js, identity)
        others = counted(len(testimony.shown), "process", "processes")
        set_back = known.set_back if known is not None else ""
        if set_back:
            out.line(set_back)
        if testimony.whole and not set_back and not missing:
            out.line(say("The log holds all that {others} read of it: nothing to recover.", others=others))
            return OK
        if not yes:
            out.line(
                say(
                    "{others} read nothing that is missing. With --yes the log starts again from the state "
                    "of the cluster: running jobs are adopted, and the waiting jobs keep their order.",
                    others=others,
                )
            )
            return FAILED
        by = short(os.environ.get("USER") or "unknown")
        made = await give_up(
            js,
            identity,
            SystemClock().now(),
            by=by,
            reason=set_back or missing or LOST,
            generation=known.generation if known is not None else 0,
            parent=known.parent if known is not None else "",
        )
    out.line(
        say(
            "Generation {generation} of cell {cell} (log {log_id}) is in force, from the cluster.",
            generation=made.generation,
            cell=made.cell,
            log_id=made.log_id,
        )
    )
    return OK


async def _missing(js: JetStream, identity: LogIdentity) -> str:
    """Which messages the leading copy lacks between its first and its last; empty where it is whole.

    The keeper rebuilds a copy like that from a whole one: what is missing for longer is in no copy.
    """
    info = await js.info(subjects.log_stream(identity.cell, identity.generation))
    if info is None:
        return ""
    number = info.state.last_seq - identity.first + 1 - info.state.messages
    return (
        say(
            "the log lacks {commits} before sequence {last_seq}",
            commits=counted(number, "commit"),
            last_seq=info.state.last_seq,
        )
        if number > 0
        else ""
    )


async def _withdrawn(marks: JetStreamMarks, identity: LogIdentity, user: str, out: Output) -> bool:
    """Withdraw the mark of a user, and say so."""
    mark = await marks.withdraw(user)
    if mark is None:
        others = few(sorted(await marks.of(identity))) or "none"
        out.line(
            say(
                "There is no mark of {user} to withdraw, or it is written just now. There are those of: {others}.",
                user=user,
                others=others,
            )
        )
        return False
    out.line(say("The mark of {user}, at sequence {seq}, is withdrawn.", user=user, seq=mark.seq))
    return True
