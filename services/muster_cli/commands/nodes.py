"""``muster nodes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from muster.serving.shapes import NodesView
from muster_cli.console import Output
from muster_cli.meant import answered
from muster_cli.options import At, Form, GatewayOption, Source
from muster_cli.render.nodes import node_lines

if TYPE_CHECKING:
    from muster_cli.gateway import Gateway


async def nodes(
    *,
    at: At = "",
    output: Form = "table",
    source: Source | None = None,
    through: GatewayOption | None = None,
) -> None:
    """List the nodes."""
    out = Output()

    async def ask(gateway: Gateway) -> NodesView:
        from muster_cli.gatewayquestions import nodes_of

        return await nodes_of(gateway)

    async def read() -> NodesView:
        from muster.serving import views
        from muster.serving.scope import EVERYTHING, Lens
        from muster_cli.folding import read_at

        reading = await read_at(source, out, at, promising=False)
        state, now = reading.state, max(reading.state.now, reading.present)
        lens, moment = Lens(EVERYTHING, state), views.moment_of(state, now, live=not at)
        return views.nodes(state, lens, moment, limit=len(state.nodes.nodes))

    view = await answered(through, source, at, ask, read)
    if output in ("table", "wide"):
        out.lines(node_lines(view, wide=output == "wide", width=200 if output == "wide" else out.width))
    elif output == "name":
        out.lines([node.name for node in view.nodes])
    else:
        out.data(msgspec.to_builtins(view), "json" if output == "json" else "yaml")
