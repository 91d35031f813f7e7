"""``muster completion``."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Annotated[Shell, Parameter(help="The shell that reads the script.")], /) -> None:
    """Print a completion script."""
    from muster_cli.main import make_app

    sys.stdout.write(make_app().generate_completion(shell=shell, prog_name="muster").rstrip() + "\n")
