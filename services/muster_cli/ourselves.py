"""How a shell finds this command: a printed command has to work when it is typed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def own_command(python: str = sys.executable) -> str:
    """`muster` where the PATH has the command, else the path: relative when below the present directory."""
    if shutil.which("muster"):
        return "muster"
    program = Path(python).with_name("muster")
    if not program.exists():
        return f"{python} -m muster_cli"
    here = Path.cwd()
    return f"./{program.relative_to(here)}" if program.is_relative_to(here) else str(program)
