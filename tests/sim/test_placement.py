"""Gangs on a simulated cluster with fewer nodes than quota: with placement no admitted gang ever lacks a node.

What is checked is the cluster's own truth: pods that found no node, and jobs that came to their end.
"""

from __future__ import annotations

import json

import pytest

from kit.disorder import Disorder, DisorderedCell
from kit.proof import proven
from kit.story import quota_tree, rayjob
from muster.events.decisions import GangAdmitted, GangDeferred
from muster.events.system import PlacementChosen
from muster.fakecluster.apiserver.store import StoredChange
from muster.fakecluster.world import SimCluster
from muster.model import api

NODES = {f"node-{index}": {"cpu": "8", "memory": "64Gi"} for index in range(2)}
"""Four places of 4 cpu: one job of three pods fits, and not two."""
WILD = Disorder(late=0.6, crash=0.03, repeat=0.1, lost_answer=0.3)
PACK = PlacementChosen(mode="pack")


class Play:
    def __init__(self, placement: PlacementChosen | None, seed: int = 1, disorder: Disorder | None = None) -> None:
        self.cluster = SimCluster(NODES, seed=seed)
        self.simulation = DisorderedCell(self.cluster, seed=seed, disorder=disorder, placement=placement)
        self.stranded: set[str] = set()
        """Pods that the scheduler found no node for, ever."""
        self.cluster.server.subscribe(self._heard, api.PODS)
        self.post(api.QUOTA_TREES, quota_tree())
        self.simulation.advance(1_000)

    def _heard(self, change: StoredChange) -> None:
        for each in change.object.get("status", {}).get("conditions", ()):
            if each["type"] == "PodScheduled" and each["status"] == "False":
                self.stranded.add(change.object["metadata"]["name"])

    def post(self, resource: api.ApiResource, obj: dict[str, object]) -> None:
        path = resource.path(obj["metadata"]["namespace"])
        answer = self.cluster.server.handle("POST", path, body=json.dumps(obj).encode())
        assert answer.ok, answer.body

    def submit(self, count: int) -> None:
        for index in range(count):
            namespace = ("video", "text")[index % 2]
            self.post(api.RAYJOBS, rayjob(f"job-{index}", namespace, runtime="30s", submissionMode="HTTPMode"))
            self.simulation.advance(500)

    def unfinished(self) -> list[str]:
        found = json.loads(self.cluster.server.handle("GET", api.RAYJOBS.path()).body)["items"]
        return [j["metadata"]["name"] for j in found if j["status"].get("jobDeploymentStatus") != "Complete"]

    def decided(self, kind: type) -> list[object]:
        return [event for stored in self.simulation.log for event in stored.commit.events if isinstance(event, kind)]


def test_without_placement_the_second_gang_starts_in_part() -> None:
    play = Play(None)
    play.submit(2)
    play.simulation.advance(20_000)
    assert play.stranded


@pytest.mark.parametrize("seed", range(4))
def test_with_placement_nothing_starts_that_cannot_start_whole(seed: int) -> None:
    play = Play(PACK, seed)
    play.submit(6)
    play.simulation.advance(3_600_000)
    assert play.stranded == set()
    assert play.unfinished() == []
    assert play.decided(GangDeferred)
    assert all(event.placements for event in play.decided(GangAdmitted))
    clean(play)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_goes_wrong_on_the_way(seed: int) -> None:
    """Decisions land late, stages crash, facts and patches come twice: every job is done, and no place leaks."""
    play = Play(PACK, seed, WILD)
    play.submit(6)
    play.simulation.advance(6 * 3_600_000)
    assert play.unfinished() == []
    clean(play)


def clean(play: Play) -> None:
    state = play.simulation.seats["gang_admitter"].state
    assert not state.holds
    assert not state.ledger.occupants
    report = proven(play.simulation.log, but="I11")  # facts are repeated on purpose
    assert report.checks["I3"] > 0
