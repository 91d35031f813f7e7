"""``muster story``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from muster.model.language import say
from muster.told.views.tellings import KEPT, QueueTale
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.meant import answered, through_gateway
from muster_cli.options import Document, GatewayOption, Source
from muster_cli.positions import window
from muster_cli.render.queuestories import SHOWN, tale_lines, tale_record

if TYPE_CHECKING:
    from muster_cli.gateway import Gateway


async def story(
    queue: Annotated[str, Parameter(help="Path of a queue, or the end of one that is unique: root/algorithm/video.")],
    /,
    *,
    from_: Annotated[
        str, Parameter(name="--from", show_default=False, help="Tell what happened from this sequence or time on.")
    ] = "",
    until: Annotated[
        str,
        Parameter(show_default=False, help="Stop after this sequence or time; the state is the one of that position."),
    ] = "",
    output: Document = "text",
    source: Source | None = None,
    through: GatewayOption | None = None,
) -> None:
    """Tell what happened in a queue."""
    begin, end = window(from_, until)
    out, wanted, most = Output(), queue.strip("/"), SHOWN if output == "text" else KEPT
    if begin is not None and through_gateway(through, source):
        raise CliError(say("--from reads the log, and a gateway tells what is kept: leave it out"), USAGE)

    async def ask(gateway: Gateway) -> QueueTale:
        from muster_cli.gatewayquestions import tale_of

        return await tale_of(gateway, wanted, most)

    async def read() -> QueueTale:
        from muster_cli.queuetales import told

        return await told(begin, end, wanted, source, out, most)

    tale = await (read() if begin is not None else answered(through, source, until, ask, read))
    if output == "text":
        out.lines(tale_lines(tale, out.width))
    else:
        out.data(tale_record(tale), output)
