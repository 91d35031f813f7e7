"""Answers on their way: one subject space for all requests of a connection, a future for each request."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import cast

from nats.aio.msg import Msg


class Sink:
    """Replaces the future of nats-py for the first message, and hands every message straight over.

    The queue of an ordinary subscription drops messages when it is full and costs a task switch for each;
    here there is no queue. The function must not raise: nats-py would stop reading the connection.
    """

    def __init__(self, take: Callable[[Msg], None]) -> None:
        self.set_result = take

    def cancelled(self) -> bool:
        return False

    def as_future(self) -> asyncio.Future[Msg]:
        """Itself, as the type nats-py asks for."""
        return cast("asyncio.Future[Msg]", self)


class Inbox:
    """Futures by the last token of their reply subject."""

    def __init__(self) -> None:
        self.subject = ""
        self._tokens = itertools.count()
        self._pending: dict[str, asyncio.Future[Msg]] = {}

    def expect(self) -> tuple[str, asyncio.Future[Msg]]:
        """A new reply subject, and the future of the first message that arrives there."""
        token = str(next(self._tokens))
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._pending[token] = future
        future.add_done_callback(lambda _: self._pending.pop(token, None))
        return f"{self.subject}.{token}", future

    def take(self, message: Msg) -> None:
        """An answer; those without a waiter are dropped."""
        future = self._pending.get(message.subject[len(self.subject) + 1 :])
        if future is not None and not future.done():
            future.set_result(message)

    def fail(self, error: Exception) -> None:
        """Nothing that was sent so far will be answered."""
        for future in list(self._pending.values()):
            if not future.done():
                future.set_exception(error)
                # The waiter has given up.
                future.exception()
