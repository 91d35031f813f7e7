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
    out, found = Output(), read_trees(file)
    if output == "text":
        for each in found:
            out.lines(lint_lines(each))
    else:
        kept = [{"name": each.name, "broken": each.broken, "warnings": each.warnings} for each in found]
        out.data(to_builtins(kept), output)
    return VIOLATED if any(each.broken for each in found) else OK
