"""Command line: `python -m kit.realkuberay build`, with `tests` on PYTHONPATH."""

import sys

from kit.controlplane.toolchain import BuildError
from kit.realkuberay.sources import VERSIONS, build


def main(arguments: list[str]) -> int:
    """Build the operators that are not in the cache; 1 when that failed."""
    if arguments != ["build"]:
        sys.stderr.write("usage: python -m kit.realkuberay build\n")
        return 2
    try:
        for version in VERSIONS:
            sys.stdout.write(f"{build(version).operator}\n")
    except BuildError as err:
        sys.stderr.write(f"error: {err}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
