"""The example subscribers beside a whole fleet: every admission once, over a new broker, a roll-over, a rebuilt log."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.cluster import Cluster
from kit.compose import REPOSITORY
from kit.controlplane.build import build_natscli, cache_folder
from kit.controlplane.toolchain import find_go, go_environment
from kit.fleet import CELL, NATS, SERVICES, Fleet
from kit.story import quota_tree
from kit.traffic import Traffic, tree
from kit.waiting import until
from muster.events.decisions import GangAdmitted
from muster.ports import LogIdentity

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = REPOSITORY / "examples" / "subscribe"


def program(folder: Path, language: str) -> list[str]:
    """How an example is run; the Go one is built."""
    if language == "python":
        return [sys.executable, str(EXAMPLES / "python" / "subscribe.py")]
    if language == "nats":
        return ["env", f"PATH={build_natscli().parent}:{os.environ['PATH']}", str(EXAMPLES / "nats" / "subscribe.sh")]
    go, built = find_go(cache_folder(), print), folder / "subscribe"
    command = [str(go), "build", "-o", str(built), "."]
    subprocess.run(command, cwd=EXAMPLES / "go", env=go_environment(go), check=True, capture_output=True)
    return [str(built)]


class Subscriber:
    def __init__(self, folder: Path, language: str, argv: list[str], url: str) -> None:
        self.done = folder / f"{language}.jsonl"
        self._argv = argv
        self._env = {**os.environ, "NATS_URL": url, "READER": language, "DONE": str(self.done)}
        self._log = folder / f"{language}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._argv, env=self._env, stdout=log, stderr=log)

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def ids(self) -> list[str]:
        text = self.done.read_text() if self.done.exists() else ""
        return [json.loads(line)["id"] for line in text.splitlines(keepends=True) if line.endswith("\n")]


async def admissions(fleet: Fleet, identity: LogIdentity) -> list[str]:
    """The ce-id of every admission in the log."""
    return [
        f"{CELL}-{identity.generation_of(stored.seq)}-{stored.seq}-{index}"
        for stored in await fleet.commits()
        for index, event in enumerate(stored.commit.events)
        if isinstance(event, GangAdmitted)
    ]


async def test_every_admission_once_whatever_happens_to_the_log(cluster: Cluster, tmp_path: Path) -> None:
    programs = {language: program(tmp_path, language) for language in ("python", "go", "nats")}
    await cluster.kube.create(quota_tree(tree(4)))
    async with Fleet(tmp_path, cluster.plane.kubeconfig) as fleet:
        subscribers = [Subscriber(tmp_path, *each, fleet.url) for each in programs.items()]
        try:
            for subscriber in subscribers:
                await subscriber.start()
            traffic = Traffic(cluster)
            cluster.keep(traffic.run())

            async def more(count: int = 4) -> None:
                before = len(await fleet.happened(GangAdmitted))

                async def admitted() -> bool:
                    return len(await fleet.happened(GangAdmitted)) >= before + count

                await cluster.until(admitted, 90.0, "further admissions", every_s=0.2)

            async def told(expected: list[str]) -> None:
                for subscriber in subscribers:
                    await until(
                        lambda subscriber=subscriber: len(subscriber.ids()) >= len(expected),
                        90.0,
                        what="all to be told",
                    )
                    assert sorted(subscriber.ids()) == sorted(expected), "each once"

            await more()
            fleet.kill(NATS)
            await fleet.healthy()
            await more()
            (await fleet.muster("log", "roll", "--url", fleet.url)).ok()
            await more()
            for subscriber in subscribers:
                await subscriber.kill()
            fleet.kill("publisher")
            await more()
            for subscriber in subscribers:
                await subscriber.start()
            await traffic.over()
            expected = await admissions(fleet, await fleet.identity())
            assert {each.split("-")[1] for each in expected} == {"1", "2"}
            await told(expected)
            ends = {name: len(fleet.running[name].ends) for name in SERVICES if name != "keeper"}
            await fleet.delete_log(2)
            await until(
                lambda: all(len(fleet.running[name].ends) > count for name, count in ends.items()),
                60.0,
                what="the loss",
            )
            await fleet.init_log()
            await fleet.healthy()
            again = Traffic(cluster, name="again")
            cluster.keep(again.run())
            await more(6)
            await again.over()
            identity = await fleet.identity()
            assert (identity.generation, identity.first) == (3, 1), "it began from nothing"
            await told([*expected, *await admissions(fleet, identity)])
        finally:
            for subscriber in subscribers:
                await subscriber.kill()
