"""A right that the accounts lack is one sentence that names it: in the log of the process, and in `muster doctor`."""

import asyncio
from pathlib import Path

import pytest

from kit.accounts import Accounts
from kit.cli import Cli
from kit.compose import Running
from kit.simulated import cluster
from muster.bus.server import EmbeddedServer
from muster.runtime.endings import UNAVAILABLE

pytestmark = pytest.mark.timeout(120)


def lacking(config: str, user: str, right: str) -> str:
    """Accounts as those of another version would be."""
    head, begins, rest = config.partition(f"may_{user} {{")
    line = f'        "{right}"\n'
    assert line in rest
    return head + begins + rest.replace(line, "", 1)


async def test_a_denied_right_is_told_by_the_process_and_by_doctor(tmp_path: Path) -> None:
    accounts, cli = Accounts(tmp_path / "keys"), Cli(tmp_path / "cli")
    config = lacking(accounts.config, "actuator", "$KV.MUSTER_LEASE_main.presenter.0")
    async with EmbeddedServer(config=config) as server, cluster(tmp_path) as (_, kubeconfig):
        url = {"MUSTER_NATS_URL": server.url, "MUSTER_LOG_MAX_BYTES": str(64 << 20)}
        (await cli.run("log", "init", **url, **accounts.env("admin"))).ok()
        env = {**url, **accounts.env("actuator"), "MUSTER_HEALTH_PORT": "-1", "MUSTER_KUBECONFIG": str(kubeconfig)}
        actuator = Running("actuator", tmp_path, 0, env)
        await actuator.start()
        assert await actuator.finished() == UNAVAILABLE
        key = accounts.seed_of("actuator")
        sentence = (
            f"user actuator of NATS (key {key}) may not publish on '$KV.MUSTER_LEASE_main.presenter.0': accounts.conf "
            "of the NATS servers does not allow it; write that file again (`python -m muster.runtime.natsaccounts "
            "--cell main`; on a cluster ConfigMap muster-nats of the install file has it), and have the servers read "
            "it again"
        )
        assert sentence in actuator.tail()
        told, own = await asyncio.gather(
            cli.run("doctor", "--url", server.url, "--output", "json", **accounts.env("cli")),
            cli.run("doctor", "--url", server.url, "--output", "json", **accounts.env("reader")),
        )
        [found] = [each for each in told.json()["findings"] if each["title"] == "actuator"]
        assert found["grade"] == "bad"
        assert found["detail"].endswith(f"ago: {sentence}")
        [found] = [each for each in own.json()["findings"] if each["grade"] == "bad"]
        assert found["title"] == "rights"
        assert "user reader of NATS" in found["detail"]
