"""Replaces itself by a command that the kernel kills when the process that asked for it dies.

Run as a script by `process.Component`: `python -I -S launch.py <asker pid> <command> ...`. A
script and not a `preexec_fn`: Python code between fork and exec can deadlock in a process that has
threads, and Python 3.12 warns about it. The process id stays the same, so the asker can kill it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(asker: int, command: list[str]) -> None:
    """Tie this process to `asker`, then become `command`. Linux only; elsewhere only the latter."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot ask the kernel to be killed with the asker")
        if os.getppid() != asker:
            sys.exit(f"cannot start {command[0]}: process {asker}, which asked for it, is gone")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
