"""Each service is scaled from one pod to three and back while five jobs a second arrive, its leader killed in between.

No job is lost, and none is admitted, resumed or reported twice. In every run the services that do more with more pods
(the watcher's shards, the gateway's replicas) and the writer; with MUSTER_TEST_EXAMPLES=deep each deployment.
"""

import os
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
EVERY = os.environ.get("MUSTER_TEST_EXAMPLES") == "deep"
SCALED = ("muster-watcher", "muster-gateway", "muster-actuator")

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(900)]


async def test_scaled_up_and_down_under_load_nothing_is_lost_and_nothing_doubled(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # The keeper has a volume that one process has at a time.
    names = [each.name for each in deployments(FORM) if each.name != "muster-keeper"] if EVERY else [*SCALED]
    async with (
        shipped(tmp_path) as (url, accounts),
        cluster(tmp_path) as (simulated, kubeconfig),
        Installed(tmp_path, url, accounts, kubeconfig, single=True) as installed,
    ):
        arrivals, killed = Arrivals(simulated), list[str]()
        await installed.start(FORM)

        async def all_resumed(most: int) -> bool:
            return {*[*arrivals.made][:most]} <= {*await resumed(url)}

        async with arrivals.flowing():
            await until(lambda: all_resumed(5), timeout_s=60.0, every_s=0.5, what="the first jobs to be let go")
            for name in names:
                await installed.scale(FORM, name, 3)
                killed += await installed.kill(name)
                count = len(arrivals.made)
                await until(lambda n=count: all_resumed(n), timeout_s=60.0, every_s=0.5, what=f"{name} to be led again")
                await installed.scale(FORM, name, 1)
                count = len(arrivals.made)
                await until(lambda n=count: all_resumed(n), timeout_s=60.0, every_s=0.5, what=f"{name} to be one again")
            count = len(arrivals.made)
        await until(lambda: all_resumed(count), timeout_s=60.0, every_s=0.5, what="all jobs to be let go")
        log = await commits_of(url, CELL)
    proof.proven(log)
    admitted, applied, reported = twice(log)
    assert {*arrivals.made} <= {*admitted}
    assert [key for key, times in (admitted + applied + reported).items() if times > 1] == []
    assert len(killed) == len(names)
    if "muster-watcher" in names:
        leaders = {name: processes for name, processes in led(log).items() if name.startswith("watcher/")}
        assert {name.partition("/")[2] for name in leaders} == {*WATCHED}
        assert max(len(processes) for processes in leaders.values()) > 1, "its shards have had other leaders"
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
