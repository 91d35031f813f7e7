"""A container as a process: the exact command, environment and files that its pod says, below a root of its own.

The process sees this machine's programs, and beside them the folders a kubelet would give it: /run with the mounted
keys and the token of its account, /etc with the names of its cluster, /tmp and /data of its own. That takes a mount
namespace, which Linux gives everybody (`unshare`), and no container runtime. All containers share this machine's
network: each pod has a loopback address of its own, and listens on that instead of on 0.0.0.0.
"""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kit.compose import REPOSITORY
from kit.controlplane.process import tied
from muster.bus.server import find_binary

ENTER = r"""
set -e
own=$1; root=$2; seen=$3; shift 3
mount -t tmpfs none "$root"
for each in /*; do
    name=${each#/}
    [ -e "$own/$name" ] && continue
    if [ -L "$each" ]; then ln -s "$(readlink "$each")" "$root/$name"
    elif [ -d "$each" ]; then mkdir "$root/$name"; mount --rbind "$each" "$root/$name"
    fi
done
for each in "$own"/*; do
    name=${each##*/}
    mkdir "$root/$name"; mount --rbind "$each" "$root/$name"
done
for each in $seen; do
    top=${each#/}
    if [ -e "$own/${top%%/*}" ]; then mkdir -p "$root$each"; mount --rbind "$each" "$root$each"; fi
done
exec chroot "$root" "$@"
"""
"""Takes the container's own folders, an empty folder for its root, and what else it must see."""
IMAGE_ENV = {
    "HOME": "/tmp",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "MUSTER_HEALTH_HOST": "0.0.0.0",
    "MUSTER_LOG_STYLE": "json",
}
"""What deploy/Dockerfile sets."""
COPIED = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "localtime", "alternatives")
EVERYWHERE = "0.0.0.0"


class Container:
    """One container of a pod. ``files``: {absolute path: content}; ``disks``: {top folder: where it is kept}."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        ip: str,
        files: Mapping[str, bytes],
        disks: Mapping[str, Path],
    ) -> None:
        self.log = folder / "log"
        self.ends: list[int] = []
        """How it ended so far: exit codes, signals as negative numbers."""
        self.began = 0.0
        self._own, self._root = folder / "own", folder / "root"
        self._command = [*command]
        self._env = {
            "PATH": f"{Path(sys.executable).parent}:{find_binary().parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            **IMAGE_ENV,
            **{name: value.replace(EVERYWHERE, ip) for name, value in env.items()},
        }
        if "MUSTER_HEALTH_HOST" in self._env:
            self._env["MUSTER_HEALTH_HOST"] = self._env["MUSTER_HEALTH_HOST"].replace(EVERYWHERE, ip)
        self._process: asyncio.subprocess.Process | None = None
        self._lay_out(ip, files, disks)

    def _lay_out(self, ip: str, files: Mapping[str, bytes], disks: Mapping[str, Path]) -> None:
        for name in ("run", "etc", "tmp"):
            (self._own / name).mkdir(parents=True)
        self._root.mkdir()
        for name in COPIED:
            found = Path("/etc") / name
            if found.is_dir():
                shutil.copytree(found, self._own / "etc" / name, symlinks=True)
            elif found.exists():
                shutil.copy(found, self._own / "etc" / name)
        for path, kept in disks.items():
            kept.mkdir(parents=True, exist_ok=True)
            (self._own / path.strip("/")).symlink_to(kept)
        for path, content in files.items():
            target = self._own / path.strip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.replace(EVERYWHERE.encode(), ip.encode()))

    def knows(self, hosts: Mapping[str, Sequence[str]]) -> None:
        """What the cluster's DNS answers it: {name: addresses}."""
        lines = ["127.0.0.1 localhost", *(f"{ip} {name}" for name, found in hosts.items() for ip in found)]
        (self._own / "etc" / "hosts").write_text("\n".join(lines) + "\n")
        (self._own / "etc" / "host.conf").write_text("multi on\n")
        (self._own / "etc" / "nsswitch.conf").write_text("hosts: files\n")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        seen = " ".join({str(REPOSITORY), sys.prefix, sys.base_prefix, str(find_binary().parent)})
        enter = ["unshare", "--map-root-user", "--mount", "sh", "-c", ENTER, "sh"]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *enter, str(self._own), str(self._root), seen, *tied(), *self._command,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=self._env, cwd="/",
            )  # fmt: skip
        self.began = time.monotonic()

    async def ended(self) -> int:
        """Its exit code, once it ends."""
        assert self._process is not None
        code = await self._process.wait()
        self.ends.append(code)
        return code

    def signal(self, number: signal.Signals) -> None:
        """To the process that runs now, if one does."""
        if self.alive and self._process is not None:
            self._process.send_signal(number)

    async def stop(self, grace_s: float) -> None:
        """Tell it to end, and kill it when it does not."""
        self.signal(signal.SIGTERM)
        if self._process is not None:
            try:
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def runs_here() -> bool:
    """Whether this machine gives a process mounts of its own."""
    return shutil.which("unshare") is not None and os.system("unshare --map-root-user --mount true") == 0
