"""The nodes as a table: the free amounts of each node, and the jobs that hold the rest."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.language import listed, say
from muster.model.quota import is_device
from muster.model.resources import format_quantity, parse_quantity
from muster.model.text import counted, shorten
from muster.serving.shapes import NodesView, NodeView
from muster_cli.console import BAD, DIM, STRONG, WARN, columns, styled, wrapped

ALWAYS = ("cpu", "memory")
HOLDERS = 3


def node_lines(view: NodesView, *, wide: bool = False, width: int = 200) -> list[Text]:
    """A line for each node, then what is free in all and in how many pieces."""
    if not view.nodes:
        return [Text(say("No node is known."))]
    names = [*sorted({name for node in view.nodes for name in node.allocatable if is_device(name)}), *ALWAYS]
    rows: list[list[Text | str]] = [[styled((word, DIM)) for word in ("NODE", "STATE", *map(_title, names), "JOBS")]]
    for node in view.nodes:
        cells = [_free(node, name) for name in names]
        rows.append([styled((node.name, STRONG)), _state(node), *cells, _holders(node, all_of_them=wide)])
    return [*_fitting(rows, width), Text(), *_sums(view, names)]


def _fitting(rows: Sequence[Sequence[Text | str]], width: int) -> list[Text]:
    """The table; where a line is too long, the jobs of a node below its line."""
    table = columns(rows)
    if all(line.cell_len <= width for line in table):
        return table
    narrow = columns([row[:-1] for row in rows])
    below = [[Text(f"  {part}") for part in wrapped(str(row[-1]), max(20, width - 2))] for row in rows[1:]]
    return [narrow[0], *(line for node, jobs in zip(narrow[1:], below, strict=True) for line in (node, *jobs))]


def _title(resource: str) -> str:
    return say("FREE {resource}", resource=resource.rpartition("/")[2].upper())


def _state(node: NodeView) -> Text:
    if not node.ready:
        return styled((say("not ready"), BAD))
    return styled((say("ready"), "")) if node.schedulable else styled((say("cordoned"), WARN))


def _free(node: NodeView, name: str) -> str:
    return (
        say("{free} of {allocatable}", free=node.free[name], allocatable=node.allocatable[name])
        if name in node.allocatable
        else "-"
    )


def _holders(node: NodeView, *, all_of_them: bool) -> str:
    """The jobs with pods on it, and how many pods belong to none."""
    jobs = list(dict.fromkeys(pod.job for pod in node.pods if pod.job))
    others = sum(not pod.job for pod in node.pods) + node.others
    shown = jobs if all_of_them else jobs[:HOLDERS]
    more = [say("{hidden} more", hidden=len(jobs) - len(shown))] if len(jobs) > len(shown) else []
    return listed([*shown, *more, *([counted(others, "other pod")] if others else [])]) or "-"


def _sums(view: NodesView, names: Sequence[str]) -> list[Text]:
    """The free amounts in all, and the most on one node: a pod must fit on one node."""
    lines = []
    open_nodes = [node for node in view.nodes if node.ready and node.schedulable]
    for name in names:
        free = [parse_quantity(node.free.get(name, "0"), name) for node in open_nodes]
        total, most = format_quantity(sum(free), name), format_quantity(max(free, default=0), name)
        lines.append(
            styled(
                (f"{name}: ", STRONG), say("{total} free on ready nodes, at most {most} on one", total=total, most=most)
            )
        )
    if view.fragmented:
        lines.append(
            Text(shorten(say("{nodes} with a part of the GPUs free", nodes=counted(view.fragmented, "node")), 100))
        )
    return lines
