"""Ready means able: what a process says while one of its parts makes no progress."""

import asyncio
from typing import Any

import pytest

from kit.doubles.log import MemoryLeases
from muster.bus.public import Published
from muster.kube.poddefaults import PodDefaults
from muster.runtime import ability
from muster.runtime.runners.leasing import KeptLease
from muster.runtime.runners.publishing import Publisher
from muster.telemetry.logs import get
from muster.telemetry.metrics import Metrics
from muster.telemetry.observer import StageTelemetry
from muster.telemetry.traces import WorkloadTraces, make_tracing


class Parts:
    """Of a process what ability asks."""

    def __init__(self) -> None:
        self.connection = self
        self.log = self
        self.connected = True
        self.runners: list[Any] = []
        self.publishers: list[Any] = []
        self.keepers: list[Any] = []
        self.telemetries: list[Any] = []
        self.cluster_leases: list[Any] = []
        self.witness = None
        self.waited_s = 0.0
        self.ahead_ms = 0
        self.pod_defaults: PodDefaults | None = None

    def waits_s(self) -> float:
        return self.waited_s

    def reasons(self) -> list[str]:
        return list(ability.not_ready(self))  # type: ignore[arg-type]


class Silent:
    """An outlet that never stores, and a log of one."""

    async def resume(self) -> Published:
        return Published("", "")

    async def settle(self) -> str:
        await asyncio.Event().wait()
        return ""

    async def keep(self) -> None:
        pass


@pytest.mark.looptime
async def test_a_publisher_whose_events_are_not_stored_is_not_ready() -> None:
    parts = Parts()
    publisher = Publisher(log=None, outlet=Silent(), lease=MemoryLeases().lease("publisher", "0", "p"))  # type: ignore[arg-type]
    await publisher.lease.acquire()
    parts.publishers.append(publisher)
    assert parts.reasons() == []
    publisher._sent_since = asyncio.get_running_loop().time()
    await asyncio.sleep(6)
    assert parts.reasons() == ["the stream of public events has taken none for 6 s: NATS has no leader or no room"]


@pytest.mark.looptime
async def test_a_watch_that_hears_nothing_is_not_ready() -> None:
    parts = Parts()
    traces = WorkloadTraces(make_tracing("watcher"), "watcher", lambda _: 1)
    telemetry = StageTelemetry("watcher", "pods", Metrics(), get(service="t"), traces)
    parts.telemetries.append(telemetry)
    telemetry.heard("pods", asyncio.get_running_loop().time())
    await asyncio.sleep(170)
    assert parts.reasons() == []
    await asyncio.sleep(20)
    assert parts.reasons() == ["nothing was heard of pods for 190 s: the API server does not answer"]


@pytest.mark.looptime
async def test_a_seat_that_no_process_is_known_to_lead_is_not_ready() -> None:
    class Lost:
        async def acquire(self) -> bool | None:
            return None

    parts = Parts()
    publisher = Publisher(log=None, outlet=None, lease=Lost())  # type: ignore[arg-type]
    parts.publishers.append(publisher)
    asking = asyncio.ensure_future(publisher.lease.acquire())
    await asyncio.sleep(2)
    assert parts.reasons() == [
        "no process leads the publisher, and its lease cannot be taken: NATS has no leader or no room on its disk"
    ]
    asking.cancel()
    leases = MemoryLeases()
    assert await leases.lease("publisher", "0", "other").acquire()
    publisher.lease = KeptLease(leases.lease("publisher", "0", "p"), "the publisher")
    asking = asyncio.ensure_future(publisher.lease.acquire())
    await asyncio.sleep(2)
    assert parts.reasons() == [], "another leads"
    asking.cancel()


@pytest.mark.looptime
async def test_a_publisher_that_stands_by_has_started() -> None:
    """The kubelet ends a container that never starts, and a roll-out waits for it."""
    parts, leases = Parts(), MemoryLeases()
    assert await leases.lease("publisher", "0", "other").acquire()
    publisher = Publisher(log=None, outlet=Silent(), lease=leases.lease("publisher", "0", "p"))  # type: ignore[arg-type]
    parts.publishers.append(publisher)
    asking = asyncio.ensure_future(publisher.lease.acquire())
    await asyncio.sleep(2)
    assert list(ability.not_started(parts)) == []  # type: ignore[arg-type]
    publisher.lease.held = True
    assert list(ability.not_started(parts)) == ["publisher has not caught up yet"]  # type: ignore[arg-type]
    asking.cancel()


async def test_a_clock_that_is_ahead_is_not_able_to_lead() -> None:
    parts = Parts()
    parts.ahead_ms = 2_000
    assert parts.reasons() == []
    parts.ahead_ms = 86_400_000
    assert parts.reasons() == [
        "the clock of this machine is 1 d ahead of the broker's, and the process leads nothing: set it right (NTP)"
    ]


async def test_pod_defaults_that_are_not_listed_are_named_with_the_way_out() -> None:
    """A right that a new version needs and the old roles lack: nothing else says why no job is read."""
    parts = Parts()
    parts.pod_defaults = PodDefaults()
    (reason,) = parts.reasons()
    assert "limitranges" in reason
    assert "runtimeclasses.node.k8s.io" in reason
    assert "deploy/rbac" in reason
