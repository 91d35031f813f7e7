"""The actuator's runner: carries outstanding admissions out on the API server and appends their effects.

Up to MAX_IN_FLIGHT requests at once, never two on one object. What is outstanding after a crash is carried out
again; the fence in every patch makes a repetition harmless (see core.actuation.patches).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from random import Random

from muster.core.actuation.carrying import Reply, Request, carry_out, is_due, order_of, orders_of
from muster.core.actuation.intents import Actuator, ActuatorState
from muster.core.actuation.orders import Effect, Order, Outstanding, RetryLater
from muster.core.actuation.podwrites import IMAGE
from muster.events.base import Event
from muster.events.effects import EffectFailed
from muster.events.envelope import MAX_EVENTS, CommitKind
from muster.kube.backoff import AWAY_CAP_S, STARTING_S
from muster.model.keys import Intent
from muster.model.problem import problem
from muster.ports import ApiTransport, ApiUnreachableError, Clock, Lease, Snapshots
from muster.runtime.runners.hooks import Hooks
from muster.runtime.runners.leader import Leader
from muster.runtime.runners.shared import SharedLog
from muster.told.wording import problems

MAX_IN_FLIGHT = 32
TAKEN_UP = 4 * MAX_IN_FLIGHT
"""Orders that have a task at once, beside those that pause: looking for more at each answer would cost more."""
REQUEST_TIMEOUT_S = 10.0
NS_PER_MS = 1_000_000
BACKOFF_S = (0.2, 10.0)
"""First and longest pause before a request is tried again; the pauses are spread at random. Where the API server is
away, or was a moment ago, none is longer than AWAY_CAP_S.
"""


class _Turns:
    """Turns of the tasks that carry out the orders of an object, also of orders withdrawn meanwhile."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.tasks = 0


class ActuatorRunner(Leader[ActuatorState]):
    """Carries decisions out. Only the leader acts."""

    def __init__(
        self,
        transport: ApiTransport,
        *,
        log: SharedLog,
        lease: Lease,
        snapshots: Snapshots | None,
        clock: Clock,
        process: str,
        hooks: Hooks | None = None,
        rng: Random | None = None,
        image: str = IMAGE,
    ) -> None:
        """``image``: of the pods that keep shared GPUs."""
        super().__init__(
            Actuator(), log=log, lease=lease, snapshots=snapshots, clock=clock, process=process, hooks=hooks
        )
        self._transport = transport
        self._image = image
        self._rng = rng or Random()  # noqa: S311 - spreads retries, decides nothing
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._taken: dict[str, Intent] = {}
        """uid -> the order that has a task, or its effect"""
        self._turns: dict[str, _Turns] = {}
        """uid -> whose request is under way, while there are tasks for it"""
        self._busy = 0
        """Tasks that do not pause."""
        self._away_at = float("-inf")
        """When the API server was away last."""
        self._effects: list[Event] = []
        self._tasks: asyncio.TaskGroup | None = None

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        await super().started(tasks)

    def has_work(self) -> bool:
        return bool(self._effects) or next(self._not_taken(), None) is not None

    async def produce(self) -> tuple[CommitKind, list[Event]] | None:
        assert self._tasks is not None
        for order in tuple(islice(self._not_taken(), TAKEN_UP - self._busy)):
            uid = order.ref.uid
            self._taken[uid] = order.intent
            turns = self._turns.setdefault(uid, _Turns())
            turns.tasks += 1
            self._busy += 1
            self._tasks.create_task(self._carry_out(order, turns))
        effects, self._effects = self._effects[:MAX_EVENTS], self._effects[MAX_EVENTS:]
        return ("input", effects) if effects else None

    def _not_taken(self) -> Iterator[Order]:
        """What has no task yet, once there is room for many."""
        if self._busy > TAKEN_UP // 2:
            return
        for uid in [uid for uid in self._taken if order_of(self.state, uid) is None]:
            del self._taken[uid]
        yield from (order for order in orders_of(self.state) if self._taken.get(order.ref.uid) != order.intent)

    async def _carry_out(self, order: Order, turns: _Turns) -> None:
        async with turns.lock:
            effect = await self._until_answered(order)
        turns.tasks -= 1
        self._busy -= 1
        if not turns.tasks:
            del self._turns[order.ref.uid]
        if effect is not None:
            self._effects.append(effect)
        self.wake()

    def _is_due(self, order: Order) -> bool:
        return is_due(order, self.state)

    async def _until_answered(self, order: Order) -> Effect | None:
        """Try until there is an effect; None when the order was withdrawn meanwhile."""
        pause_s = BACKOFF_S[0]
        while True:
            # A task that pauses holds no slot: what is refused for one kind or namespace may be fine for all others.
            async with self._slots:
                answer = await self._try(order)
            if not isinstance(answer, RetryLater):
                return answer
            self.hooks.note(
                "warning",
                "actuation_retried",
                ref=str(order.ref),
                why=answer.reason,
                message=problems.line(answer.problem),
            )
            self._busy -= 1
            self.wake()
            await asyncio.sleep(min(pause_s, self._longest_s(answer)) * (0.5 + self._rng.random() / 2))
            self._busy += 1
            pause_s = min(pause_s * 2, BACKOFF_S[1])

    def _longest_s(self, answer: RetryLater) -> float:
        """How long to pause at the most after an answer."""
        now = asyncio.get_running_loop().time()
        if answer.reason == "unavailable":
            self._away_at = now
        return AWAY_CAP_S if now - self._away_at < STARTING_S else BACKOFF_S[1]

    async def _try(self, order: Order) -> Effect | RetryLater | None:
        """One try, request by request; None once the order has been withdrawn."""
        steps = carry_out(order, lambda: self.state, self._image)
        began = self.clock.now()
        reply: Reply | None = None
        while True:
            try:
                request = steps.send(reply) if reply is not None else next(steps)
            except StopIteration as ended:
                answer: Effect | RetryLater = ended.value
                break
            if not self._is_due(order):
                return None
            try:
                reply = await self._send(request)
            except ApiUnreachableError as err:
                answer = RetryLater("unavailable", problem("", "unreachable", said=str(err)))
                break
        if isinstance(order, Outstanding):
            trouble = answer.reason if isinstance(answer, RetryLater | EffectFailed) else ""
            times = (began * NS_PER_MS, self.clock.now() * NS_PER_MS)
            self.hooks.wrote(order.ref, order.cause, "PATCH", times, trouble)
        return answer

    async def _send(self, request: Request) -> Reply:
        response = await self._transport.request(
            request.method,
            request.path,
            query=request.query,
            body=request.body,
            content_type=request.content_type,
            timeout_s=REQUEST_TIMEOUT_S,
        )
        return Reply(response.status, response.body)
