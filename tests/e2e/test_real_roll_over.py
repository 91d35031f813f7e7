"""The log is rolled over while jobs come and go, on real processes: by hand, by itself, and killed in the middle of it.

Every service is an OS process on a real nats-server and a real API server. A witness counts what really runs, an
outsider reads of every admission once, and the generations together are judged as the one log they are.
"""

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path

import pytest

from kit import underload
from kit.cluster import Cluster
from kit.fleet import CELL, SERVICES, Fleet
from kit.story import quota_tree
from kit.traffic import tree
from kit.waiting import until
from muster.bus.connection import connect
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.events import subjects
from muster.events.decisions import WorkloadQueued
from muster.events.system import Genesis

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

AT_ONCE = 4
SEED = int(os.environ.get("MUSTER_TEST_SEED") or random.SystemRandom().randrange(1000))


class Scene(underload.Scene):
    """With an eye on the generations of the log."""

    def __init__(self, cluster: Cluster, fleet: Fleet) -> None:
        super().__init__(cluster, fleet, AT_ONCE)

    async def generation(self) -> int:
        connection = await connect(self.fleet.url, name="onlooker")
        try:
            log, sealed = await JetStreamGenerations(JetStream(connection), CELL).current()
            return 0 if sealed else log.identity.generation
        finally:
            await connection.close()

    async def until_generation(self, number: int) -> None:
        async def in_force() -> bool:
            return await self.generation() == number

        await until(in_force, 60.0, 0.2, what=f"generation {number} to be in force")

    async def end(self, generations: int = 0) -> None:
        """``generations``: how many there must be; 0 for those there are, where the keeper may make one at any time."""
        await self.over()
        born = [event.generation for event in await self.fleet.happened(Genesis)]
        assert born == list(range(1, (generations or len(born)) + 1))
        queued = [event.ref.uid for event in await self.fleet.happened(WorkloadQueued)]
        assert len(queued) == len(set(queued)), "nobody was queued again"
        admitted = await self.admitted()
        assert len(admitted) == len(set(admitted)), "nobody was admitted again"
        await self.proven()


async def test_rolled_over_by_hand_under_load(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.kube.create(quota_tree(tree(AT_ONCE)))
    async with Fleet(tmp_path, cluster.plane.kubeconfig) as fleet:
        scene = Scene(cluster, fleet)
        await scene.flowing()
        for generation in (2, 3):
            told = (await fleet.muster("log", "roll", "--url", fleet.url)).ok()
            assert f"generation {generation} " in told.out
            assert "0 differ" in told.out
            await scene.flowing()
        await scene.end(3)
        assert {code for process in fleet.running.values() for code in process.ends} == set(), "nobody had to restart"
        shown = (await fleet.muster("log", "verify", "--url", fleet.url)).ok()
        assert "generation 3" in shown.out


async def test_rolled_over_by_itself_and_archived(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.kube.create(quota_tree(tree(AT_ONCE)))
    archive = tmp_path / "archive"
    small = {"MUSTER_LOG_MAX_BYTES": "400000"}
    unlimited = {"MUSTER_LOG_STAGE_PERCENT": "0"}  # So small a log is filled by one stage.
    async with Fleet(tmp_path, cluster.plane.kubeconfig, init=small, keeper=archive, env=unlimited) as fleet:
        scene = Scene(cluster, fleet)
        await scene.until_generation(2)
        await scene.flowing()
        await scene.end()
        assert len(await fleet.happened(Genesis)) >= 2

        async def archived() -> bool:
            return bool(fleet.running["keeper"].noted("log_archived"))

        await until(archived, 60.0, what="the keeper to have archived")
        told = (await fleet.muster("log", "verify", "--log", str(archive))).ok()
        assert "0 problems" in told.out or "whole" in told.out


async def test_killed_in_the_middle_of_rolling_over(cluster: Cluster, tmp_path: Path) -> None:
    """`muster log roll` dies at moments of its own; the keeper completes what it had begun, or the old one goes on."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    await cluster.kube.create(quota_tree(tree(AT_ONCE)))
    async with Fleet(tmp_path, cluster.plane.kubeconfig) as fleet:
        scene = Scene(cluster, fleet)
        await scene.flowing()
        ends: list[int] = []
        latest_s = 1.4
        while len(ends) < 4 or (-signal.SIGKILL not in ends and len(ends) < 12):
            process = await fleet.start_muster("log", "roll", "--url", fleet.url)
            await asyncio.sleep(rng.uniform(latest_s / 4, latest_s))
            with contextlib.suppress(ProcessLookupError):  # It may have been quicker.
                process.kill()
            ends.append(await process.wait())
            latest_s *= 0.8 if ends[-1] == 0 else 1.0  # How quick it is, is the machine's affair.

            async def in_force() -> bool:
                return await scene.generation() > 0

            await until(in_force, 60.0, 0.2, what="a generation to be in force that is not sealed")
            await scene.flowing(2)
        assert -signal.SIGKILL in ends, ends
        await scene.end()


async def test_sealed_and_everybody_killed(cluster: Cluster, tmp_path: Path) -> None:
    """The worst moment: the generation is sealed, nothing follows it, and every process dies."""
    await cluster.kube.create(quota_tree(tree(AT_ONCE)))
    async with Fleet(tmp_path, cluster.plane.kubeconfig) as fleet:
        scene = Scene(cluster, fleet)
        await scene.flowing()
        connection = await connect(fleet.url, name="roller")
        generations = JetStreamGenerations(JetStream(connection), CELL)
        log, _ = await generations.current()
        end = await generations.seal(log.identity)
        await connection.close()
        for name in SERVICES:
            fleet.kill(name)
        await scene.until_generation(2)
        await scene.flowing()
        await scene.end(2)
        (_, second) = await fleet.happened(Genesis)
        assert second.parent == log.identity.log_id
        stored = await fleet.commits()
        assert [each.seq for each in stored if isinstance(each.commit.events[0], Genesis)] == [1, end + 1]
        assert subjects.log_stream(CELL, 2) == f"MUSTER_LOG_{CELL}_2"
