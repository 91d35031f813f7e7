"""Fixtures of the tests on a real Ray. They run inside the network of `make test-ray` only."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from kit.api import Api
from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.controlplane.plane import APISERVER
from kit.controlplane.pytest_plugin import control_plane_binaries
from kit.crds import install_crds
from kit.realray.cluster import RealRayCluster, manifest, real_cluster
from kit.realray.head import RayHead
from kit.realray.network import interfaces
from kit.realray.venv import RayMissingError, installed
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.model.api import NAMESPACES

__all__ = ["control_plane_binaries"]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Say at once what is missing, instead of in every test."""
    if session.config.option.collectonly or not session.items:
        return
    try:
        installed()
    except RayMissingError as err:
        pytest.exit(str(err), returncode=1)
    if interfaces() != ["lo"]:
        pytest.exit("a real Ray runs where there is loopback only: run these tests by `make test-ray`", returncode=1)


@pytest.fixture(scope="session")
def ray_folder() -> Iterator[Path]:
    """A folder with a short path: the sockets of Ray are in there."""
    folder = Path(tempfile.mkdtemp(prefix="mray-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def head(ray_folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[RayHead]:
    """A head for the tests of one file; `HEAD` in the file says how it is started."""
    options = getattr(request.module, "HEAD", {})
    running = RayHead(ray_folder / request.module.__name__.rpartition("_")[2], **options)
    try:
        await running.start()
        yield running
    finally:
        await running.stop()


@pytest.fixture(scope="session")
def clients() -> trustme.CA:
    """Whose certificates the API server believes."""
    return trustme.CA()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ray_plane(
    control_plane_binaries: Binaries, clients: trustme.CA, ray_folder: Path
) -> AsyncIterator[ControlPlane]:
    """An API server that believes client certificates, and nothing beside it: no kubelet but ours, no scheduler."""
    authority = ray_folder / "clients.crt"
    clients.cert_pem.write_to_path(authority)
    arguments = {APISERVER: [f"--client-ca-file={authority}"]}
    async with ControlPlane(controller_manager=False, scheduler=False, kwok=False, arguments=arguments) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["v2", "v1"])
async def ray_cluster(
    ray_plane: ControlPlane, clients: trustme.CA, ray_folder: Path, request: pytest.FixtureRequest
) -> AsyncIterator[RealRayCluster]:
    """A RayCluster for the tests of one file, with its autoscaler."""
    transport = await connect(FromKubeconfig(str(ray_plane.kubeconfig)))
    try:
        await install_crds(transport)
        namespace = f"ray-{request.param}"
        api = Api(transport, namespace, real=True, server=None)
        assert (await api.call("POST", NAMESPACES.path(), {"metadata": {"name": namespace}})).status == 201
        v2 = request.param == "v2"
        async with real_cluster(api, ray_plane, clients, ray_folder / namespace, manifest("c"), v2=v2) as cluster:
            yield cluster
    finally:
        await transport.close()
