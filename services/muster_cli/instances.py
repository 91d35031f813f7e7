"""The Musters that run here: one file per running ``muster up``, in a directory that only this user can read.

A file belongs to a living process as long as the process holds the file's lock. A file with a free lock is left over
from a killed process: the file is removed, with the temporary directory named in the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from muster.model.language import say
from muster_cli.exits import CliError

TEMPORARY = "muster-up-"
"""How the temporary directories of ``muster up`` begin."""


class Instance(Struct, frozen=True):
    """A running ``muster up``."""

    pid: int
    started: int
    """ms since the epoch"""
    url: str
    cell: str
    home: str
    """The folder of the log and of the cluster."""
    temporary: bool
    """The home goes when it ends."""
    acting: bool
    simulated: bool
    """Its cluster is simulated, and served where ``kubeconfig`` says."""
    kubeconfig: str = ""
    context: str = ""
    gateway: str = ""
    """Address of its gateway, which shows everything to every reader on this machine."""


def directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The per-user directory of run files, made when missing. Raises CliError when it belongs to another user."""
    place = _place(environ)
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        state = place.lstat()
    except OSError as err:
        raise CliError(
            say("cannot use {place} for run files: {error}; set XDG_RUNTIME_DIR", place=place, error=err.strerror)
        ) from err
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        raise CliError(
            say("cannot use {place} for run files: it belongs to another user; set XDG_RUNTIME_DIR", place=place)
        )
    if state.st_mode & 0o077:
        place.chmod(0o700)
    return place


def _place(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_RUNTIME_DIR", "")
    if base and Path(base).is_dir():
        return Path(base) / "muster"
    import tempfile  # Slow to import, like shutil; most desktops name a directory.

    return Path(tempfile.gettempdir()) / f"muster-{os.getuid()}"


class Registration:
    """Our own run file, from :meth:`publish` to :meth:`close`."""

    def __init__(self, where: Path | None = None) -> None:
        self._where = where
        self._held: tuple[Path, int] | None = None

    def publish(self, instance: Instance) -> None:
        """Write the file."""
        for _ in range(10):
            where = self._where if self._where is not None else directory()
            path = where / f"{instance.started}-{instance.pid}.json"
            fresh = path.with_suffix(".new")
            # The directory goes with the last file in it, which may be now.
            with contextlib.suppress(FileNotFoundError):
                file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                # Locked before it can be found: a file without a lock is taken for a dead process's.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(file, msgspec.json.encode(instance))
                fresh.replace(path)
                self._held = path, file
                return
        raise CliError(say("cannot keep a run file in {where}: the directory vanishes again and again", where=where))

    def close(self) -> None:
        """Remove the file, and the directory with the last file."""
        if self._held is not None:
            path, file = self._held
            path.unlink(missing_ok=True)
            os.close(file)
            self._held = None
            with contextlib.suppress(OSError):
                path.parent.rmdir()


def running(where: Path | None = None) -> list[Instance]:
    """Every running instance, the newest first; the files of killed instances are removed."""
    if where is None:
        if not _place(os.environ).exists():
            return []
        where = directory()
    alive = []
    for path in sorted(where.glob("*.json")):
        instance = _read(path)
        if instance is not None:
            alive.append(instance)
    return sorted(alive, key=lambda instance: -instance.started)


def named(url: str, where: Path | None = None) -> list[Instance]:
    """The running instances that an address of NATS means, the newest first; every one for an empty address."""
    return [instance for instance in running(where) if url in ("", instance.url)]


def _read(path: Path) -> Instance | None:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None  # It ended this moment.
    try:
        body = os.read(file, 1 << 16)
        try:
            instance = msgspec.json.decode(body, type=Instance)
        except (msgspec.DecodeError, msgspec.ValidationError):
            instance = None  # Being written, or of another version.
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return instance
        _sweep(path, instance)
        with contextlib.suppress(OSError):
            path.parent.rmdir()
        return None
    finally:
        os.close(file)


def _sweep(path: Path, instance: Instance | None) -> None:
    """Remove the rest of a killed instance: its file, and its directory if temporary."""
    path.unlink(missing_ok=True)
    if instance is None or not instance.temporary:
        return
    import shutil
    import tempfile

    home = Path(instance.home)
    if home.name.startswith(TEMPORARY) and home.parent == Path(tempfile.gettempdir()) and not home.is_symlink():
        shutil.rmtree(home, ignore_errors=True)
