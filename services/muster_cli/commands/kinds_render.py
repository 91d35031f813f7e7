"""``muster kinds render``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster_cli.console import Output
from muster_cli.definedkinds import read_kinds, rendered
from muster_cli.exits import OK


def kinds_render(
    *files: Annotated[Path, Parameter(help="A definition, or a ConfigMap of definitions.")],
    policies: Annotated[
        Path, Parameter(help="Folder of Muster's policies, of the installed version: the lists of kinds are renewed.")
    ] = Path("deploy/policies"),
) -> int:
    """Print what a kind of your own needs."""
    Output().lines(rendered(read_kinds(files), policies).splitlines())
    return OK
