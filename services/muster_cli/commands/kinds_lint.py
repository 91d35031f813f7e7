"""``muster kinds lint``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.core.workloads.registry import KINDS
from muster.model.language import say
from muster_cli.console import Output
from muster_cli.definedkinds import read_kinds
from muster_cli.exits import OK


def kinds_lint(
    *files: Annotated[Path, Parameter(help="A definition, or a ConfigMap of definitions.")],
) -> int:
    """Check definitions of kinds."""
    out = Output()
    for definition in read_kinds(files):
        row = KINDS[definition.kind]
        out.line(
            say(
                "{kind}: {resource} are suspended by {at}, and are understood",
                kind=definition.kind,
                resource=row.resource,
                at=definition.suspend.at,
            )
        )
    return OK
