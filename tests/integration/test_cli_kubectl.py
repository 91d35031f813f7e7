"""A real kubectl against the simulated API server, with the kubeconfig that ``muster up`` writes.

What these tests need besides is tested over plain HTTP in tests/unit/fakecluster/test_sim_http.py, kubectl or not.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kit.documents import FOLDER
from kit.simulated import served
from muster.fakecluster.world import SimCluster
from muster.model.api import RAYJOBS

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None,
    reason="kubectl is not on PATH: the simulated API server was tested over plain HTTP only",
)


class Kubectl:
    """kubectl with a kubeconfig and a cache of its own."""

    def __init__(self, kubeconfig: Path, folder: Path, cluster: SimCluster) -> None:
        self.cluster = cluster
        self._args = ("--kubeconfig", str(kubeconfig), "--cache-dir", str(folder / "cache"))

    async def __call__(self, *args: str, code: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(
            "kubectl", *self._args, *args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        assert process.returncode == code, f"kubectl {' '.join(args)}\n{out.decode()}"
        return out.decode()


@pytest_asyncio.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    cluster = SimCluster({"node-1": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"}})
    async with served(cluster, tmp_path, speed=20) as kubeconfig:
        yield Kubectl(kubeconfig, tmp_path, cluster)


async def test_create_get_and_describe_the_documents_rayjob(kubectl: Kubectl) -> None:
    created = [await kubectl("create", "-f", str(FOLDER / "rayjob-video.yaml")) for _ in range(2)]
    assert all("created" in line for line in created)
    shown = (await kubectl("get", "rayjob", "-n", "video")).splitlines()
    assert shown[0].split("  ")[0] == "NAME"
    assert "DEPLOYMENT STATUS" in shown[0]
    assert len(shown) == 3
    name = shown[1].split()[0]
    described = await kubectl("describe", "rayjob", "-n", "video", name)
    assert "Kind:         RayJob" in described
    assert "Suspend:" in described
    wide = await kubectl("get", "rayjobs.ray.io", "-A", "-o", "wide", "--show-labels")
    assert "job-type=video" in wide


async def test_apply_and_patch(kubectl: Kubectl) -> None:
    manifest = str(FOLDER / "configmap-video.yaml")
    assert "created" in await kubectl("apply", "-f", manifest)
    assert "unchanged" in await kubectl("apply", "-f", manifest)
    created = await kubectl("create", "-f", str(FOLDER / "rayjob-video.yaml"), "-o", "name")
    name = created.strip().partition("/")[2]
    patched = await kubectl(
        "patch", "rayjob", "-n", "video", name, "--type", "merge", "-p", '{"spec":{"suspend":false}}'
    )
    assert "patched" in patched
    assert kubectl.cluster.server.objects.get(RAYJOBS, "video", name)["spec"]["suspend"] is False
    await kubectl("wait", "--for", "jsonpath={.status.jobDeploymentStatus}=Running", "rayjob", "-n", "video", name)
    pods = (await kubectl("get", "pods", "-n", "video")).splitlines()
    assert len([line for line in pods if " Running " in line]) >= 3
    found = json.loads(await kubectl("get", "rayjob", "-n", "video", name, "-o", "json"))
    assert found["status"]["jobDeploymentStatus"] == "Running"
    assert "deleted" in await kubectl("delete", "rayjob", "-n", "video", name)


async def test_what_the_server_cannot_do_it_says(kubectl: Kubectl) -> None:
    said = await kubectl("create", "namespace", "team-a", code=1)
    assert "kubectl apply -f" in said
    manifest = str(FOLDER / "configmap-video.yaml")
    said = await kubectl("apply", "--server-side", "-f", manifest, code=1)
    assert "Server-side apply not available" in said
    said = await kubectl("create", "--dry-run=server", "-f", manifest, code=1)
    assert "no dry runs" in said
    assert "NotFound" in await kubectl("get", "rayjob", "-n", "video", "nobody", code=1)
