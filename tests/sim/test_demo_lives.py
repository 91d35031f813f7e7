"""The demo that lives, in virtual time: what its first minute shows, and that no job is suspended in vain after it."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from kit import proof
from kit.disorder import Disorder, DisorderedCell
from muster.events.base import Event
from muster.events.decisions import EvictionOrdered, GangAdmitted, QuotaDenied
from muster.events.elastic import GrowthGranted
from muster.events.facts import WorkloadFinished
from muster.fakecluster.forgetting import Forgetting
from muster.fakecluster.world import SimCluster
from muster_cli import samples
from muster_cli.local import living
from muster_cli.local.cluster import HISTORY, RESIZED, RESOURCES

MINUTE_MS = 60_000
PATCH = "application/json-patch+json"


def lives(seed: int, minutes: float, disorder: Disorder | None = None) -> DisorderedCell:
    """What ``muster up`` does with its cluster, for so long."""
    cluster = SimCluster(living.NODES, seed=seed, others=(Forgetting(),), history=HISTORY)
    cell = DisorderedCell(cluster, seed=seed, kinds=("RayJob", "RayCluster"), disorder=disorder)
    ends = cluster.clock.now() + int(minutes * MINUTE_MS)
    for body in samples.manifests(samples.TEAMS):
        answer = cluster.server.handle("POST", path_of(body), body=json.dumps(body).encode())
        assert answer.ok, answer.body
    for turn in living.turns(seed):
        wait = int(turn.wait_s * 1_000)
        if cluster.clock.now() + wait > ends:
            break
        cell.advance(wait)
        path = path_of(turn.body)
        if turn.resize < 0:
            answer = cluster.server.handle("POST", path, body=json.dumps(turn.body).encode())
            assert answer.ok or answer.status == 409, answer.body
        else:
            patch = json.dumps([{"op": "replace", "path": RESIZED, "value": turn.resize}]).encode()
            name = turn.body["metadata"]["name"]
            cluster.server.handle("PATCH", f"{path}/{name}", body=patch, content_type=PATCH)
    cell.advance(max(ends - cluster.clock.now(), 0))
    return cell


def path_of(body: living.Manifest) -> str:
    return RESOURCES[body["apiVersion"], body["kind"]].path(body["metadata"].get("namespace", ""))


@pytest.mark.parametrize("seed", [0, 3])
def test_its_first_minute_shows_what_its_page_says(seed: int) -> None:
    events = happened(lives(seed, 1.0))
    admitted = {event.ref.name for event in events if isinstance(event, GangAdmitted)}
    assert {"pretrain-0", "sweep-0", "gang-0", "notebook", "service", "broken-0", "urgent-0"} <= admitted
    [failed] = [event.ref.name for event in events if isinstance(event, WorkloadFinished) and event.outcome == "failed"]
    assert failed == "broken-0"
    assert any(isinstance(event, QuotaDenied) and event.ref.name == "too-large-0" for event in events)
    assert any(isinstance(event, GrowthGranted) and event.ref.name == "notebook" for event in events)
    reclaims = [event for event in events if isinstance(event, EvictionOrdered)]
    assert [reclaims[0].ref.name, reclaims[0].victims[0].queue] == ["urgent-0", "root/research/interns"]


@pytest.mark.parametrize("seed", [0, 2])
def test_what_is_ordered_once_is_enough(seed: int) -> None:
    """Jobs start in room that was made for others, workers of Ray clusters are released all the same: it counts for
    those, and no second order comes for any attempt of a job.
    """
    cell = lives(seed, 5.0)
    proof.proven(cell.log)
    orders = [event for event in happened(cell) if isinstance(event, EvictionOrdered)]
    assert any(each.partial for each in orders)
    assert any(each.victims for each in orders)
    attempts = Counter((each.ref.key, each.attempt) for each in orders)
    assert not [attempt for attempt, times in attempts.items() if times > 1]


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("late", [0.0, 0.3])
def test_no_invariant_breaks_however_long_it_lives(seed: int, late: float) -> None:
    proof.proven(lives(seed, 6.0, Disorder(late=late)).log)


def happened(cell: DisorderedCell) -> list[Event]:
    return [event for stored in cell.log for event in stored.commit.events]
