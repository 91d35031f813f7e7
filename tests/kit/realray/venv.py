"""Installs Ray from its wheel into a virtual environment of its own, once, in the cache of the tests."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kit.controlplane.build import _exclusive, cache_folder

LOCK = Path(__file__).with_name("requirements.txt")
#: Seconds for the installation: 380 MB, of which 80 are Ray's wheel.
INSTALL_LIMIT_S = 900


class RayMissingError(RuntimeError):
    """Ray cannot be installed, or was not; the message says what to do."""


def home() -> Path:
    """Where Ray is, or would be: another lock file or another Python is another place."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    return cache_folder() / "ray" / f"py{sys.version_info.major}.{sys.version_info.minor}-{digest}"


def installed() -> Path:
    """The folder of Ray's commands. Raises RayMissingError where it is not installed: this downloads nothing."""
    if not (home() / ".ready").exists():
        raise RayMissingError(f"Ray is not in {home()}; run `make ray`, or `make test-ray`, which does")
    return home() / "bin"


def build(echo: Callable[[str], None] = print) -> Path:
    """The folder of Ray's commands, after installing what is missing. Raises RayMissingError."""
    folder = home()
    if (folder / ".ready").exists():
        return folder / "bin"
    with _exclusive(cache_folder() / "ray", echo):
        if not (folder / ".ready").exists():
            started = time.monotonic()
            echo(f"installing Ray into {folder}: about 100 MB to download, once")
            _run([sys.executable, "-m", "venv", "--clear", str(folder)])
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, "--require-hashes", "--only-binary=:all:", "--no-compile", "-r", str(LOCK)])
            (folder / ".ready").touch()
            echo(f"installed Ray in {time.monotonic() - started:.0f} s")
    return folder / "bin"


def _run(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=INSTALL_LIMIT_S
        )
    except subprocess.TimeoutExpired as err:
        raise RayMissingError(f"cannot install Ray: {' '.join(command)} took over {INSTALL_LIMIT_S} s") from err
    if done.returncode != 0:
        raise RayMissingError(
            f"cannot install Ray: {' '.join(command)} exited with {done.returncode}: {done.stderr.strip()[-1500:]}; "
            f"there are wheels of Ray for CPython 3.10 to 3.13 on Linux: set PYTHON to one of them"
        )
