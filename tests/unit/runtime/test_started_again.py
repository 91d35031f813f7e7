"""Services that are started again in a process that lives on leave nothing of their former runners and states."""

import asyncio
import gc
import weakref
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from muster.bus.errors import BusError
from muster.ports import LogSealedError
from muster.runtime import service
from muster.runtime.config import Config
from muster.telemetry import logs
from muster_cli.local import services as local
from muster_cli.local.services import Services


class Lives:
    """A process of services whose parts refer to each other, kept from the collector as restored states are."""

    def __init__(self, lives: list["weakref.ref[Lives]"], ends: Exception, last: int) -> None:
        self.itself = self
        self.logger = logs.get(service="up")
        self._ends, self._last = ends, len(lives) == last
        lives.append(weakref.ref(self))
        gc.freeze()

    async def run(self) -> None:
        if self._last:
            raise asyncio.CancelledError
        raise self._ends


async def test_of_a_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    lives: list[weakref.ref[Lives]] = []

    class Demo(Services):
        async def open(self) -> None:
            assert [each() for each in lives] == [None] * len(lives)
            self._process = Lives(lives, BusError("away"), 3)  # type: ignore[assignment]

    monkeypatch.setattr(local, "AGAIN_S", 0)
    nothing: Any = None
    with pytest.raises(asyncio.CancelledError):
        await Demo(Config(), nothing, nothing, lambda _: None, Path()).run()
    assert len(lives) == 4


async def test_of_a_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    lives: list[weakref.ref[Lives]] = []

    async def opened(*_: object) -> tuple[Lives, AsyncExitStack]:
        assert [each() for each in lives] == [None] * len(lives)
        return Lives(lives, LogSealedError("sealed"), 3), AsyncExitStack()

    monkeypatch.setattr(service, "_open", opened)
    nothing: Any = None
    with pytest.raises(asyncio.CancelledError):
        await service._serve(Config(health_port=-1), "publisher", nothing, keeping=False)
    assert len(lives) == 4
