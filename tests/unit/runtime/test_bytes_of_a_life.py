"""How many bytes of the log the life of a RayJob takes: counted in a whole cell under virtual time, without a clock.

Five observations, as KubeRay makes them: waiting, resumed, initializing, running, complete. Pods and the RayCluster
aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kit import facts
from kit.proof import proven
from kit.shell import Cell, play
from kit.story import Obj, quota_tree, rayjob
from muster.events.decisions import QuotaReleased
from muster.events.envelope import Stored, encode_commit
from muster.events.facts import WorkloadAbridged, WorkloadObserved

JOBS = 30


def alike(number: int) -> Obj:
    """All at once, and each as the one before: most commits are about several jobs."""
    return rayjob(f"job-{number:02}", runtime="5s", cpu="1", memory="1G", replicas=0)


def mixed(number: int) -> Obj:
    """Four sizes, seven run times, room for a third of them: they begin and end one by one, in commits of their own."""
    runtime, cpu = f"{5 + 3 * (number % 7)}s", str(1 + number % 4)
    return rayjob(f"job-{number:02}", runtime=runtime, cpu=cpu, memory="1G", replicas=0)


def test_lives_that_are_alike_take_few_bytes() -> None:
    """6,900 bytes a job were each observation said in full, which takes 1,000."""
    assert bytes_of_a_life(lives(alike)) <= 3_300


def test_lives_that_mix_take_few_bytes() -> None:
    """8,400 bytes a job were each observation said in full."""
    assert bytes_of_a_life(lives(mixed)) <= 3_900


def bytes_of_a_life(log: list[Stored]) -> float:
    of_jobs = [each for each in log if each.commit.stage != "watcher" or each.commit.shard == "rayjobs"]
    said = Counter(type(event) for stored in of_jobs for event in stored.commit.events)
    assert said[WorkloadObserved] <= 4 and said[WorkloadAbridged] >= 4 * JOBS
    proven(log)
    return sum(len(encode_commit(each.commit)) for each in of_jobs) / JOBS


def released(log: list[Stored]) -> int:
    return sum(isinstance(event, QuotaReleased) for stored in log for event in stored.commit.events)


def lives(made: Callable[[int], Obj]) -> list[Stored]:
    async def scene(cell: Cell) -> None:
        size = {"cpu": 32, "memory": "1T"}
        cell.create(quota_tree(facts.node("root", size, size, children=(facts.node("video", size, size, ("video",)),))))
        for number in range(JOBS):
            cell.create(made(number))
        await cell.until(lambda: released(cell.commits()) == JOBS, limit_s=900)

    cell = Cell()
    play(cell, scene)
    return cell.commits()
