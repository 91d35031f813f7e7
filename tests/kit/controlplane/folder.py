"""A private temporary folder that leaves nothing behind, even when its owner is killed.

Used by `ControlPlane`, whose etcd can fill gigabytes in a load test. The owner holds a file lock
that the kernel frees at its death; the next owner removes every folder whose lock is free.
"""

import fcntl
import shutil
import tempfile
from pathlib import Path

PREFIX = "muster-controlplane-"


class PrivateFolder:
    """A fresh folder under the system's temporary folder, for this process only."""

    def __init__(self) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Locked first, named after: a folder with a `lock` that is free has no owner.
        unnamed = self.path / "lock.new"
        self._lock = unnamed.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / "lock")

    def remove(self) -> None:
        """Delete the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def remove_abandoned() -> None:
    """Delete the folders whose owners were killed; folders of living owners stay."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        try:
            with path.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:
            # Owned by a living process, or by another user, or gone this very moment.
            continue
