"""What runners open of the bus is declared once: a process gets nothing that its account would refuse."""

from typing import Any, cast

import pytest

from muster.audit.judge import RIGHTS
from muster.bus.cell import FOLDERS
from muster.bus.connection import Connection
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.ports import LogIdentity
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config
from muster.runtime.layouts import LAYOUTS, members, user_of
from muster.runtime.marking import Marking
from muster.runtime.opening import OPENINGS, RUNNERS, UndeclaredError, openings
from muster.runtime.process import Process
from muster.runtime.runners.shared import SharedLog
from muster.telemetry import logs
from muster.telemetry.metrics import Metrics
from muster_cli.composing import add
from muster_cli.state import SEATS

IDENTITY = LogIdentity("main", "log1", 1)


def process(service: str) -> Process:
    """One that is connected to nothing."""
    connection = Connection(cast(Any, None), "test", lambda _event, _fields: None)
    js = JetStream(connection)
    log = JetStreamLog(js, IDENTITY)
    marking = Marking(cast(Any, None), user_of(service), log, [], logs.get())
    shared = SharedLog(log)
    made = Process(Config(), service, "p1", SystemClock(), logs.get(), Metrics(), connection, js, shared, marking)
    made.transport = cast(Any, object())
    return made


@pytest.mark.parametrize("name", sorted({name for layout in LAYOUTS.values() for name in layout}))
async def test_a_process_of_a_layout_runs_the_runners_that_are_declared(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = Process.opened

    def noting(self: Process, runner: str, shard: str = "0") -> Any:
        opened.append(runner)
        return real(self, runner, shard)

    async def paired(self: Process, transport: object) -> None:
        pass

    monkeypatch.setattr(Process, "opened", noting)
    monkeypatch.setattr(Process, "pair", paired)
    made = process(name)
    for service in members(name):
        if service == "gateway":  # It serves at once, and reads the log for that.
            made.opened(service)
        else:
            await add(made, service)
    assert {*opened} == {*openings(name)}


async def test_a_runner_opens_nothing_else() -> None:
    actuator = process("actuator")
    with pytest.raises(UndeclaredError, match="process actuator runs actuator, presenter, and not publisher"):
        actuator.opened("publisher")
    own = actuator.opened("presenter").snapshots
    own.each("readmodel", "0")
    with pytest.raises(UndeclaredError, match="a runner reads the snapshots of actuator"):
        own.each("actuator", "0")


def test_all_that_is_kept_is_declared_and_all_leases_are_shown() -> None:
    assert {each.keeps for each in OPENINGS.values() if each.keeps} == {*FOLDERS}
    assert {each.lease for each in OPENINGS.values() if each.lease} == {stage for stage, _ in SEATS}
    assert {each.appends for each in OPENINGS.values() if each.appends} == {
        stage for stage, _, _ in (seat.partition(".") for seat in RIGHTS) if stage != "genesis"
    }
    assert {runner for runners in RUNNERS.values() for runner in runners} == {*OPENINGS}
