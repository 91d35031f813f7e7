"""The quota tree with bars, and the list of queues."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.text import Text

from muster.model.language import listed, say
from muster.model.quota import KAI_ROOT, ROOT
from muster.model.resources import format_part, format_quantity, format_vector
from muster.model.text import counted, moment
from muster.serving.boards import Amount, Board, BoardNode
from muster_cli.console import BAD, DIM, GOOD, STRONG, WARN, columns, styled

BAR_WIDTH = 20
NARROW = 100
"""Below this many columns bars are short, and text that does not fit beside a node or a queue is below."""
SHORT_BAR = 8


class Strokes:
    """What trees and bars are drawn with."""

    def __init__(self, *, unicode: bool) -> None:
        self.full, self.empty, self.mark = ("█", "░", "┃") if unicode else ("#", ".", "|")
        self.fork, self.corner, self.line = ("├─ ", "└─ ", "│  ") if unicode else ("|- ", "`- ", "|  ")


def tree_lines(board: Board, nodes: Sequence[BoardNode], *, unicode: bool = True, width: int = 200) -> list[Text]:
    """The tree: a line per node and resource, with a bar that is as long as the node's max. ``width``: columns."""
    if not board.tree:
        return [Text(say("No quota tree is in force: apply an ElasticQuotaTree in kube-system.")), *_notes(board)]
    strokes, narrow = Strokes(unicode=unicode), width < NARROW
    title = styled(*_whose(board), ("," if narrow else f", {as_of(board)}", DIM))
    lines = [title, *([styled((as_of(board), DIM))] if narrow else []), Text()]
    rows: list[list[Text | str]] = []
    for stem, below, node in _stems(nodes, strokes):
        shown = [amount for amount in node.amounts if amount.used or amount.guaranteed or amount.limit != 0]
        for index, amount in enumerate(shown or node.amounts[:1]):
            first = index == 0
            name = styled((stem, DIM), (node.name, STRONG)) if first else styled((below, DIM))
            used, least = _numbers(amount)
            if narrow:
                rows.append([name, amount.resource.rpartition("/")[2], bar(amount, strokes, SHORT_BAR), used])
            else:
                rows.append([name, amount.resource, bar(amount, strokes), used, least, _jobs(node) if first else ""])
        if narrow and (jobs := _jobs(node)):
            rows.append([Text.assemble((below, DIM), "  ", jobs)])
        if not node.amounts and not narrow:
            rows.append([styled((stem, DIM), (node.name, STRONG)), "", "", "", "", _jobs(node)])
    lines += columns(rows)
    return lines + _notes(board)


def _whose(board: Board) -> list[tuple[str, str]]:
    """The owner of the nodes: a tree by its name, KAI queues, or both."""
    kai = any(node.path == KAI_ROOT for node in board.nodes)
    tree = (
        [(say("ElasticQuotaTree "), DIM), (board.tree, STRONG)]
        if any(node.path == ROOT for node in board.nodes)
        else []
    )
    return [*tree, *([(say(" and "), DIM)] if tree and kai else []), *([(say("KAI queues"), STRONG)] if kai else [])]


def _stems(nodes: Sequence[BoardNode], strokes: Strokes) -> list[tuple[str, str, BoardNode]]:
    """Each node with the strokes before the name, and before further lines."""
    rows: list[tuple[str, str, BoardNode]] = []
    open_at: dict[int, bool] = {}
    top = nodes[0].depth if nodes else 0
    for node in nodes:
        depth = node.depth - top
        open_at[depth] = not node.last
        before = "".join(strokes.line if open_at.get(level) else "   " for level in range(1, depth))
        own = (strokes.corner if node.last else strokes.fork) if depth else ""
        under = (strokes.line if depth and not node.last else "   " if depth else "") + (
            strokes.line if not node.leaf else ""
        )
        rows.append((before + own, before + under, node))
    return rows


def bar(amount: Amount, strokes: Strokes, width: int = BAR_WIDTH) -> Text:
    """Used of max; the mark shows the guaranteed min where it is neither nothing nor all."""
    if amount.limit is None:
        return styled((say("no max").ljust(width), DIM))
    filled = _cells(amount.used, amount.limit, width)
    colour = BAD if amount.over else WARN if amount.borrowed else GOOD
    cells = [(strokes.full, colour)] * filled + [(strokes.empty, DIM)] * (width - filled)
    mark = _cells(amount.guaranteed, amount.limit, width)
    if 0 < mark < width:
        cells[mark] = (strokes.mark, STRONG)
    return styled(*cells)


def _cells(part: int, whole: int, width: int) -> int:
    """The cells of a part in a bar: at least one for any amount, all only for the whole."""
    if part <= 0:
        return 0
    if whole <= 0 or part >= whole:
        return width
    return min(max(part * width // whole, 1), width - 1)


def _numbers(amount: Amount) -> tuple[Text, Text]:
    used = format_part(amount.used, amount.limit, amount.resource)
    least = styled((say("min {least}", least=format_quantity(amount.guaranteed, amount.resource)), DIM))
    return styled((used, BAD if amount.over else "")), least


def _jobs(node: BoardNode) -> Text:
    parts: list[tuple[str, str]] = []
    if node.waiting:
        parts.append((say("{waiting} waiting", waiting=node.waiting), WARN))
    if node.running:
        parts.append((say("{running} running", running=node.running), GOOD))
    if node.admitted > node.running:
        parts.append((say("{admitted} starting or ending", admitted=node.admitted - node.running), DIM))
    if node.beyond:
        parts.append((say("{beyond} beyond what was granted", beyond=format_vector(node.beyond)), BAD))
    if node.workers is not None:
        granted = counted(node.workers.granted, "Ray worker")
        more = say(", {asked} more asked for", asked=node.workers.asked) if node.workers.asked else ""
        parts.append((say("{granted} granted{more}", granted=granted, more=more), WARN if node.workers.asked else DIM))
        if node.workers.going:
            parts.append((say("{going} of them taken back", going=node.workers.going), WARN))
    if node.leaf and node.paused:
        parts.append((say("{paused} paused", paused=say(" and ").join(node.paused)), WARN))
    text = Text()
    for index, part in enumerate(parts):
        text.append(", " if index else "").append(*part)
    return text


def list_lines(board: Board, nodes: Sequence[BoardNode], *, width: int = 200) -> list[Text]:
    """One line per queue; a few lines in a narrow terminal. ``width``: columns."""
    if not board.tree:
        none = Text(say("No quota tree is in force, so there are no queues: apply an ElasticQuotaTree in kube-system."))
        return [none, *_notes(board)]
    if width < NARROW:
        return [line for node in nodes for line in _block(node, width)] + _notes(board)
    titles = ("QUEUE", "POLICY", "PRIORITY", "WAITING", "ADMITTED", "RUNNING", "HEAD", "REASON")
    rows: list[list[Text | str]] = [[styled((title, STRONG)) for title in titles]]
    for node in nodes:
        head = node.head
        counts = [str(node.waiting), str(node.admitted), str(node.running)]
        last = [head.job, styled((head.text, WARN))] if head is not None else ["-", ""]
        rows.append([node.path, node.policy, str(node.priority), *counts, *last])
    return columns(rows) + _notes(board)


def _block(node: BoardNode, width: int) -> list[Text]:
    counts = _jobs(node) if node.waiting or node.admitted else Text(say("no jobs"))
    lines = [styled((node.path, STRONG)), Text.assemble("  ", counts)]
    if node.head is not None:
        lines += [styled("  ", (node.head.job, STRONG)), *_wrapped(node.head.text, width)]
    return lines


def _wrapped(text: str, width: int) -> list[Text]:
    return [styled("    ", (line, WARN)) for line in textwrap.wrap(text, max(width - 4, 20))]


def as_of(board: Board) -> str:
    """``as of sequence 74, 2025-01-10 01:36:24.641``."""
    return say("as of sequence {seq}, {now}", seq=board.seq, now=moment(board.now))


def _notes(board: Board) -> list[Text]:
    """The reasons that stop admissions or evictions, regardless of the numbers."""
    notes = [f"{note}." for note in (*board.pauses, *board.reclaim)]
    if board.unsynced:
        notes.append(say("Nothing is admitted until all {unsynced} are listed.", unsynced=listed(board.unsynced)))
    return [Text(), *(styled((note, WARN)) for note in notes)] if notes else []
