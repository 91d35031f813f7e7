"""Command line: `python -m kit.controlplane build | run | lock`, with `tests` on PYTHONPATH."""

import argparse
import asyncio
import contextlib
import signal
import sys
import time

from kit.controlplane import BuildError, ControlPlane, ControlPlaneError
from kit.controlplane.build import VERSION_VARIABLE, build, build_helm, build_natscli, wanted_version, write_lock
from kit.controlplane.modules import OLDER_KUBERNETES_VERSION


def main() -> int:
    """Do what the arguments say; 1 when that failed."""
    parser = argparse.ArgumentParser(
        prog="python -m kit.controlplane",
        description="Build and start a real Kubernetes control plane on this machine.",
    )
    parser.add_argument(
        "command",
        choices=("build", "run", "lock"),
        help="build: fill the cache with everything the tests start; run: start all servers, print the "
        "kubeconfig, wait for Ctrl-C; lock: resolve the Go dependencies anew into go/locks",
    )
    parser.add_argument(
        "--version",
        default=wanted_version(),
        help=f"Kubernetes release to run or lock, default %(default)s (or set {VERSION_VARIABLE})",
    )
    chosen = parser.parse_args()
    try:
        if chosen.command == "lock":
            write_lock(chosen.version, say)
            return 0
        started = time.monotonic()
        binaries = build(chosen.version, echo=say)
        if chosen.command == "build":
            build(OLDER_KUBERNETES_VERSION, echo=say)
            build_natscli(echo=say)
            build_helm(echo=say)
        for path in binaries.paths.values():
            say(str(path))
        say(f"kubernetes {binaries.kubernetes_version}: {time.monotonic() - started:.1f} s")
        if chosen.command == "run":
            asyncio.run(run(chosen.version))
    except (BuildError, ControlPlaneError) as err:
        sys.stderr.write(f"error: {err}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def run(version: str) -> None:
    """Start everything, say how to reach it, stop at SIGINT or SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with ControlPlane(version=version, echo=say) as plane:
            say(f"ready after {plane.start_seconds:.1f} s at {plane.url}; logs in {plane.folder}")
            say(f"export KUBECONFIG={plane.kubeconfig}")
            say("Ctrl-C stops it")
            await asyncio.Event().wait()


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
