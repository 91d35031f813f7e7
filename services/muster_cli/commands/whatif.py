"""``muster whatif``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from msgspec import to_builtins
from rich.text import Text

from muster.core.quota.trees.treesource import leaves
from muster.model.language import listed, say
from muster.model.resources import QuantityError, Vector, parse_quantity
from muster.told.wording import problems
from muster.tracesim.changes import (
    POLICIES,
    decided_by,
    equipped,
    governed,
    placed,
    prioritised,
    ruled,
    under,
)
from muster.tracesim.contrast import contrast
from muster.tracesim.past import Past, PastReader
from muster.tracesim.runner import MUSTER, Options, Result
from muster.tracesim.runner import simulate as run_simulation
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.options import Document, Source, pair
from muster_cli.positions import window
from muster_cli.quotafiles import read_trees
from muster_cli.render.simulations import contrast_lines
from muster_cli.sources import source_of
from muster_cli.waitbar import counting

MOST_NODES = 10_000

CHANGES = (
    "--tree",
    "--rule",
    "--policy",
    "--priority",
    "--placement",
    "--ruleset",
    "--add-nodes",
    "--drop-node",
)


async def whatif(
    *,
    tree: Annotated[
        Path | None, Parameter(show_default=False, help="YAML file with the ElasticQuotaTree to be tried.")
    ] = None,
    rule: Annotated[
        tuple[str, ...],
        Parameter(
            show_default=False,
            help="NAME=VALUE: another rule of the tree, as its annotation muster.dev/NAME; an empty VALUE takes it "
            "away. Repeatable.",
        ),
    ] = (),
    policy: Annotated[
        tuple[str, ...],
        Parameter(
            show_default=False, help=f"QUEUE=POLICY: another policy of a queue: {', '.join(POLICIES)}. Repeatable."
        ),
    ] = (),
    priority: Annotated[
        tuple[str, ...], Parameter(show_default=False, help="NAMESPACE/NAME=N: another priority for a job. Repeatable.")
    ] = (),
    placement: Annotated[
        Literal["off", "pack", "spread"] | None,
        Parameter(show_default=False, help="Gangs find single nodes, packed or spread; off: quota alone decides."),
    ] = None,
    ruleset: Annotated[
        int | None,
        Parameter(show_default=False, help="Decide by this rule set, instead of the one the log has in force."),
    ] = None,
    add_nodes: Annotated[
        tuple[str, ...],
        Parameter(
            show_default=False,
            help="COUNTxRESOURCE=AMOUNT[,...]: more nodes, e.g. 2xnvidia.com/gpu=8,cpu=96. Repeatable.",
        ),
    ] = (),
    drop_node: Annotated[
        tuple[str, ...], Parameter(show_default=False, help="Name of a node that would not be there. Repeatable.")
    ] = (),
    from_: Annotated[
        str,
        Parameter(
            name="--from",
            show_default=False,
            help="Begin at this sequence or time: what ran then runs on, what waited waits in its order.",
        ),
    ] = "",
    until: Annotated[
        str,
        Parameter(
            show_default=False, help="No job arrives after this sequence or time. The same as --from: a snapshot."
        ),
    ] = "",
    output: Document = "text",
    source: Source | None = None,
) -> None:
    """Run a recorded past again with something changed."""
    if (
        tree is None
        and placement is None
        and ruleset is None
        and not (rule or policy or priority or add_nodes or drop_node)
    ):
        options = listed(CHANGES)
        raise CliError(say("nothing is changed: give one of {options}", options=options), USAGE)
    wanted = dict(_priority(text) for text in priority)
    rules = dict(pair("--rule", text, "reclaim=disabled") for text in rule)
    policies = dict(pair("--policy", text, "root/video=Block") for text in policy)
    more = [node for text in add_nodes for node in _added_nodes(text)]
    (begin, end), shown = window(from_, until), Output()
    reader = PastReader(begin.reached if begin is not None else None, end.passed if end is not None else None)
    async with source_of(source, shown) as feed:
        async for stored in feed.commits:
            reader.feed(stored)
    past = reader.past()
    changed = prioritised(past, wanted)
    if tree is not None:
        changed = _under_tree(changed, tree)
    if rules:
        changed = ruled(changed, rules)
    if policies:
        changed = governed(changed, policies)
    if ruleset is not None:
        changed = decided_by(changed, ruleset)
    if placement is not None:
        changed = placed(changed, placement)
    if more or drop_node:
        changed = equipped(changed, drop_node, more)
    before, after = _run(past, say("as it was")), _run(changed, say("with the change"))
    difference = contrast(before, after, past.keys)
    if output == "text":
        endless = sum(job.duration is None for job in past.trace.jobs)
        lines = contrast_lines(difference, len(past.trace.jobs), changed.left_out, endless)
        if begin is not None:
            lines.insert(
                0,
                Text(
                    say(
                        "From {begin} on: {running} ran then, {waiting} waited, the rest came later.",
                        begin=begin,
                        running=past.running,
                        waiting=past.waiting,
                    )
                ),
            )
        shown.lines(lines)
    else:
        shown.data(
            {"jobs": len(past.trace.jobs), "ran": past.running, "waited": past.waiting, **to_builtins(difference)},
            output,
        )


def _run(past: Past, which: str) -> Result:
    with counting(f"Running {which}", len(past.trace.jobs), "jobs") as shown:
        return run_simulation(past.trace, MUSTER, Options(), alone={}, progress=shown)


def _priority(text: str) -> tuple[str, int]:
    job, equals, number = text.rpartition("=")
    if not equals or "/" not in job or not number.lstrip("-").isdecimal():
        raise CliError(say("--priority {words}: write NAMESPACE/NAME=N, e.g. video/job-7=100", words=text), USAGE)
    return job, int(number)


def _added_nodes(text: str) -> list[Vector]:
    """``2xnvidia.com/gpu=8,cpu=96``: so many nodes with so much each."""
    count, times, amounts = text.partition("x")
    wrong = say("--add-nodes {words}: write COUNTxRESOURCE=AMOUNT, e.g. 2xnvidia.com/gpu=8,cpu=96", words=text)
    if not times or not count.isdecimal() or not 0 < int(count) <= MOST_NODES or "=" not in amounts:
        raise CliError(wrong, USAGE)
    node: Vector = {}
    for part in amounts.split(","):
        name, _, amount = part.partition("=")
        try:
            node[name] = parse_quantity(amount, name)
        except QuantityError as err:
            raise CliError(f"{wrong}: {problems.say(err.problem)}", USAGE) from err
    return [node] * int(count)


def _under_tree(past: Past, path: Path) -> Past:
    trees = read_trees(path)
    if len(trees) != 1:
        raise CliError(say("{path} holds {trees} ElasticQuotaTrees; one is needed", path=path, trees=len(trees)), USAGE)
    read, broken = trees[0].tree, trees[0].broken
    if read is None or broken:
        raise CliError(
            f"{path}: {broken[0]}" + (say(" (and {number} more)", number=len(broken) - 1) if len(broken) > 1 else ""),
            USAGE,
        )
    namespaces = {namespace: leaf.path for leaf in leaves(read) for namespace in leaf.namespaces}
    return under(past, read, namespaces, trees[0].rules)
