"""``muster jump``."""

from __future__ import annotations

from muster.core.objects.meta import PRIORITY
from muster.model.language import say
from muster_cli.console import Output
from muster_cli.exits import OK
from muster_cli.levers import above_all, lever, standing_line
from muster_cli.options import Bus, ClusterOption, Job, Reason


async def jump(job: Job, /, *, reason: Reason, cluster: ClusterOption | None = None, bus: Bus | None = None) -> int:
    """Put a waiting job first in its queue."""
    out = Output()
    async with lever(job, out, bus, cluster) as handle:
        number = above_all(handle.state, handle.uid)
        if number is None:
            ref = handle.workload.ref
            out.line(
                say("{kind} {key} is the first of its queue already; nothing is changed", kind=ref.kind, key=ref.key)
            )
            out.line(standing_line(handle.state, handle.uid))
            return OK
        return await handle.pull(
            out, {PRIORITY: str(number)}, reason, say("jumps its queue with priority {number}", number=number)
        )
