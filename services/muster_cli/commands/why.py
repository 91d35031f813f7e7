"""``muster why``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from muster.told.views.tellings import NamedTale
from muster_cli.console import Output
from muster_cli.meant import answered
from muster_cli.named import named
from muster_cli.options import At, Document, GatewayOption, Source
from muster_cli.render.told import print_told

if TYPE_CHECKING:
    from muster_cli.gateway import Gateway


async def why(
    job: Annotated[
        str,
        Parameter(help="NAMESPACE/NAME, or NAME where that is unique; KIND/ before it if need be; or a pod or queue."),
    ],
    /,
    *,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Every small step too.")] = False,
    at: At = "",
    output: Document = "text",
    source: Source | None = None,
    through: GatewayOption | None = None,
) -> None:
    """Tell why a job waits, or what became of it; why a pod does not run; why the share of a queue is what it is."""
    out = Output()
    kind, wanted = named(job.rpartition(" ")[2])

    async def ask(gateway: Gateway) -> NamedTale:
        from muster_cli.gatewayquestions import told_of

        return await told_of(gateway, kind, wanted)

    async def read() -> NamedTale:
        from muster_cli.telling import told

        return await told(source, out, at, kind, wanted)

    print_told(out, await answered(through, source, at, ask, read), every=every, output=output)
