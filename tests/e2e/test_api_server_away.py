"""The API server is away, and forbids everything while it starts: the first admission follows within 15 s.

Every service is a process, and none is a cluster administrator whom a starting server lets in at once.
"""

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest

from kit.cluster import Cluster, document_job, furnish
from kit.controlplane import ControlPlane, User
from kit.controlplane.build import Binaries
from kit.fleet import Fleet
from kit.waiting import until
from muster.kube.backoff import AWAY_CAP_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SERVICE = User("muster-service")
AWAY_S = 3 * AWAY_CAP_S
"""Long enough for every pause between two tries to have grown to its longest."""
FIRST_S = 15.0


async def answers(plane: ControlPlane, asked: list[str]) -> float:
    """When it answers again, whatever that is; ``asked`` gets what it answers to a service until it lets that in."""
    began = 0.0
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {SERVICE.token}"}) as session:
        while True:
            try:
                async with session.get(f"{plane.url}/api/v1/namespaces", ssl=False) as answer:
                    began = began or time.monotonic()
                    asked.append(str(answer.status))
                    if answer.ok:
                        return began
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def test_the_first_admission_follows_the_first_answer(control_plane_binaries: Binaries, tmp_path: Path) -> None:
    async with ControlPlane(prepare=furnish, users=(SERVICE,)) as plane, Cluster(plane) as cluster:
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "muster-service"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "User", "name": SERVICE.name, "apiGroup": "rbac.authorization.k8s.io"}],
        }
        await cluster.kube.create(binding)
        await cluster.apply_tree()
        async with Fleet(tmp_path, plane.kubeconfig_for(SERVICE)) as fleet:
            await cluster.submit(document_job(name="before", runtime="1s"))
            await cluster.until(lambda: resumed(cluster, "before"), 60.0, "the first job to be resumed")
            await plane.stop_apiserver()
            await asyncio.sleep(AWAY_S)
            said: list[str] = []
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(plane.start_apiserver())
                first = await answers(plane, said)
                await cluster.submit(document_job("text", name="after", runtime="1s"))
                submitted = time.monotonic() - first
                await until(lambda: resumed(cluster, "after", "text"), 120.0, 0.1, what="the second job to be resumed")
                took = time.monotonic() - first
            ends = {name: process.ends for name, process in fleet.running.items() if process.ends}
        counted = {code: said.count(code) for code in dict.fromkeys(said)}
        print(
            f"resumed {took:.1f} s after the first answer, submitted {submitted:.1f} s after it; "
            f"a service was answered {counted}; ended {ends}"
        )
        assert took <= FIRST_S, f"resumed {took:.1f} s after the first answer; answers {counted}; ended {ends}"


async def resumed(cluster: Cluster, name: str, namespace: str = "video") -> bool:
    return not (await cluster.job(name, namespace))["spec"]["suspend"]
