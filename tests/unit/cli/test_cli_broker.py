"""The nats-server of ``muster up``: two that begin at the same moment both get a port."""

import asyncio
import socket
from pathlib import Path

import pytest

from muster.bus.errors import PortTakenError
from muster_cli.local import broker as module
from muster_cli.local.broker import broker


async def test_two_that_start_together_both_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setattr(module, "USUAL_PORT", probe.getsockname()[1])
    said: list[str] = []

    async def one(name: str, there: asyncio.Barrier) -> int:
        async with broker(tmp_path / name, None, said.append) as server:
            await there.wait()
            return server.port

    there = asyncio.Barrier(2)
    ports = await asyncio.gather(one("a", there), one("b", there))
    assert len(set(ports)) == 2
    assert len(said) <= 1


async def test_a_port_that_was_asked_for_and_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortTakenError, match="set --port to another port"):
            async with broker(tmp_path, taken.getsockname()[1], print):
                pass
