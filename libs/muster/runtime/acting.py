"""The actuator's runner: carries outstanding admissions out on the API server and appends their effects.

Up to MAX_IN_FLIGHT requests at once, never two on one object. What is outstanding after a crash is carried out
again; the fence in every patch makes a repetition harmless (see core.actuation.patch).
"""

from __future__ import annotations

import asyncio
from random import Random

from muster.core.actuation import provisioning
from muster.core.actuation.answers import Effect, Reread, Retry, applied, message_of
from muster.core.actuation.asking import Asking
from muster.core.actuation.bind import Bind, after_binding, binding_for, read_binding
from muster.core.actuation.intents import Actuator, ActuatorState, Known, Outstanding
from muster.core.actuation.patch import after_reread, patch_for, read_answer
from muster.core.workloads.registry import KINDS
from muster.events.base import Event
from muster.events.effects import EffectFailed
from muster.events.envelope import MAX_EVENTS, CommitKind
from muster.model.api import JSON, JSON_PATCH, PODS
from muster.model.keys import Intent
from muster.ports import ApiTransport, ApiUnreachableError, Clock, Lease, Log, Snapshots
from muster.runtime.hooks import Hooks
from muster.runtime.leader import Leader

MAX_IN_FLIGHT = 32
REQUEST_TIMEOUT_S = 10.0
NS_PER_MS = 1_000_000
BACKOFF_S = (0.2, 10.0)
"""First and longest pause before a request is tried again; the pauses are spread at random."""
REREADS = 5
"""How often a patch that does not pass its tests is rebuilt from the object before it counts as refused."""


Order = Outstanding | Bind | Asking


class _Turns:
    """Of one object: the tasks that carry its orders out take turns, also those whose order was withdrawn meanwhile."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.tasks = 0


class ActuatorRunner(Leader[ActuatorState]):
    """Carries decisions out. Only the leader acts."""

    def __init__(
        self,
        transport: ApiTransport,
        *,
        log: Log,
        lease: Lease,
        snapshots: Snapshots | None,
        clock: Clock,
        process: str,
        hooks: Hooks | None = None,
        rng: Random | None = None,
    ) -> None:
        super().__init__(
            Actuator(), log=log, lease=lease, snapshots=snapshots, clock=clock, process=process, hooks=hooks
        )
        self._transport = transport
        self._rng = rng or Random()  # noqa: S311 - spreads retries, decides nothing
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._taken: dict[str, Intent] = {}
        """workload uid -> the outstanding order that has a task"""
        self._turns: dict[str, _Turns] = {}
        """workload uid -> whose request is under way, while there are tasks for it"""
        self._effects: list[Event] = []
        self._tasks: asyncio.TaskGroup | None = None

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        await super().started(tasks)

    async def produce(self) -> tuple[CommitKind, list[Event]] | None:
        assert self._tasks is not None
        orders: dict[str, Order] = {**self.state.outstanding, **self.state.binds, **self.state.asking}
        for uid, order in orders.items():
            if self._taken.get(uid) != order.intent:
                self._taken[uid] = order.intent
                turns = self._turns.setdefault(uid, _Turns())
                turns.tasks += 1
                self._tasks.create_task(self._carry_out(order, turns))
        for uid in [uid for uid in self._taken if uid not in orders]:
            del self._taken[uid]
        effects, self._effects = self._effects[:MAX_EVENTS], self._effects[MAX_EVENTS:]
        return ("input", effects) if effects else None

    async def _carry_out(self, order: Order, turns: _Turns) -> None:
        async with turns.lock:
            effect = await self._until_answered(order)
        turns.tasks -= 1
        if not turns.tasks:
            del self._turns[order.ref.uid]
        if effect is not None:
            self._effects.append(effect)
            self.wake()

    def _is_due(self, order: Order) -> bool:
        uid, state = order.ref.uid, self.state
        return order in (state.outstanding.get(uid), state.binds.get(uid), state.asking.get(uid))

    async def _until_answered(self, order: Order) -> Effect | None:
        """Try until there is an effect; None when the order was withdrawn meanwhile."""
        known: Known | None = None
        pause_s, rereads = BACKOFF_S[0], 0
        while True:
            # Whoever pauses holds nobody up: what is refused for one kind or namespace may be fine for all others.
            async with self._slots:
                if not self._is_due(order):
                    return None
                known = known or self.state.known.get(order.ref.uid, Known())
                answer = await self._try(order, known)
            if isinstance(answer, Known):
                known, rereads = answer, rereads + 1
                if rereads < REREADS:
                    continue
                answer = Retry("conflict", "the object keeps changing under the patch")
            if not isinstance(answer, Retry):
                return answer
            self.hooks.note(
                "warning", "actuation_retried", ref=str(order.ref), why=answer.reason, message=answer.message
            )
            await asyncio.sleep(pause_s * (0.5 + self._rng.random() / 2))
            pause_s = min(pause_s * 2, BACKOFF_S[1])

    async def _try(self, order: Order, known: Known) -> Effect | Retry | Known:
        """One try. ``known``: what a patch is built on; where the object is otherwise by now, that is returned."""
        match order:
            case Bind():
                return await self._bind(order)
            case Asking():
                return await self._ask(order)
        began = self.clock.now()
        answer = await self._attempt(order, known)
        trouble = answer.reason if isinstance(answer, Retry | EffectFailed) else ""
        times = (began * NS_PER_MS, self.clock.now() * NS_PER_MS)
        self.hooks.wrote(order.ref, order.cause, "PATCH", times, trouble)
        return answer

    async def _bind(self, order: Bind) -> Effect | Retry:
        path = PODS.path(order.ref.namespace, order.ref.name)
        try:
            response = await self._transport.request(
                "POST", f"{path}/binding", body=binding_for(order), content_type=JSON, timeout_s=REQUEST_TIMEOUT_S
            )
            answer = read_binding(order, response.status, response.body)
            if not isinstance(answer, Reread):
                return answer
            found = await self._transport.request("GET", path, timeout_s=REQUEST_TIMEOUT_S)
        except ApiUnreachableError as err:
            return Retry("unavailable", str(err))
        return after_binding(order, found.status, found.body, message_of(response.body))

    async def _ask(self, order: Asking) -> Effect | Retry:
        try:
            for call in provisioning.calls(order):
                response = await self._transport.request(
                    call.method,
                    call.path(order.ref.namespace),
                    body=call.body,
                    content_type=JSON,
                    timeout_s=REQUEST_TIMEOUT_S,
                )
                answer = provisioning.read_call(order, call, response.status, response.body)
                if answer is not None:
                    return answer
        except ApiUnreachableError as err:
            return Retry("unavailable", str(err))
        return applied(order)

    async def _attempt(self, order: Outstanding, known: Known) -> Effect | Retry | Known:
        path = KINDS[order.ref.kind].resource.path(order.ref.namespace, order.ref.name)
        try:
            response = await self._transport.request(
                "PATCH",
                path,
                body=patch_for(order, known),
                content_type=JSON_PATCH,
                timeout_s=REQUEST_TIMEOUT_S,
            )
            answer = read_answer(order, response.status, response.body)
            if not isinstance(answer, Reread):
                return answer
            refusal = message_of(response.body)
            found = await self._transport.request("GET", path, timeout_s=REQUEST_TIMEOUT_S)
        except ApiUnreachableError as err:
            return Retry("unavailable", str(err))
        return after_reread(order, known, self.state.seq, found.status, found.body, refusal)
