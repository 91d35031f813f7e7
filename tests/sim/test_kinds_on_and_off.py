"""Which kinds are on is a setting that changes: what is turned off leaves its queue, what is turned on is found.

The real runners in virtual time; the watcher is restarted with other settings, as a new version of it would be.
"""

from __future__ import annotations

from kit import jobs
from kit.audits import audit
from kit.shell import Cell, play, small_job, small_tree
from muster.core.reading.watched import WATCHED, shards_of
from muster.core.workloads.registry import KINDS
from muster.events.decisions import GangAdmitted, QuotaReleased, WorkloadDequeued, WorkloadQueued
from muster.events.facts import KindsConfigured, Synced, SyncStarted
from muster.model import api
from muster.runtime.replaying.replay import replay


def told(cell: Cell, kind: type) -> list[str]:
    """Names of the jobs (or kinds) that events of a type are about, in order."""
    events = [event for stored in cell.commits() for event in stored.commit.events if isinstance(event, kind)]
    return [getattr(event, "kind", "") or event.ref.name for event in events]


def names(cell: Cell) -> set[str]:
    return {type(event).__name__ for stored in cell.commits() for event in stored.commit.events}


def proven(cell: Cell) -> None:
    assert audit(cell.commits()).violations == []
    report = replay(cell.commits(), silences=False)
    assert report.decisions > 0
    assert not report.divergences
    assert not report.violations


def restart_watcher(cell: Cell, *kinds: str) -> None:
    cell.kinds_before, cell.kinds = cell.kinds, kinds
    cell.processes["watcher"].kill()


def suspended(cell: Cell, name: str) -> bool:
    return bool(cell.request("GET", api.JOBS, "video", name)["spec"]["suspend"])


def test_a_kind_that_is_turned_off_leaves_its_queue_and_holds_nobody_up() -> None:
    cell = Cell()
    cell.kinds = ("RayJob", "Job")

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        cell.create(jobs.job("one", cpu="5"))
        await cell.until(lambda: not suspended(cell, "one"), what="the first Job is resumed")
        cell.create(jobs.job("two", cpu="5"))
        await cell.until(lambda: "two" in told(cell, WorkloadQueued), what="the second Job waits")
        restart_watcher(cell, "RayJob")
        await cell.until(lambda: told(cell, WorkloadDequeued) == ["two"], what="it leaves its queue")
        assert not told(cell, QuotaReleased), "what runs of it still holds its quota"
        background = {"propagationPolicy": "Background"}
        cell.request("DELETE", api.JOBS, "video", "one", body=background)
        await cell.until(lambda: "one" in told(cell, QuotaReleased), what="its pods are gone, and its quota free")
        cell.create(small_job("ray"))
        await cell.until(lambda: "ray" in told(cell, GangAdmitted), what="the RayJob is admitted")

    play(cell, scene)
    assert suspended(cell, "two")
    assert told(cell, GangAdmitted) == ["one", "ray"]
    configured = [e.kinds for s in cell.commits() for e in s.commit.events if isinstance(e, KindsConfigured)]
    assert configured == [("RayJob", "Job"), ("RayJob",)]
    proven(cell)


def test_a_kind_that_is_turned_off_and_on_again_finds_its_jobs_at_once() -> None:
    """As when an upgrade is undone, and done again some minutes later."""
    cell = Cell()
    cell.kinds = ("RayJob", "Job")

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        cell.create(jobs.job("one", cpu="5"))
        await cell.until(lambda: not suspended(cell, "one"), what="the first Job is resumed")
        for name in ("two", "three"):
            cell.create(jobs.job(name, cpu="5"))
            await cell.until(lambda name=name: name in told(cell, WorkloadQueued), what=f"Job {name} waits")
        restart_watcher(cell, "RayJob")
        await cell.until(lambda: {*told(cell, WorkloadDequeued)} == {"two", "three"}, what="they leave their queue")
        restart_watcher(cell, "RayJob", "Job")
        await cell.until(lambda: told(cell, WorkloadQueued)[-2:] == ["two", "three"], what="they wait again")
        cell.request("DELETE", api.JOBS, "video", "one", body={"propagationPolicy": "Background"})
        await cell.until(lambda: told(cell, GangAdmitted)[1:] == ["two"], what="the second one is admitted")

    play(cell, scene)
    assert suspended(cell, "three")
    proven(cell)


def test_a_kind_that_is_turned_on_is_listed_before_anything_else_is_admitted() -> None:
    cell = Cell()

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        cell.create(jobs.job("one", cpu="5"))
        cell.create(small_job("ray", cpu="1"))
        await cell.until(lambda: "ray" in told(cell, GangAdmitted), what="the RayJob is admitted")
        assert told(cell, WorkloadQueued) == ["ray"]
        restart_watcher(cell, "RayJob", "Job")
        await cell.until(lambda: not suspended(cell, "one"), what="the Job is resumed")
        await cell.until(lambda: "KindsConfigured" in names(cell), what="the log to say that Jobs are on")

    play(cell, scene)
    places = {
        type(event).__name__: stored.seq
        for stored in cell.commits()
        for event in stored.commit.events
        if (isinstance(event, SyncStarted) and event.kinds == ("jobs",))
        or (isinstance(event, Synced) and event.kind == "jobs")
        or (isinstance(event, GangAdmitted) and event.ref.name == "one")
    }
    assert places["SyncStarted"] < places["Synced"] < places["GangAdmitted"]
    proven(cell)


def test_kinds_that_the_cluster_does_not_have_are_told_once_each_and_block_nothing() -> None:
    cell = Cell()
    cell.kinds = tuple(KINDS)

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        cell.create(small_job("ray"))
        await cell.until(lambda: "ray" in told(cell, GangAdmitted), what="the RayJob is admitted")

    play(cell, scene)
    absent = [e.kind for s in cell.commits() for e in s.commit.events if isinstance(e, Synced) and e.absent]
    served = {table.kind.resource for table in cell.cluster.server.store.tables()}
    rows = {shard: WATCHED[shard] for shard in shards_of(KINDS)}
    unserved = [shard for shard, row in rows.items() if served.isdisjoint({row.resource, *row.versions})]
    assert len(unserved) >= 5
    assert sorted(absent) == sorted(unserved)
    proven(cell)
