"""``muster nodes``."""

from __future__ import annotations

import msgspec

from muster.serving import views
from muster.serving.scope import EVERYTHING, Lens
from muster_cli.console import Output
from muster_cli.folding import read_at
from muster_cli.options import At, Form
from muster_cli.render.nodes import node_lines
from muster_cli.sources import Source


async def nodes(
    *,
    at: At = "",
    output: Form = "table",
    source: Source | None = None,
) -> None:
    """List the nodes."""
    out = Output()
    read = await read_at(source, out, at, promising=False)
    state, now = read.state, max(read.state.now, read.present)
    lens, moment = Lens(EVERYTHING, state), views.moment_of(state, now, live=not at)
    view = views.nodes(state, lens, moment, limit=len(state.nodes.nodes))
    if output in ("table", "wide"):
        out.lines(node_lines(view, wide=output == "wide", width=200 if output == "wide" else out.width))
    elif output == "name":
        out.lines([node.name for node in view.nodes])
    else:
        out.data(msgspec.to_builtins(view), "json" if output == "json" else "yaml")
