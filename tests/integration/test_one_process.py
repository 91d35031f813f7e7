"""`muster run all` on a real nats-server: one process with every stage, killed in the middle, and started again."""

import asyncio
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest

from kit import proof
from kit.accounts import shipped
from kit.cli import Cli
from kit.simulated import cluster, create
from kit.story import quota_tree, rayjob
from kit.waiting import until
from muster.bus.server import free_port
from muster.core.cell.deciders import DECIDERS
from muster.events.decisions import GangAdmitted
from muster.events.envelope import Stored
from muster.events.system import LeaderStarted
from muster.model import api
from muster.runtime.probe import probe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LEADS = {"watcher", *DECIDERS, "actuator"}


def leaders(commits: list[Stored]) -> dict[str, set[str]]:
    """{stage: the processes that have led it}"""
    found: dict[str, set[str]] = {}
    for stored in commits:
        for event in stored.commit.events:
            if isinstance(event, LeaderStarted):
                found.setdefault(stored.commit.stage, set()).add(event.process)
    return found


async def test_one_crash_is_one_start_and_loses_nothing(tmp_path: Path) -> None:
    cli, port = Cli(tmp_path / "cli"), free_port()
    url = f"http://127.0.0.1:{port}"

    async def commits() -> list[Stored]:
        return await proof.commits_of(nats, "main")

    async def admitted(names: set[str]) -> bool:
        events = [event for stored in await commits() for event in stored.commit.events]
        return {event.ref.name for event in events if isinstance(event, GangAdmitted)} == names

    async with shipped(tmp_path) as (nats, accounts), cluster(tmp_path) as (simulated, kubeconfig):
        room = {"MUSTER_NATS_URL": nats, "MUSTER_LOG_MAX_BYTES": str(64 << 20)}
        (await cli.run("log", "init", **room, **accounts.env("admin"))).ok()
        settings = {
            **accounts.env("all"),
            "MUSTER_NATS_URL": nats,
            "MUSTER_KUBECONFIG": str(kubeconfig),
            "MUSTER_HEALTH_PORT": str(port),
            "MUSTER_GATEWAY_PORT": "0",
            "MUSTER_GATEWAY_ACCESS": "none",
        }

        async def ready() -> bool:
            return (await asyncio.to_thread(probe, f"{url}/readyz"))[0]

        await create(simulated, api.QUOTA_TREES, quota_tree())
        async with cli.start("run", "all", **settings) as first:
            await until(ready, what="all of it to be ready")
            await create(simulated, api.RAYJOBS, rayjob("one", runtime="1h", cpu="1", memory="1G"))
            await until(lambda: admitted({"one"}), what="the first job to be admitted")
            first.process.send_signal(signal.SIGKILL)
            await first.wait()
        await create(simulated, api.RAYJOBS, rayjob("two", runtime="1h", cpu="1", memory="1G"))
        async with cli.start("run", "all", **settings) as second:
            await until(ready, timeout_s=60.0, what="it to be ready again")
            await until(lambda: admitted({"one", "two"}), what="the second job to be admitted")
            page = await asyncio.to_thread(lambda: urlopen(f"{url}/metrics").read().decode())
            assert (await second.stop()).code == 0, second.said()

        found = await commits()
        led = leaders(found)
        assert {stage: len(processes) for stage, processes in led.items()} == dict.fromkeys(LEADS, 2)
        assert len(set().union(*led.values())) == 2, "the stages of one start are one process"
        for stage in (*LEADS, "presenter", "publisher", "readmodel"):
            assert f'stage="{stage}"' in page, stage
        await proof.prove(found, tmp_path)
