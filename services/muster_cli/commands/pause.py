"""``muster pause``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from muster.model.language import say
from muster_cli.console import Output
from muster_cli.options import Bus, ClusterOption, Reason
from muster_cli.pausing import WORDS, What, pausing, switchboard


async def pause(
    what: Annotated[What, Parameter(help="Evictions, or admissions.")],
    /,
    *,
    reason: Reason,
    queue: Annotated[
        str, Parameter(show_default=False, help="Only this queue, by its full path, or all queues below this path.")
    ] = "",
    cluster: ClusterOption | None = None,
    bus: Bus | None = None,
) -> int:
    """Pause evictions or admissions."""
    out = Output()
    async with switchboard(queue, out, bus, cluster) as (board, _):
        code = await board.turn(
            out, pausing(what, board.by, reason), say("{by} pauses {what}", by=board.by, what=say(WORDS[what]))
        )
    out.line(
        say(
            "Until `muster resume {what}{where}`; running jobs run on",
            what=what,
            where=f" --queue {queue}" if queue else "",
        )
    )
    return code
