"""Command line: `python -m kit.realray build | inside COMMAND ...`, with `tests` on PYTHONPATH."""

import sys

from kit.realray.network import enter, inside
from kit.realray.venv import RayMissingError, build


def main(arguments: list[str]) -> int:
    """Do what the arguments say; 1 when that failed, else the exit code of the command."""
    try:
        match arguments:
            case ["build"]:
                sys.stdout.write(f"{build(say)}\n")
                return 0
            case ["inside", *command] if command:
                return inside(command)
            case ["enter", *command] if command:
                return enter(command)
    except RayMissingError as err:
        sys.stderr.write(f"error: {err}\n")
        return 1
    sys.stderr.write("usage: python -m kit.realray build | inside COMMAND ...\n")
    return 2


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
