"""What a process does now and then it does in the same turns of its loop.

Dozens of leases, marks and looks, each on a timer of its own, wake the process and the NATS server dozens of times a
second where nothing happens. In one turn they share the wake-up, the write to the socket and its answer.
"""

from __future__ import annotations

import asyncio

LEAST = 8
"""A sleep is no shorter than this part of a beat: a timer may fire a little early."""


def left_s(now: float, every_s: float) -> float:
    """The seconds from ``now`` (time of the loop) to the next beat, or to the one after that where it comes at once."""
    left = every_s - now % every_s
    return left if left >= every_s / LEAST else left + every_s


async def beat(every_s: float) -> None:
    """Sleep until the next beat: the times of the loop that are multiples of ``every_s``."""
    await asyncio.sleep(left_s(asyncio.get_running_loop().time(), every_s))
