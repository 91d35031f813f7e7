"""The log is lost under 20 running and 20 waiting jobs: nothing restarts, nothing is over quota, same order."""

from __future__ import annotations

import asyncio
from collections import Counter

from kit import facts
from kit.audits import audit
from kit.shell import Cell, play
from kit.story import quota_tree, rayjob
from muster.events.decisions import GangAdmitted, WorkloadAdopted
from muster.fakecluster.apiserver.store import StoredChange
from muster.model import api

RUNNING, WAITING = 20, 20
CPU = RUNNING * 2


def tree() -> dict[str, object]:
    whole = {"cpu": CPU}
    return quota_tree(facts.node("root", whole, whole, children=(facts.node("a", whole, whole, ("video",)),)))


class Clusters:
    def __init__(self, cell: Cell) -> None:
        self.started: list[str] = []
        self.live = 0
        self.most = 0
        cell.cluster.server.subscribe(self._heard, api.RAYCLUSTERS)

    def _heard(self, change: StoredChange) -> None:
        if change.type == "ADDED":
            self.started.append(change.object["metadata"]["ownerReferences"][0]["name"])
            self.live += 1
        elif change.type == "DELETED":
            self.live -= 1
        self.most = max(self.most, self.live)


def test_a_lost_log_disturbs_nothing() -> None:
    cell = Cell()
    clusters = Clusters(cell)
    order: list[str] = []

    async def scene(cell: Cell) -> None:
        cell.create(tree())
        for index in range(RUNNING):
            runtime = f"{600 + 20 * index}s"
            cell.create(rayjob(f"running-{index}", runtime=runtime, cpu="1", replicas=1, memory="1G"))
        await cell.until(lambda: len(clusters.started) == RUNNING, what="all run")
        for index in range(WAITING):
            # Names that sort the other way round: only what is stored on the objects tells who came first.
            name = f"waiting-{WAITING - index:02}"
            order.append(name)
            cell.create(rayjob(name, runtime="1s", cpu="1", replicas=1, memory="1G"))
            await asyncio.sleep(0.02)
        await cell.until(
            lambda: all("kube-queue/job-enqueue-timestamp" in a for a in annotations(cell)), what="stamped"
        )
        before = audit(cell.commits())
        assert not before.violations
        cell.new_log()
        await cell.until(lambda: count(cell, WorkloadAdopted) == RUNNING, what="everything that runs is adopted")
        await asyncio.sleep(30)
        assert sorted(clusters.started) == sorted(f"running-{index}" for index in range(RUNNING)), "nothing restarts"
        assert not count(cell, GangAdmitted), "nobody is let in over what runs"
        assert cell.jobs() | dict.fromkeys(order, "Suspended") == cell.jobs()
        await cell.until(lambda: set(cell.jobs().values()) == {"Complete"}, limit_s=3000, what="all complete")

    play(cell, scene)
    assert clusters.started[RUNNING:] == order, "the order survives the loss of the log"
    assert Counter(clusters.started) == Counter([*order, *(f"running-{index}" for index in range(RUNNING))])
    assert clusters.most == RUNNING
    assert {why for _, why in cell.ended} == {"LogGoneError"}
    assert not audit(cell.commits()).violations


def annotations(cell: Cell) -> list[dict[str, str]]:
    return [job["metadata"].get("annotations", {}) for job in cell.request("GET", api.RAYJOBS, "")["items"]]


def count(cell: Cell, kind: type) -> int:
    return sum(isinstance(event, kind) for stored in cell.commits() for event in stored.commit.events)
