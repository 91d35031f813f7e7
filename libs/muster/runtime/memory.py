"""What a process frees goes back to the machine.

A snapshot of a large state takes some buffers of 15 MB. The allocator of glibc learns from the first one that is freed
to take the next ones from its heaps, one for each thread, and keeps what lies below the last block in use.
"""

from __future__ import annotations

import ctypes
import os

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
"""Of ``mallopt`` (3)."""

LARGE = 1 << 20
"""Bytes of a block that is freed by itself."""


def give_back() -> bool:
    """From now on large blocks return to the machine when they are freed. False where the allocator is another one."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    chosen = (M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, LARGE), (M_TRIM_THRESHOLD, LARGE)
    return os.name == "posix" and all(mallopt(option, value) for option, value in chosen)
