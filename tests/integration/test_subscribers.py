"""The example subscribers, as a reader of a production NATS: every admission, once, whatever is restarted."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kit.compose import REPOSITORY
from kit.controlplane.build import build_natscli, cache_folder
from kit.controlplane.toolchain import find_go, go_environment
from kit.nats import SMALL
from kit.production import FILES, Keys, ProductionNats
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.jetstream import JetStream
from muster.bus.public import PublicPublisher
from muster.events import subjects
from muster.events.public import (
    PublicEvent,
    PublicPosition,
    PublicWorkload,
    PublicWorkloadAdmitted,
    PublicWorkloadStarted,
    ce_type,
)
from muster.events.registry import encode
from muster.runtime.connecting import connect_bus
from muster.runtime.natsaccounts import API

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLES = REPOSITORY / "examples" / "subscribe"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """{language: how the example is run}; what has to be built is built once."""
    go = find_go(cache_folder(), print)
    program = tmp_path_factory.mktemp("go") / "subscribe"
    build = [str(go), "build", "-o", str(program), "."]
    done = subprocess.run(
        build, cwd=EXAMPLES / "go", env=go_environment(go), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {
        "python": [sys.executable, str(EXAMPLES / "python" / "subscribe.py")],
        "client": [sys.executable, str(EXAMPLES / "client" / "subscribe.py")],
        "go": [str(program)],
        "nats": ["env", f"PATH={build_natscli().parent}:{os.environ['PATH']}", str(EXAMPLES / "nats" / "subscribe.sh")],
    }


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[ProductionNats]:
    (folder / "keys").mkdir(parents=True)
    keys = Keys(folder / "keys", (FILES / "accounts.conf").read_text())
    async with ProductionNats(keys) as server:
        connection = await connect_bus(server.config("admin"), "admin", lambda *_: None)
        js = JetStream(connection)
        await open_stores(js, "main", create=True, limits=SMALL)
        await open_log(js, "main", create=True, limits=SMALL)
        await connection.close()
        yield server


def event(number: int) -> PublicEvent:
    """Every third is no admission."""
    common = {
        "cell": "main",
        "at": "2026-01-01T00:00:00Z",
        "position": PublicPosition(1, number, 0),
        "workload": PublicWorkload("RayJob", "video", f"job-{number}", f"uid-{number}"),
    }
    if number % 3:
        return PublicWorkloadAdmitted(**common, attempt=1, queue="root/video")
    return PublicWorkloadStarted(**common)


def admitted(last: int) -> set[str]:
    """The ce-ids of all admissions up to that event."""
    return {f"main-1-{number}-0" for number in range(1, last + 1) if number % 3}


async def publish(server: ProductionNats, first: int, last: int, *, repeated: int = 0) -> None:
    """Publish events; ``repeated``: so many of them once more, as after a crash long ago."""
    connection = await connect_bus(server.config("publisher"), "publisher", lambda *_: None)
    outlet = PublicPublisher(JetStream(connection), "main")
    await outlet.resume()
    for number in range(first, last + 1):
        found = event(number)
        headers = {"ce-id": f"main-1-{number}-0", "ce-type": ce_type(found)}
        subject = subjects.public_subject("main", str(type(found).__struct_config__.tag), "video", f"job-{number}")
        await outlet.publish(subject, headers, encode(found))
        if number < first + repeated:
            await (await connection.send(subject, encode(found), headers))
    await outlet.settle()
    await connection.close()


class Subscriber:
    def __init__(self, argv: list[str], server: ProductionNats, folder: Path) -> None:
        self._argv = argv
        self.done = folder / "admissions.jsonl"
        self._log = folder / "subscriber.log"
        self._env = {
            **os.environ,
            "NATS_URL": server.url,
            "READER": "reader",
            "API_PREFIX": API,
            "NKEY_FILE": str(server.keys.seed_file("reader")),
            "CA_FILE": str(server.keys.ca_file),
            "DONE": str(self.done),
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._argv, env=self._env, stdout=log, stderr=log)

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    def ids(self) -> list[str]:
        text = self.done.read_text() if self.done.exists() else ""
        # The last line may be half written.
        return [json.loads(line)["id"] for line in text.splitlines(keepends=True) if line.endswith("\n")]

    async def until_told(self, last: int) -> None:
        """What was on its way when a broker went comes last: 30 s after it was sent first."""

        def told() -> bool:
            assert self._process is not None
            assert self._process.returncode is None, self._log.read_text()
            return set(self.ids()) >= admitted(last)

        try:
            await until(told, timeout_s=90.0)
        except AssertionError as err:
            raise AssertionError(f"{err}\n{self.ids()[-3:]}\n{self._log.read_text()[-2000:]}") from err


async def test_every_admission_once(commands: dict[str, list[str]], tmp_path: Path) -> None:
    """In every language; each waits half a minute for what was on its way, so they do it side by side."""
    async with asyncio.TaskGroup() as side_by_side:
        for language, argv in commands.items():
            side_by_side.create_task(told_once(argv, tmp_path / language), name=language)


async def told_once(argv: list[str], folder: Path) -> None:
    async with served(folder) as server:
        subscriber = Subscriber(argv, server, folder)
        await publish(server, 1, 100, repeated=20)
        await subscriber.start()
        try:
            await subscriber.until_told(100)
            await subscriber.kill()
            await publish(server, 101, 200)
            await subscriber.start()
            await subscriber.until_told(200)
            await server.stop()
            await server.start()
            await publish(server, 201, 302, repeated=50)
            await subscriber.until_told(302)
        finally:
            await subscriber.kill()
        assert sorted(subscriber.ids()) == sorted(admitted(302))
