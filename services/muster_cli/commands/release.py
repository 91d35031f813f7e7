"""``muster release``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from muster.core.objects.meta import HOLD
from muster.model.language import say
from muster_cli.console import Output
from muster_cli.exits import OK
from muster_cli.levers import lever, standing_line
from muster_cli.options import Bus, ClusterOption, Job


async def release(
    job: Job,
    /,
    *,
    reason: Annotated[str, Parameter(show_default=False, help="Why; kept on the job.")] = "",
    cluster: ClusterOption | None = None,
    bus: Bus | None = None,
) -> int:
    """Let a held job queue again."""
    out = Output()
    async with lever(job, out, bus, cluster) as handle:
        if not handle.workload.wishes.hold:
            ref = handle.workload.ref
            out.line(say("{kind} {key} is not held; nothing is changed", kind=ref.kind, key=ref.key))
            out.line(standing_line(handle.state, handle.uid))
            return OK
        return await handle.pull(out, {HOLD: None}, reason, say("is released"))
