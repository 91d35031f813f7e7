"""A small disk of its own for a real nats-server: a tmpfs in a mount namespace, which Linux gives everybody.

And the liveness probe of deploy/nats, which starts a server again that such a disk had no room for.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kit.production import FILES

NC = """#!{}
import socket, sys
with socket.create_connection((sys.argv[3], int(sys.argv[4]))) as asked:
    asked.sendall(sys.stdin.buffer.read())
    sys.stdout.buffer.write(asked.makefile("rb").read())
"""
MOUNT = 'mount -t tmpfs -o size="$1"m tmpfs "$2" && echo mounted && exec cat'


class SmallDisk:
    """``folder``: where it is, for every process of this user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """To the last byte."""
        with (self.folder / "filler").open("ab", buffering=0) as file:
            for size in (1 << 16, 64, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def make_room(self) -> None:
        (self.folder / "filler").unlink()


@contextlib.contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """It lasts as long as the process that holds its namespace."""
    folder.mkdir(exist_ok=True)
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", str(mebibytes), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"mounted\n"
        yield SmallDisk(Path(f"/proc/{holder.pid}/root{folder}"))
        holder.stdin.close()


def alive(folder: Path, monitor_port: int | None, store: Path, room: int) -> bool:
    """What the liveness probe of a pod says of a server; its ``nc`` is put into ``folder``."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "nc").write_text(NC.format(sys.executable))
    (programs / "nc").chmod(0o755)
    env = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "NATS_MONITOR_PORT": str(monitor_port),
        "NATS_STORE": str(store),
        "NATS_ROOM": str(room),
    }
    return subprocess.run(["sh", FILES / "alive.sh"], env=env, check=False).returncode == 0
