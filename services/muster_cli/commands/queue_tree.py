"""``muster queue tree``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from muster.model.language import listed, say
from muster.serving.boards import Board, BoardNode, record
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.meant import answered
from muster_cli.options import At, Form, GatewayOption, Source
from muster_cli.render.queues import tree_lines

if TYPE_CHECKING:
    from muster_cli.gateway import Gateway


async def queue_tree(
    *,
    under: Annotated[str, Parameter(show_default=False, help="Only this quota path and what is below it.")] = "",
    at: At = "",
    output: Form = "table",
    source: Source | None = None,
    through: GatewayOption | None = None,
) -> None:
    """Show the quota tree."""
    out = Output()
    board = await board_at(out, at, source, through)
    nodes = chosen(board, under)
    if output in ("table", "wide"):
        out.lines(tree_lines(board, nodes, unicode=out.unicode, width=200 if output == "wide" else out.width))
    elif output == "name":
        out.lines([node.path for node in nodes])
    else:
        out.data(record(board, nodes), "json" if output == "json" else "yaml")


async def board_at(out: Output, at: str, source: Source | None, through: GatewayOption | None) -> Board:
    """The board of all queues, from the gateway or from the log."""

    async def ask(gateway: Gateway) -> Board:
        from muster_cli.gatewayquestions import board_of

        return await board_of(gateway)

    async def read() -> Board:
        from muster.serving.board import board_of
        from muster_cli.folding import read_at

        return board_of((await read_at(source, out, at, promising=False)).state)

    return await answered(through, source, at, ask, read)


def chosen(board: Board, under: str) -> list[BoardNode]:
    """The nodes at and below a path; all for an empty path. Raises CliError when the path does not exist."""
    path = under.rstrip("/")
    nodes = [node for node in board.nodes if not path or node.path == path or node.path.startswith(f"{path}/")]
    if path and not nodes:
        known = listed(node.path for node in board.nodes[:20]) or say("none, because no tree is in force")
        raise CliError(say("there is no quota {path}; there are {known}", path=path, known=known), NOT_FOUND)
    return nodes
