"""`muster submit` goes to the demo that a setting names, never to another one that is newer."""

from __future__ import annotations

import pytest

from muster_cli import api, instances
from muster_cli.api import api_of
from muster_cli.exits import CliError
from muster_cli.instances import Instance

OLD, NEW = "nats://127.0.0.1:4222", "nats://127.0.0.1:4223"


@pytest.fixture(autouse=True)
def demos(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        Instance(1, started, url, "main", "/tmp", temporary=True, acting=True, simulated=True, kubeconfig=url)
        for started, url in ((2, NEW), (1, OLD))
    ]
    monkeypatch.setattr(instances, "running", lambda: made)


def named(monkeypatch: pytest.MonkeyPatch, url: str) -> str:
    """The URL of the demo that is written to."""
    monkeypatch.delenv("MUSTER_NATS_URL", raising=False)
    if url:
        monkeypatch.setenv("MUSTER_NATS_URL", url)
    instance = api._instance(None, simulated_only=True)
    assert instance is not None
    return instance.url


def test_the_setting_names_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(monkeypatch, "") == NEW
    assert named(monkeypatch, OLD) == OLD


async def test_a_setting_that_names_no_demo_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_NATS_URL", "nats://muster.example:4222")
    with pytest.raises(CliError, match="and no demo here has this log"):
        async with api_of(None, simulated_only=True):
            pass
