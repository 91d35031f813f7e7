"""Runs a command in network, process and mount namespaces of its own.

Ray replaces 127.0.0.1 by the address of the machine wherever there is another interface, and would then listen for
everybody. Where there is loopback only, everything stays on it. All that the command leaves behind ends with it.
"""

import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys

from kit.realray.venv import RayMissingError

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def interfaces() -> list[str]:
    """Names of the network interfaces of this process."""
    return [name for _, name in socket.if_nameindex()]


def inside(command: list[str]) -> int:
    """Run a command in there and return its exit code. Raises RayMissingError where this machine forbids it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        raise RayMissingError("the tests of Ray need `unshare` of util-linux on PATH: install util-linux")
    flags = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        flags.append("--map-root-user")
    probe = subprocess.run([unshare, *flags, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        raise RayMissingError(
            f"the tests of Ray need network, process and mount namespaces, and `unshare {' '.join(flags)}` says: "
            f"{probe.stderr.strip()}; run as root, in a container with CAP_SYS_ADMIN, or allow user namespaces"
        )
    return subprocess.run(
        [unshare, *flags, sys.executable, "-m", "kit.realray", "enter", *command], check=False
    ).returncode


def enter(command: list[str]) -> int:
    """In there: bring loopback up, run the command, and wait for it and for every orphan it leaves."""
    loopback_up()
    child = os.posix_spawnp(command[0], command, os.environ)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: os.kill(child, got))
    while True:
        gone, status = os.wait()
        if gone == child:
            return os.waitstatus_to_exitcode(status)


def loopback_up() -> None:
    """What `ip link set lo up` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
