"""Buffers of snapshots do not stay with the process that made them."""

import subprocess
import sys

import pytest

MADE = """
import sys, zlib
from concurrent.futures import ThreadPoolExecutor
from muster.runtime.memory import give_back

def held():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * 4096 >> 20

def made(size):
    body = bytearray(size)
    return len(zlib.compress(body, 0)), bytes(100_000)

if sys.argv[1] == "set":
    assert give_back()
before, small = held(), []
with ThreadPoolExecutor(4) as threads:
    for size in range(8, 18):
        small += [result[1] for result in threads.map(made, [size << 20] * 4)]
    print(held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is the allocator of glibc")
def test_what_snapshots_took_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", MADE, "set"], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 16
