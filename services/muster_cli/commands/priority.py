"""``muster priority``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from muster.core.objects.meta import PRIORITY
from muster.model.language import say
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.levers import HIGHEST, lever
from muster_cli.options import Bus, ClusterOption, Job, Reason


async def priority(
    job: Job,
    number: Annotated[
        int, Parameter(allow_leading_hyphen=True, help="The priority: higher goes first. A 32-bit integer.")
    ],
    /,
    *,
    reason: Reason,
    cluster: ClusterOption | None = None,
    bus: Bus | None = None,
) -> int:
    """Give a job another priority."""
    if not -HIGHEST - 1 <= number <= HIGHEST:
        raise CliError(
            say(
                "{number} is no priority: take a number from {lowest} to {highest}",
                number=number,
                lowest=-HIGHEST - 1,
                highest=HIGHEST,
            ),
            USAGE,
        )
    out = Output()
    async with lever(job, out, bus, cluster) as handle:
        return await handle.pull(out, {PRIORITY: str(number)}, reason, say("has priority {number}", number=number))
