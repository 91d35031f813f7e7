"""Waiting for a condition instead of for a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")


@overload
async def until(predicate: Callable[[], Awaitable[T]], timeout_s: float = 10.0, every_s: float = 0.01) -> T: ...


@overload
async def until(predicate: Callable[[], T], timeout_s: float = 10.0, every_s: float = 0.01) -> T: ...


async def until(predicate: Callable[[], T | Awaitable[T]], timeout_s: float = 10.0, every_s: float = 0.01) -> T:
    """Ask ``predicate`` (plain or async) until it answers something true, and return that.

    Raises AssertionError with its last answer after ``timeout_s`` seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        answer = predicate()
        value = await answer if isinstance(answer, Awaitable) else answer
        if value:
            return value
        if loop.time() > deadline:
            raise AssertionError(f"not so within {timeout_s:g} s; the last answer was {value!r}")
        await asyncio.sleep(every_s)
