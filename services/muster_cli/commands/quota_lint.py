"""``muster quota lint``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec import to_builtins

from muster_cli.console import Output
from muster_cli.exits import OK, VIOLATED
from muster_cli.options import Document
from muster_cli.quotafiles import read_trees
from muster_cli.render.quotas import lint_lines


def quota_lint(
    file: Annotated[Path, Parameter(help="YAML file with an ElasticQuotaTree, or with KAI queues.")],
    /,
    *,
    output: Document = "text",
) -> int:
    """Check a quota tree, or KAI queues."""
    out, trees = Output(), read_trees(file)
    if output == "text":
        for tree in trees:
            out.lines(lint_lines(tree))
    else:
        kept = [{"name": tree.name, "broken": tree.broken, "warnings": tree.warnings} for tree in trees]
        out.data(to_builtins(kept), output)
    return VIOLATED if any(tree.broken for tree in trees) else OK
