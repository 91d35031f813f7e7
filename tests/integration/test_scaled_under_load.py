"""Each service is scaled from one pod to three and back while five jobs a second arrive, its leader killed in between.

No job is lost, and none is admitted, resumed or reported twice.
"""

from collections import Counter
from pathlib import Path

import pytest

from kit import proof
from kit.accounts import shipped
from kit.installation import figure
from kit.proof import commits_of
from kit.rolling import CELL, Arrivals, Installed, deployments, resumed
from kit.simulated import cluster
from kit.waiting import until
from muster.core.reading.watched import WATCHED
from muster.events.decisions import GangAdmitted
from muster.events.effects import EffectApplied
from muster.events.envelope import Stored
from muster.events.facts import WorkloadObserved
from muster.events.system import LeaderStarted

FORM = "separate"
PATIENCE_S = 120.0
"""Two cores run all that is scaled; how long a job may wait for a restart is the subject of test_rolling_restart."""

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(900)]


async def test_scaled_up_and_down_under_load_nothing_is_lost_and_nothing_doubled(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # The keeper has a volume that one process has at a time.
    names = [each.name for each in deployments(FORM) if each.name != "muster-keeper"]
    async with (
        shipped(tmp_path) as (url, accounts),
        cluster(tmp_path) as (simulated, kubeconfig),
        Installed(tmp_path, url, accounts, kubeconfig, single=True) as installed,
        resumed(url) as times,
    ):
        arrivals, killed = Arrivals(simulated), list[str]()
        await installed.start(FORM)

        async def all_resumed(when: str) -> None:
            names = {*arrivals.made}
            await until(lambda: names <= times.keys(), timeout_s=PATIENCE_S, every_s=0.5, what=f"all jobs, {when}")

        async with arrivals.flowing():
            await until(lambda: len(times) >= 5, timeout_s=PATIENCE_S, every_s=0.5, what="the first jobs")
            for name in names:
                await installed.scale(FORM, name, 3)
                killed += await installed.kill(name)
                await all_resumed(f"three pods of {name} and its leader killed")
                await installed.scale(FORM, name, 1)
                await all_resumed(f"one pod of {name}")
        await all_resumed("at the end")
        log = await commits_of(url, CELL)
    proof.proven(log)
    admitted, applied, reported = twice(log)
    assert {*arrivals.made} <= {*admitted}
    assert [key for key, times in (admitted + applied + reported).items() if times > 1] == []
    assert len(killed) == len(names)
    leaders = {name: processes for name, processes in led(log).items() if name.startswith("watcher/")}
    assert {name.partition("/")[2] for name in leaders} == {*WATCHED}
    assert max(len(processes) for processes in leaders.values()) > 1, "its shards have had other leaders"
    count = len(arrivals.made)
    figure(request, "scaled 1 to 3 to 1 under load", f"{len(names)} services, {count} jobs, none lost, none doubled")


def twice(log: list[Stored]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """How often each job was admitted, each write was reported as done, and each version of a job was reported."""
    admitted, applied, reported = Counter[str](), Counter[str](), Counter[str]()
    for stored in log:
        for event in stored.commit.events if not stored.void else ():
            match event:
                case GangAdmitted():
                    admitted[event.ref.name] += 1
                case EffectApplied():
                    applied[f"{event.ref.key} {event.ref.kind} {event.cause}"] += 1
                case WorkloadObserved():
                    reported[f"{event.workload.ref.key} at {event.workload.rv}"] += 1
                case _:
                    pass
    return admitted, applied, reported


def led(log: list[Stored]) -> dict[str, set[str]]:
    """{stage/shard: the processes that have led it}"""
    processes: dict[str, set[str]] = {}
    for stored in log:
        for event in stored.commit.events:
            if isinstance(event, LeaderStarted):
                processes.setdefault(f"{stored.commit.stage}/{stored.commit.shard}", set()).add(event.process)
    return processes
