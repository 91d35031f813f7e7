"""``muster queue ls``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from muster.serving.boards import record
from muster_cli.commands.queue_tree import board_at, chosen
from muster_cli.console import Output
from muster_cli.options import At, Form, GatewayOption, Source
from muster_cli.render.queues import list_lines


async def queue_ls(
    *,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Inner nodes of the tree too.")] = False,
    at: At = "",
    output: Form = "table",
    source: Source | None = None,
    through: GatewayOption | None = None,
) -> None:
    """List the queues."""
    out = Output()
    board = await board_at(out, at, source, through)
    nodes = [node for node in chosen(board, "") if node.leaf or every]
    if output in ("table", "wide"):
        out.lines(list_lines(board, nodes, width=200 if output == "wide" else out.width))
    elif output == "name":
        out.lines([node.path for node in nodes])
    else:
        out.data(record(board, nodes), "json" if output == "json" else "yaml")
