"""What runs beside a test: that it fails, or ends before the test does, is never overlooked."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any


def still_running(task: "asyncio.Task[Any]") -> None:
    """Raises what the task failed with, or AssertionError when it has ended otherwise."""
    if task.done() and not task.cancelled():
        task.result()
    assert not task.done(), f"{task} has ended"


@contextlib.asynccontextmanager
async def beside(running: Coroutine[Any, Any, object]) -> AsyncIterator[Callable[[], None]]:
    """Run something for as long as the block lasts. Gives a guard for long waits: it raises when that has ended.

    At the end it is asked in any case, so that whoever waited in vain learns why.
    """
    task = asyncio.get_running_loop().create_task(running)
    try:
        yield lambda: still_running(task)
    finally:
        ended = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if ended:
            still_running(task)
