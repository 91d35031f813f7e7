"""Every service of docker-compose.yml as a process: its very command, its environment, its health check.

In place of the file's own stand only ports, addresses, and the path of the kubeconfig. The cluster is a simulated one
behind a real HTTP server; a job goes all the way through.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from kit.compose import KEYS, STOP_S, Running, document, services
from kit.production import FILES, Keys, ProductionNats
from kit.simulated import cluster, create
from kit.story import quota_tree, rayjob
from kit.waiting import until
from muster.bus.connection import connect
from muster.bus.errors import ConnectError
from muster.bus.server import free_port
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.runtime.natsaccounts import API, inbox

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SERVICES = [name for name in services() if name not in ("nats", "log-init", KEYS)]


@contextlib.asynccontextmanager
async def started(
    folder: Path, env_of: Mapping[str, Mapping[str, str]], kubeconfig: Path
) -> AsyncIterator[list[Running]]:
    """The log is created, then every service runs. What still runs in the end is stopped."""
    creation = Running("log-init", folder, 0, env_of["log-init"])
    await creation.start()
    assert await creation.finished() == 0, creation.tail()
    running: list[Running] = []
    try:
        for name in SERVICES:
            port = free_port()
            env = {"MUSTER_HEALTH_HOST": "127.0.0.1", "MUSTER_HEALTH_PORT": str(port), **env_of[name]}
            if "MUSTER_LOG_ARCHIVE" in services()[name].env:
                env["MUSTER_LOG_ARCHIVE"] = str(folder / "archive")
            if "MUSTER_KUBECONFIG" in services()[name].env:
                env["MUSTER_KUBECONFIG"] = str(kubeconfig)
            running.append(Running(name, folder, port, env))
        await asyncio.gather(*(service.start() for service in running))
        yield running
    finally:
        await asyncio.gather(*(service.stop() for service in running))


async def a_job_runs(simulated: SimCluster) -> None:
    """A job is queued, admitted, resumed and shown: every service has done its part."""
    await create(simulated, api.QUOTA_TREES, quota_tree())
    name = (await create(simulated, api.RAYJOBS, rayjob("one", runtime="1h")))["metadata"]["name"]

    async def runs() -> bool:
        answer = await simulated.transport().request("GET", api.RAYJOBS.path("video", name))
        return json.loads(answer.body).get("status", {}).get("jobDeploymentStatus") == "Running"

    async def shown() -> bool:
        answer = await simulated.transport().request("GET", api.QUEUE_UNITS.path("video"))
        units = json.loads(answer.body)["items"]
        return [unit["status"]["phase"] for unit in units] == ["Running"]

    await until(runs, timeout_s=60, what="the job to run")
    await until(shown, timeout_s=60, what="it to be shown as running")


async def end_in_order(running: list[Running]) -> None:
    """Each ends on SIGTERM by itself, soon, and with nothing to complain of."""
    for service in running:
        code, took_s = await service.stop()
        assert code == 0, f"{service.name} ends with {code}:\n{service.tail()}"
        assert took_s < STOP_S, f"{service.name} took {took_s:.1f} s to end:\n{service.tail()}"


async def test_what_the_file_starts_becomes_healthy_works_and_ends(tmp_path: Path) -> None:
    port, monitor = free_port(), free_port()
    store = tmp_path / "nats.conf"
    text = (FILES / "compose.conf").read_text().replace('"/data/', f'"{tmp_path}/').replace('"keys/', '"keys/server/')
    store.write_text(text)
    for _ in range(2):  # Run again it changes nothing.
        keys = Running(KEYS, tmp_path, 0, {})
        keys.argv[keys.argv.index("/keys")] = str(tmp_path / "keys")
        await keys.start()
        assert await keys.finished() == 0, keys.tail()
    assert re.search(r"Keys for [1-9]\d* users", keys.tail())
    assert "stay as they are" in keys.tail()
    nats = Running("nats", tmp_path, monitor, {}, ["-a", "127.0.0.1", "-p", str(port), "-m", str(monitor)])
    nats.argv[nats.argv.index("--config") + 1] = str(store)
    await nats.start()
    try:
        await nats.until_healthy()
        env = {name: keyed(tmp_path / "keys", name, port) for name in [*SERVICES, "log-init"]}
        anonymous = await connected(f"nats://127.0.0.1:{port}")
        assert anonymous is False, "a user without a key gets in"
        async with cluster(tmp_path) as (simulated, kubeconfig), started(tmp_path, env, kubeconfig) as running:
            await asyncio.gather(*(service.until_healthy() for service in running))
            await a_job_runs(simulated)
            await end_in_order(running)
    finally:
        code, _ = await nats.stop()
    assert code == 0, nats.tail()


def keyed(folder: Path, service: str, port: int) -> dict[str, str]:
    """Where its volume has the key of a service."""
    volume = document()["services"][service]["volumes"][-1]
    path = folder / volume["volume"]["subpath"] / "seed"
    assert volume["target"] == str(Path(services()[service].env["MUSTER_NATS_NKEY_FILE"]).parent)
    return {"MUSTER_NATS_URL": f"nats://127.0.0.1:{port}", "MUSTER_NATS_NKEY_FILE": str(path)}


async def connected(url: str) -> bool:
    try:
        connection = await connect(url, name="nobody", timeout_s=5.0)
    except ConnectError:
        return False
    await connection.close()
    return True


async def test_the_rights_of_production_are_enough(tmp_path: Path) -> None:
    """The same with deploy/nats/server.conf: every service signs in with its own key and can do its work."""
    (tmp_path / "keys").mkdir()
    keys = Keys(tmp_path / "keys", (FILES / "accounts.conf").read_text())
    async with ProductionNats(keys) as server:
        env = {name: _signed_in(server, name.replace("-", "_")) for name in SERVICES}
        env["log-init"] = _signed_in(server, "admin")
        async with cluster(tmp_path) as (simulated, kubeconfig), started(tmp_path, env, kubeconfig) as running:
            await asyncio.gather(*(service.until_healthy() for service in running))
            await a_job_runs(simulated)
            await end_in_order(running)
            for service in running:
                assert "forbidden" not in service.log.read_text().lower(), service.tail()


def _signed_in(server: ProductionNats, user: str) -> dict[str, str]:
    return {
        "MUSTER_NATS_URL": server.url,
        "MUSTER_NATS_CA_FILE": str(server.keys.ca_file),
        "MUSTER_NATS_NKEY_FILE": str(server.keys.seed_file(user)),
        "MUSTER_NATS_INBOX_PREFIX": inbox(user),
        "MUSTER_NATS_API_PREFIX": API,
    }
