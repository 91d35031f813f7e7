"""Row C29: what was recorded of C4 to C8 on a real cluster decides the same again, from nothing, disordered too."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from kit import proof
from kit.audits import audit
from kit.cluster import Cluster, document_job
from kit.muster import Muster, running
from muster.bus.server import EmbeddedServer
from muster.core.stage import REQUIRED_KINDS
from muster.events.decisions import GangAdmitted, QuotaDenied, QuotaReleased, QuotaReserved, WorkloadQueued
from muster.events.effects import EffectApplied
from muster.events.envelope import Stored
from muster.events.facts import Synced, SyncStarted
from muster.events.system import LeaderStarted
from muster.runtime.replaying.replay import replay

SEEDS = range(20)
MARKS = Synced | SyncStarted | LeaderStarted
"""What watchers say that is no fact about an object."""
DECIDED = WorkloadQueued | QuotaReserved | QuotaDenied | GangAdmitted | EffectApplied | QuotaReleased


async def test_the_record_of_c4_to_c8_decides_the_same_again(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with running(cluster, nats_server.url, tmp_path, prove=False) as muster:
        first, second = await the_story(cluster, muster)
        commits = await muster.commits()
    story = [
        (type(event).__name__, event.ref.name)
        for stored in commits
        for event in stored.commit.events
        if isinstance(event, DECIDED)
    ]
    for name in (first, second):
        for kind in ("WorkloadQueued", "QuotaReserved", "GangAdmitted", "EffectApplied", "QuotaReleased"):
            assert story.count((kind, name)) == 1, (kind, name)
    assert ("QuotaDenied", second) in story
    before = await versions(cluster)
    judged = await proof.prove(commits, tmp_path)
    assert judged["decisions"] >= 8
    await asyncio.to_thread(repeat, commits)
    await asyncio.to_thread(reorder, commits)
    assert await versions(cluster) == before, "nothing was written while it was decided again"


async def the_story(cluster: Cluster, muster: Muster) -> tuple[str, str]:
    """Two jobs of which one fits, and one that is deleted while it waits; returns the names of the two."""
    await cluster.apply_tree()
    first = await cluster.submit(document_job(runtime="1h", ttl_s=1))
    await cluster.until(lambda: cluster.running(first))
    second = await cluster.submit(document_job(runtime="1s", ttl_s=0))

    async def waits() -> bool:
        return "Insufficient quota" in await cluster.message(second)

    await cluster.until(waits)
    dropped = await cluster.submit(document_job())
    await cluster.until(lambda: cluster.unit(dropped))
    await cluster.delete_job(dropped)
    await cluster.let_end(first)
    await cluster.complete(first, second)
    await cluster.quiet()

    async def released() -> bool:
        return len(await muster.happened(QuotaReleased)) == 2

    await cluster.until(released)

    async def nothing_left() -> bool:
        return await cluster.state(dropped) == "gone" and await cluster.unit(dropped) is None

    await cluster.until(nothing_left, 60.0, "what belonged to the deleted job to be collected")
    return first, second


async def versions(cluster: Cluster) -> dict[str, str]:
    """{uid: resourceVersion} of everything Muster may write."""
    found: dict[str, str] = {}
    for path in ("ray.io/v1/rayjobs", "scheduling.x-k8s.io/v1alpha1/queueunits", "scheduling.x-k8s.io/v1alpha1/queues"):
        for item in (await cluster.kube.request("GET", f"/apis/{path}"))["items"]:
            found[item["metadata"]["uid"]] = item["metadata"]["resourceVersion"]
    return found


def repeat(commits: Sequence[Stored]) -> None:
    """Facts come twice, and old ones late, in commits of their own shard and of others: not one byte changes."""
    for seed in SEEDS:
        rng = Random(seed)
        told: list[Any] = []
        disturbed = []
        for stored in commits:
            if stored.commit.stage == "watcher" and not leads(stored):
                own = [event for event in stored.commit.events if not isinstance(event, MARKS)]
                told += own
                more = [*own, *rng.sample(told, min(len(told), rng.randrange(6)))]
                stored = changed(stored, [*stored.commit.events, *more])
            disturbed.append(stored)
        found = replay(disturbed)
        assert not found.divergences, f"seed {seed}: {found.divergences[0].first_difference()}"
        broken = [each for each in audit(disturbed).violations if each.invariant != "I11"]
        assert not broken, f"seed {seed}: {broken[0]}"


def reorder(commits: Sequence[Stored]) -> None:
    """Facts of different shards change places, where no stage decided between them: the decisions name other causes.

    What is decided, on what, and under which position, stays the same.
    """
    decided_at = {stored.commit.in_seq for stored in commits if stored.commit.kind == "decision"}
    swapped = 0
    for seed in SEEDS:
        rng = Random(seed)
        disturbed = list(commits)
        for at in range(len(commits) - 1):
            one, other = disturbed[at], disturbed[at + 1]
            watched = one.commit.stage == other.commit.stage == "watcher" and one.commit.shard != other.commit.shard
            if watched and one.seq not in decided_at and not opens(one) and not opens(other) and rng.random() < 0.7:
                disturbed[at] = Stored(one.seq, other.commit)
                disturbed[at + 1] = Stored(other.seq, one.commit)
                swapped += 1
        for each in replay(disturbed).divergences:
            recorded = [without_causes(json.loads(text)) for text in each.recorded]
            decided = [without_causes(json.loads(text)) for text in each.decided]
            assert decided == recorded, f"seed {seed}, {each.stage} at {each.seq}"
    assert swapped > len(SEEDS), "or this proves nothing"


def opens(stored: Stored) -> bool:
    """Whether a commit says something of what is known: the first facts of a kind are no disorder."""
    marks = [event for event in stored.commit.events if isinstance(event, Synced | SyncStarted)]
    kinds = {kind for mark in marks for kind in (mark.kinds if isinstance(mark, SyncStarted) else (mark.kind,))}
    return bool(kinds & {*REQUIRED_KINDS})


def leads(stored: Stored) -> bool:
    """Whether a leader begins with a commit: it says nothing else in that."""
    return any(isinstance(event, LeaderStarted) for event in stored.commit.events)


def changed(stored: Stored, events: list[Any]) -> Stored:
    commit = msgspec.structs.replace(stored.commit, events=tuple(events))
    return msgspec.structs.replace(stored, commit=commit)


def without_causes(found: Any) -> Any:
    """A decision without the positions of what it answers."""
    if isinstance(found, dict):
        return {key: without_causes(value) for key, value in found.items() if key != "cause"}
    return [without_causes(each) for each in found] if isinstance(found, list) else found


def test_the_judges_of_a_log_cannot_reach_anything() -> None:
    code = (
        "import sys, socket; from kit.proof import _no_network; sys.addaudithook(_no_network); "
        "socket.create_connection(('127.0.0.1', 1))"
    )

    async def attempt() -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, env=proof.environment("1"), stderr=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[1]

    assert b"reaches for the network" in asyncio.run(attempt())
