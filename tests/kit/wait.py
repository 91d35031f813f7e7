"""Waits in tests: for a condition, never for a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.05


async def wait_for(condition: Callable[[], Awaitable[T | None]], timeout_s: float = 30.0, *, what: str = "") -> T:
    """First truthy answer of `condition`, asked anew every 50 ms.

    `what` names the awaited thing in the error. Raises TimeoutError with the last answer after
    `timeout_s` seconds, and whatever `condition` raises at once.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = await condition()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            name = what or getattr(condition, "__qualname__", repr(condition))
            raise TimeoutError(f"waited {timeout_s:g} s in vain for {name}; the last answer was {answer!r}")
        await asyncio.sleep(POLL_SECONDS)
