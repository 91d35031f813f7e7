"""Waiting for a condition instead of for a time: the one way in which tests wait."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

LIMIT_S = 30.0
"""Generous: the machine may be busy with something else."""
SELDOM_S = 0.15
"""The longest pause between two questions of a wait that began with shorter pauses: a question costs the API server, or
the bus, as much as the work that is waited for."""
GROWTH = 1.2
"""Of the pauses: a pause is at most a fifth of the time waited so far."""


@overload
async def until(
    predicate: Callable[[], Awaitable[T | None]], timeout_s: float = LIMIT_S, every_s: float = 0.02, *, what: str = ""
) -> T: ...


@overload
async def until(
    predicate: Callable[[], T | None], timeout_s: float = LIMIT_S, every_s: float = 0.02, *, what: str = ""
) -> T: ...


async def until(
    predicate: Callable[[], T | Awaitable[T | None] | None],
    timeout_s: float = LIMIT_S,
    every_s: float = 0.02,
    *,
    what: str = "",
) -> T:
    """Ask ``predicate`` (plain or async) until it answers something true, and return that.

    The first pause is ``every_s`` seconds; pauses grow to SELDOM_S.

    Raises AssertionError with its last answer after ``timeout_s`` seconds, and whatever ``predicate`` raises at once.
    ``what`` names in the error what was waited for.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        answer = predicate()
        value = await answer if isinstance(answer, Awaitable) else answer
        if value:
            return value
        if loop.time() > deadline:
            name = what or getattr(predicate, "__qualname__", "the condition")
            raise AssertionError(f"waited {timeout_s:g} s in vain for {name}; the last answer was {value!r}")
        await asyncio.sleep(every_s)
        every_s = max(every_s, min(every_s * GROWTH, SELDOM_S))
