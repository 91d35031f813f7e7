"""A small disk of its own for a real nats-server: a tmpfs in a mount namespace, which Linux gives everybody."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

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
