"""The quota tree with bars, and the list of queues."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.resources import format_quantity
from muster.model.text import moment
from muster_cli.board import Amount, Board, Node
from muster_cli.console import BAD, DIM, GOOD, STRONG, WARN, columns, styled

BAR_WIDTH = 20


class Strokes:
    """What trees and bars are drawn with."""

    def __init__(self, *, unicode: bool) -> None:
        self.full, self.empty, self.mark = ("█", "░", "┃") if unicode else ("#", ".", "|")
        self.fork, self.corner, self.line = ("├─ ", "└─ ", "│  ") if unicode else ("|- ", "`- ", "|  ")


def tree_lines(board: Board, nodes: Sequence[Node], *, unicode: bool = True) -> list[Text]:
    """The tree: a line per node and resource, with a bar that is as long as the node's max."""
    if not board.tree:
        return [Text("No quota tree is in force: apply an ElasticQuotaTree in kube-system."), *_notes(board)]
    strokes = Strokes(unicode=unicode)
    lines = [styled(("ElasticQuotaTree ", DIM), (board.tree, STRONG), (f", {as_of(board)}", DIM)), Text()]
    rows: list[list[Text | str]] = []
    for stem, below, node in _stems(nodes, strokes):
        shown = [amount for amount in node.amounts if amount.used or amount.guaranteed or amount.limit != 0]
        for index, amount in enumerate(shown or node.amounts[:1]):
            first = index == 0
            name = styled((stem, DIM), (node.name, STRONG)) if first else styled((below, DIM))
            rows.append([name, amount.resource, bar(amount, strokes), *_numbers(amount), _jobs(node) if first else ""])
        if not node.amounts:
            rows.append([styled((stem, DIM), (node.name, STRONG)), "", "", "", "", _jobs(node)])
    lines += columns(rows)
    return lines + _notes(board)


def _stems(nodes: Sequence[Node], strokes: Strokes) -> list[tuple[str, str, Node]]:
    """Each node with what is drawn before its name, and before its further lines."""
    found: list[tuple[str, str, Node]] = []
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
        found.append((before + own, before + under, node))
    return found


def bar(amount: Amount, strokes: Strokes) -> Text:
    """Used of max; the mark shows the guaranteed min where it is neither nothing nor all."""
    if amount.limit is None:
        return styled(("no max".ljust(BAR_WIDTH), DIM))
    filled = _cells(amount.used, amount.limit)
    colour = BAD if amount.over else WARN if amount.borrowed else GOOD
    cells = [(strokes.full, colour)] * filled + [(strokes.empty, DIM)] * (BAR_WIDTH - filled)
    mark = _cells(amount.guaranteed, amount.limit)
    if 0 < mark < BAR_WIDTH:
        cells[mark] = (strokes.mark, STRONG)
    return styled(*cells)


def _cells(part: int, whole: int) -> int:
    """How much of a bar a part takes: something when it is something, all only when it is all."""
    if part <= 0:
        return 0
    if whole <= 0 or part >= whole:
        return BAR_WIDTH
    return min(max(part * BAR_WIDTH // whole, 1), BAR_WIDTH - 1)


def _numbers(amount: Amount) -> tuple[Text, Text]:
    used = format_quantity(amount.used, amount.resource)
    limit = "" if amount.limit is None else f" of {format_quantity(amount.limit, amount.resource)}"
    least = styled((f"min {format_quantity(amount.guaranteed, amount.resource)}", DIM))
    return styled((f"{used}{limit}", BAD if amount.over else "")), least


def _jobs(node: Node) -> Text:
    parts: list[tuple[str, str]] = []
    if node.waiting:
        parts.append((f"{node.waiting} waiting", WARN))
    if node.running:
        parts.append((f"{node.running} running", GOOD))
    if node.admitted > node.running:
        parts.append((f"{node.admitted - node.running} starting or ending", DIM))
    if node.leaf and node.paused:
        parts.append((f"{' and '.join(node.paused)} paused", WARN))
    text = Text()
    for index, part in enumerate(parts):
        text.append(", " if index else "").append(*part)
    return text


def list_lines(board: Board, nodes: Sequence[Node]) -> list[Text]:
    """One line per queue."""
    if not board.tree:
        none = Text("No quota tree is in force, so there are no queues: apply an ElasticQuotaTree in kube-system.")
        return [none, *_notes(board)]
    titles = ("QUEUE", "POLICY", "PRIORITY", "WAITING", "ADMITTED", "RUNNING", "HEAD", "REASON")
    rows: list[list[Text | str]] = [[styled((title, STRONG)) for title in titles]]
    for node in nodes:
        head = node.head
        counts = [str(node.waiting), str(node.admitted), str(node.running)]
        last = [head.job, styled((head.text, WARN))] if head is not None else ["-", ""]
        rows.append([node.path, node.policy, str(node.priority), *counts, *last])
    return columns(rows) + _notes(board)


def as_of(board: Board) -> str:
    """``as of sequence 74, 2025-01-10 01:36:24.641``."""
    return f"as of sequence {board.seq}, {moment(board.now)}"


def _notes(board: Board) -> list[Text]:
    """What keeps jobs from being admitted or evicted, whatever the numbers say."""
    notes = [f"{pause}." for pause in board.pauses]
    if board.unsynced:
        notes.append(f"Nothing is admitted until all {', '.join(board.unsynced)} are listed.")
    return [Text(), *(styled((note, WARN)) for note in notes)] if notes else []
