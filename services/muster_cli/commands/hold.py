"""``muster hold``."""

from __future__ import annotations

from muster.core.objects.meta import HOLD
from muster.model.language import say
from muster_cli.console import Output
from muster_cli.levers import lever
from muster_cli.options import Bus, ClusterOption, Job, Reason


async def hold(job: Job, /, *, reason: Reason, cluster: ClusterOption | None = None, bus: Bus | None = None) -> int:
    """Keep a job out of its queue."""
    out = Output()
    async with lever(job, out, bus, cluster) as handle:
        return await handle.pull(out, {HOLD: "true"}, reason, say("is on hold"))
