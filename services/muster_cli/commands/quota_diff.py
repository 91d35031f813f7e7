"""``muster quota diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec import to_builtins

from muster.model.language import say
from muster_cli.console import Output
from muster_cli.exits import OK, USAGE, VIOLATED, CliError
from muster_cli.folding import present_view
from muster_cli.options import Bus, Document
from muster_cli.quotadiff import difference, with_queues
from muster_cli.quotafiles import read_trees
from muster_cli.reading import locate, opened, tell_which
from muster_cli.render.quotas import diff_lines, lint_lines


async def quota_diff(
    file: Annotated[
        Path, Parameter(help="YAML file with the ElasticQuotaTree, or the KAI queues, that would be applied.")
    ],
    /,
    *,
    output: Document = "text",
    bus: Bus | None = None,
) -> int:
    """Compare a quota tree, or KAI queues, with those in force."""
    trees = read_trees(file)
    if len(trees) != 1:
        raise CliError(
            say(
                "{file} holds {trees} quota trees; name a file with one, or with KAI queues alone",
                file=file,
                trees=len(trees),
            ),
            USAGE,
        )
    out, tree, queues = Output(), trees[0].tree, trees[0].queues
    if not queues and (trees[0].broken or tree is None):
        for line in lint_lines(trees[0]):
            out.note(line)
        return VIOLATED
    place = locate(bus)
    tell_which(out, place)
    async with opened(place) as reading:
        state = await present_view(reading)
        if queues:
            tree = with_queues(state, queues)
        assert tree is not None
        shown = difference(state, tree, trees[0].rules)
    if output == "text":
        out.lines(diff_lines(shown))
    else:
        out.data(to_builtins(shown), output)
    return OK
