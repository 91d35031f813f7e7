"""A rule set is put in force while versions are mixed: every service a process, on a real nats-server.

The next version is this one with one more rule set (kit.rulesets): its queue sorter proposes one job at a time.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kit import simulated
from kit.cli import Cli, Result
from kit.fleet import Fleet, Supervised
from kit.proof import HASH_SEEDS, TESTS
from kit.rulesets import NEXT
from kit.story import quota_tree, rayjob
from kit.traffic import TEAMS, tree
from kit.waiting import until
from muster.core.cell.deciders import DECIDERS
from muster.events.decisions import CandidatesProposed, GangAdmitted
from muster.events.envelope import Stored
from muster.events.system import RulesetActivated
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.runtime.endings import MISCONFIGURED, UNAVAILABLE
from muster.runtime.runners.activating import SURE_S
from muster_cli.exits import VIOLATED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

STAGES = [name.replace("_", "-") for name in DECIDERS]
SORTER, ACCOUNTANT = "queue-sorter", "quota-accountant"
WANTED = {"MUSTER_RULESET": str(NEXT)}
LONG_S = 90.0


class Versions:
    """A fleet of this version, of which processes are replaced by the next one's, and back."""

    def __init__(self, cluster: SimCluster, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        self._cluster = cluster
        self._clis = {
            "this": Cli(folder / "this"),
            "next": Cli(folder / "next", ("-m", "kit.nextversion", "muster")),
        }
        self._rounds = 0

    async def start_next(self, service: str, replica: int = 1) -> Supervised:
        """A process of the next version; its accountant wants the rule set that only this version knows."""
        env = {"PYTHONPATH": str(TESTS), **(WANTED if service == ACCOUNTANT else {})}
        return await self.fleet.add(service, replica, program=("-m", "kit.nextversion", service), env=env)

    async def upgrade(self, *services: str) -> None:
        for service in services:
            await self.fleet.remove(service)
            await self.start_next(service)
        await self.fleet.healthy()

    async def three_jobs(self) -> None:
        """At once, in three queues, with room for all of them; returns once they are admitted."""
        self._rounds += 1
        before = len(await self.fleet.happened(GangAdmitted))
        for team in TEAMS:
            job = rayjob(f"job-{self._rounds}", team, cpu="1", memory="1G", replicas=1, runtime="1s", ttl_s=1)
            await simulated.create(self._cluster, api.RAYJOBS, job)

        async def admitted() -> bool:
            return len(await self.fleet.happened(GangAdmitted)) == before + len(TEAMS)

        await until(admitted, LONG_S, 0.2, what="three jobs to be admitted")

    async def activated(self) -> list[int]:
        """The sequences at which a rule set was put in force."""
        commits = await self.fleet.commits()
        return [
            stored.seq for stored in commits for event in stored.commit.events if isinstance(event, RulesetActivated)
        ]

    def waits_for(self) -> list[str]:
        """What the accountant said last that it waits for."""
        noted = self.fleet.running[ACCOUNTANT].noted("ruleset_waits")
        return list(noted[-1]["why"]) if noted else []

    async def for_a_while(self) -> None:
        """Jobs come, for longer in log time than all would have to support a rule set."""
        end = await self._log_time() + int(2 * SURE_S * 1000)
        while await self._log_time() < end:
            await self.three_jobs()

    async def _log_time(self) -> int:
        return max(stored.commit.at for stored in await self.fleet.commits())

    async def replayed(self, version: str, path: Path) -> list[Result]:
        """What that version's `muster replay` says of a log, under two hash seeds."""
        env = {"PYTHONPATH": str(TESTS)} if version == "next" else {}
        command = ("replay", "--log", str(path), "--verify")
        cli = self._clis[version]
        return list(await asyncio.gather(*(cli.run(*command, PYTHONHASHSEED=seed, **env) for seed in HASH_SEEDS)))

    async def changed(self, path: Path) -> Result:
        """What the next version's `muster diff` says of a log decided by its newest rule set."""
        command = ("diff", str(path), "--ruleset", str(NEXT))
        return await self._clis["next"].run(*command, PYTHONPATH=str(TESTS))

    async def exported(self, folder: Path) -> Path:
        path = folder / "log.jsonl.gz"
        (await self._clis["this"].run("export", "--url", self.fleet.url, "--out", str(path))).ok()
        return path


@contextlib.asynccontextmanager
async def versions(folder: Path) -> AsyncIterator[Versions]:
    async with simulated.cluster(folder) as (cluster, kubeconfig), Fleet(folder, kubeconfig) as fleet:
        await simulated.create(cluster, api.QUOTA_TREES, quota_tree(tree(6)))
        found = Versions(cluster, fleet, folder)
        await found.three_jobs()
        yield found


def whole(results: list[Result]) -> None:
    """Every decision was made again, byte for byte, whatever the hash seed."""
    last = {result.ok().lines[-1] for result in results}
    assert len(last) == 1, last
    assert re.fullmatch(r"[1-9]\d* commits, 0 divergent", last.pop()), results


def most_proposed(commits: list[Stored]) -> int:
    sizes = [len(e.candidates) for stored in commits for e in stored.commit.events if isinstance(e, CandidatesProposed)]
    return max(sizes, default=0)


async def test_mixed_and_back_and_in_force_when_the_last_old_replica_has_left(tmp_path: Path) -> None:
    async with versions(tmp_path) as found:
        await back_to_the_old_version_before_it_is_in_force(found, tmp_path)
        await in_force_when_the_last_old_replica_has_left_and_not_before(found, tmp_path)


async def back_to_the_old_version_before_it_is_in_force(found: Versions, folder: Path) -> None:
    fleet, both = found.fleet, (SORTER, ACCOUNTANT)
    await found.upgrade(*both)
    await until(found.waits_for, LONG_S, what="the accountant to wait for the others")
    await found.three_jobs()
    for service in both:
        await fleet.remove(service)
        await fleet.add(service)
    await fleet.healthy()
    await found.three_jobs()
    await found.three_jobs()
    assert await found.activated() == []
    commits = await fleet.commits()
    assert {stored.commit.ruleset for stored in commits} == {1}
    assert not [name for name, process in fleet.running.items() if set(process.ends) - {0}], "nobody stumbled"
    path = await found.exported(folder)
    for version in ("this", "next"):
        whole(await found.replayed(version, path))
    # With that one rule changed, the first decision that differs on the canonical schedule is named.
    differs = await found.changed(path)
    assert differs.code == VIOLATED, differs
    assert re.match(r"[1-9]\d* decisions are the same; then they differ:", differs.out), differs
    assert differs.out.count("stage queue_sorter, after commit") == 2
    # The old one cannot be told to put in force what it does not know.
    wrong = await fleet.add(ACCOUNTANT, 2, env=WANTED)
    await until(lambda: MISCONFIGURED in wrong.ends, LONG_S, what="the setting to be refused")
    assert "ruleset is 2; this build knows 1 to 1" in wrong.log.read_text()
    assert "Traceback" not in json.dumps(wrong.tail())
    await fleet.remove(wrong.name)


async def in_force_when_the_last_old_replica_has_left_and_not_before(found: Versions, folder: Path) -> None:
    fleet = found.fleet
    # Of the sorter both versions run, side by side; of the others the next one alone.
    await found.start_next(SORTER, 2)
    await found.upgrade(*(service for service in STAGES if service != SORTER))
    await until(
        lambda: len(found.waits_for()) == 1 and "runs queue_sorter/0 up to rule set 1" in found.waits_for()[0],
        LONG_S,
        what="the accountant to wait for the old sorter alone",
    )
    await found.for_a_while()
    assert await found.activated() == [], "a replica that does not know it lives"
    await fleet.remove(SORTER)
    await until(found.activated, LONG_S, 0.5, what="the rule set to be in force")
    (at,) = await found.activated()
    await found.three_jobs()
    await found.three_jobs()

    commits = await fleet.commits()
    assert {stored.commit.ruleset for stored in commits if stored.commit.in_seq < at} == {1}
    later = [stored for stored in commits if stored.commit.in_seq >= at]
    assert {stored.commit.ruleset for stored in later} == {NEXT}, "all switched at that very sequence"
    assert most_proposed(later) == 1, "and decide by it"
    assert not [name for name, process in fleet.running.items() if set(process.ends) - {0}], "nobody stumbled"

    path = await found.exported(folder)
    whole(await found.replayed("next", path))
    for refused in await found.replayed("this", path):
        assert refused.code == 1, refused
        assert "rule set 2 is in force and this build knows rule sets up to 1; upgrade it" in refused.err
        assert "Traceback" not in refused.err

    old = await fleet.add(SORTER)
    await until(lambda: UNAVAILABLE in old.ends, LONG_S, what="the old version to stop")
    said = [line["message"] for line in old.noted("log_unreadable")]
    assert "rule set 2 is in force and this build knows rule sets up to 1; upgrade it" in said[0]
    await fleet.remove(SORTER)
    assert await fleet.leader("queue_sorter") == f"{SORTER}-2", "it never led"
    await found.three_jobs()
