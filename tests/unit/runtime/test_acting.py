"""What the actuator looks at while it carries out much: counted, because it is asked at every answer."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping

import pytest

from kit.alone import alone, reader_of
from kit.doubles.log import MemoryLeases, MemoryLog
from muster.core.actuation.carrying import order_of, orders_of
from muster.core.actuation.intents import ActuatorState
from muster.core.actuation.orders import Bind, Order, Unbind
from muster.model.keys import Intent, Ref
from muster.ports import ApiResponse, LogIdentity
from muster.runtime.runners import acting

pytestmark = pytest.mark.looptime


class Clock:
    def now(self) -> int:
        return 1_800_000_000_000 + int(asyncio.get_running_loop().time() * 1000)


class Binding:
    """An API server that takes every binding after a tenth of a second."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.at_once = self.most_at_once = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
    ) -> ApiResponse:
        self.taken.append(path)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.1)
        self.at_once -= 1
        return ApiResponse(201, b"{}")

    def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        raise AssertionError("nothing is watched")


def bind(number: int, seq: int = 1) -> Bind:
    return Bind(Ref("Pod", "video", f"pod-{number:05}", f"uid-{number:05}"), 1, Intent(1, seq, number), "node")


async def test_each_of_many_orders_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    count, looked = 2_000, 0

    def counted(state: ActuatorState) -> Iterator[Order]:
        nonlocal looked
        for order in orders_of(state):
            looked += 1
            yield order

    monkeypatch.setattr(acting, "orders_of", counted)
    server = Binding()
    runner = acting.ActuatorRunner(
        server,
        log=reader_of(MemoryLog(LogIdentity(cell="main", log_id="log", generation=1))),
        lease=MemoryLeases().lease("actuator", "0", "p"),
        snapshots=None,
        clock=Clock(),
        process="p",
    )
    for number in range(count):
        order = bind(number)
        runner.state.binds[order.ref.uid] = order
    task = asyncio.ensure_future(alone(runner))
    async with asyncio.timeout(600):
        while runner.state.binds:
            await asyncio.sleep(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(server.taken) == count
    assert server.taken == sorted(server.taken), "in the order in which they were decided"
    assert server.most_at_once == acting.MAX_IN_FLIGHT
    assert looked <= 10 * count


def test_one_order_of_an_object_at_a_time_as_they_were_decided() -> None:
    state, late, early = ActuatorState(), bind(1, seq=9), bind(2, seq=3)
    back = Unbind(late.ref, 1, Intent(1, 7, 0), "node", late.cause)
    for order in (early, late):
        state.binds[order.ref.uid] = order
    state.unbinds[back.ref.uid] = back
    assert list(orders_of(state)) == [early, back], "whether it was bound is found out before it is bound again"
    assert order_of(state, late.ref.uid) == back
