"""A process that ends lets others lead before it does anything that takes long."""

import asyncio
from typing import Any, cast

import pytest

from muster.bus.connection import Connection
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.ports import LogIdentity
from muster.runtime import process as running
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config
from muster.runtime.process import Process
from muster.runtime.runners.shared import SharedLog
from muster.telemetry import logs
from muster.telemetry.metrics import Metrics


class Lease:
    held = True

    async def release(self) -> None:
        self.held = False


class Runner:
    """Whose snapshot is never stored."""

    def __init__(self) -> None:
        self.lease = Lease()
        self.stopped = False

    async def stop(self, *, keep: bool) -> None:
        self.stopped = True
        await asyncio.Event().wait()


async def test_leases_are_given_up_before_snapshots_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "STOP_LIMIT_S", 0.05)
    js = JetStream(Connection(cast(Any, None), "test", lambda _event, _fields: None))
    log = SharedLog(JetStreamLog(js, LogIdentity("main", "log1", 1)))
    runners = [Runner(), Runner()]
    made = Process(
        Config(), "all", "p1", SystemClock(), logs.get(), Metrics(), js.connection, js, log, cast(Any, None),
        runners=cast(Any, runners),
    )  # fmt: skip
    await made._leave()
    assert [each.lease.held for each in runners] == [False, False]
    assert [each.stopped for each in runners] == [True, False]
