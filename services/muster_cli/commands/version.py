"""``muster version``."""

from __future__ import annotations

import platform
import subprocess
from typing import Annotated, Literal

from cyclopts import Parameter

import muster
from muster.events.wire import WIRE
from muster.model.language import marked, say
from muster_cli.console import Output, columns

ABSENT = marked("not found (needed by `muster up` only)")


def version(
    *,
    output: Annotated[
        Literal["text", "json", "yaml"], Parameter(name=["--output", "-o"], help="How to print it.")
    ] = "text",
) -> None:
    """Print versions."""
    versions = {
        "muster": muster.__version__,
        "wire": str(WIRE),
        "python": platform.python_version(),
        "nats-py": _installed("nats-py"),
        "kubernetes-asyncio": _installed("kubernetes-asyncio"),
        "nats-server": nats_server_version() or say(ABSENT),
    }
    out = Output()
    if output == "text":
        out.lines(columns(list(versions.items())))
    else:
        out.data(versions, output)


def _installed(name: str) -> str:
    from importlib import metadata  # `doctor` asks for one version alone.

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return say("not installed")


def nats_server_version() -> str:
    """Of the nats-server that `muster up` would run; empty when there is none."""
    from muster.bus.errors import BusError
    from muster.bus.server import find_binary

    try:
        process = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, timeout=5, check=True)  # noqa: S603
    except (BusError, OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip().rpartition(" ")[2].removeprefix("v")
