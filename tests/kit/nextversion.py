"""The next version of Muster as processes: it knows one more rule set (kit.rulesets), and is otherwise this one.

python -m kit.nextversion SERVICE        a service of that version, by the name of docker-compose.yml
python -m kit.nextversion muster ...     its command line
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from kit.rulesets import NEXT, NEXT_BUILD
from muster.core.cell.deciders import DECIDERS
from muster.core.stage import Stage
from muster.runtime import config
from muster.tracesim import changes


def main(name: str, arguments: list[str]) -> int:
    """Become that version; returns its exit code."""
    DECIDERS.update(NEXT_BUILD)
    config.NEWEST = changes.NEWEST = NEXT
    from muster.runtime import service
    from muster.runtime.process import Process

    of_this_version = Process.add_decider

    def add_decider(process: Process, stage: Callable[[], Stage[Any]], *runner: Any) -> None:
        of_this_version(process, NEXT_BUILD[stage().name], *runner)

    Process.add_decider = add_decider  # type: ignore[method-assign]
    if name == "muster":
        from muster_cli.main import run

        return run(arguments)
    service.main(name, importlib.import_module(f"muster_{name.replace('-', '_')}.__main__").build)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
