"""Fixtures of the tests on a real Ray. They run inside the network of `make test-ray` only."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from kit.realray.head import RayHead
from kit.realray.network import interfaces
from kit.realray.venv import RayMissingError, installed


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
