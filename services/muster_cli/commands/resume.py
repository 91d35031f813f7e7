"""``muster resume``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from muster.model.language import say, upper
from muster_cli.console import Output
from muster_cli.options import Bus, ClusterOption
from muster_cli.pausing import WORDS, What, reclaim_is_off, resuming, switchboard


async def resume(
    what: Annotated[What, Parameter(help="Evictions, or admissions.")],
    /,
    *,
    reason: Annotated[str, Parameter(show_default=False, help="Why; kept with your name on the object.")] = "",
    queue: Annotated[
        str, Parameter(show_default=False, help="Only this queue, by its full path, or all queues below this path.")
    ] = "",
    cluster: ClusterOption | None = None,
    bus: Bus | None = None,
) -> int:
    """Resume evictions or admissions."""
    out = Output()
    async with switchboard(queue, out, bus, cluster) as (board, reading):
        enable = what == "evictions" and not queue and await reclaim_is_off(reading)
        code = await board.turn(
            out,
            resuming(what, by=board.by, reason=reason, enable=enable),
            say("{by} resumes {what}", by=board.by, what=say(WORDS[what])),
        )
        if enable:
            out.line(
                say(
                    "Reclaim is enabled; it was off because jobs that Muster had not admitted were running "
                    "at first sight"
                )
            )
        for path in [target.path for target in board.targets]:
            rest = set(board.present.state.queues.resting(path))
            if what in rest:
                out.line(
                    say(
                        "{subject} stay paused in {path} by the tree: `muster resume {what}` for all",
                        subject=upper(say(WORDS[what])),
                        path=path,
                        what=what,
                    )
                )
    return code
