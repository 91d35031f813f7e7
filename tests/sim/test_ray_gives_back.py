"""Ray clusters give back single workers to who is owed quota, in virtual time through all stages."""

from __future__ import annotations

from typing import Any

import pytest

from kit.contention import contended, fixed_size, grown
from kit.disorder import Disorder
from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster, rayjob
from muster.core.autoscaling.giveback import DRAIN_MS
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GrowthWithdrawn, WorkersChosen
from muster.model import api
from muster.serving.board import board_of
from muster.serving.boards import RayWorkers, record
from muster.told.views.narrator import Narrator
from muster_cli.render.queues import tree_lines


@pytest.mark.parametrize("make", (raycluster, rayjob))
def test_what_another_queue_is_owed_is_taken_worker_by_worker(make: Any) -> None:
    play = contended()
    scaler = grown(play, 8, make=make)
    scaler.end("actor-3")
    scaler.end("actor-5")
    scaler.idle_ms = 10**9
    play.tick(1)
    busy = scaler.busy
    play.create(fixed_size(3))
    play.tick(8)
    assert len(play.pods("owed")) == 3
    left = {pod["metadata"]["name"] for pod in play.pods("auto")}
    assert left <= busy and len(left) == 6, "the two idle ones went"
    assert play.cpu("auto") == HEAD_CPU + 6 * CORE
    assert play.group("auto")["maxReplicas"] == 6
    [order] = play.told(EvictionOrdered)
    assert not order.victims and [each.taken for each in order.partial] == [{"small": 2}]
    assert play.told(WorkersChosen) and play.told(GrowthWithdrawn)[-1].claimant is not None
    play.clean()


def test_busy_workers_go_after_a_while_and_those_with_actors_last() -> None:
    play = contended()
    scaler = grown(play, 8)
    scaler.unpinned = {scaler.actors["actor-2"].on, scaler.actors["actor-6"].on}
    play.tick(1)
    before = play.cluster.clock.now()
    play.create(fixed_size(3))
    play.tick(8)
    assert len(play.pods("owed")) == 3
    left = {pod["metadata"]["name"] for pod in play.pods("auto")}
    assert len(left) == 6 and not left & scaler.unpinned
    [chosen] = play.told(WorkersChosen)
    assert chosen.until >= before + DRAIN_MS
    play.clean()


def test_never_below_the_minimum_of_the_cluster() -> None:
    """Its gang has 6 workers; what it has beyond them is not enough, so it leaves as a whole."""
    play = contended()
    grown(play, 7, minReplicas=6, replicas=6)
    play.create(fixed_size(3))
    play.tick(8)
    assert len(play.pods("auto")) in (0, 6, 7)
    assert not [each for order in play.told(EvictionOrdered) for each in order.partial if each.left["small"] < 6]
    play.clean()


def test_hosts_go_together() -> None:
    play = contended()
    scaler = play.create(raycluster("auto", "other", numOfHosts=2))
    for number in range(8):
        scaler.start(f"actor-{number}")
    play.tick(5)
    assert len(play.pods("auto")) == 8
    play.create(fixed_size(3))
    play.tick(8)
    assert len(play.pods("owed")) == 3
    assert len(play.pods("auto")) == 6
    assert play.cpu("auto") == HEAD_CPU + 6 * CORE
    play.clean()


def test_workers_that_never_start_go_first_and_hold_up_nothing() -> None:
    play = contended(nodes={"node-0": {"cpu": "7", "memory": "64Gi"}})
    grown(play, 6)
    scaler = play.scalers["auto"]
    scaler.start("late-1")
    scaler.start("late-2")
    play.tick(3)
    pending = {pod["metadata"]["name"] for pod in play.pods("auto") if not pod["spec"].get("nodeName")}
    assert len(pending) == 2
    play.create(fixed_size(3))
    play.tick(8)
    assert not pending & {pod["metadata"]["name"] for pod in play.pods("auto")}
    assert len(play.pods("auto")) == 6
    assert play.raycluster("owed")["spec"]["suspend"] is False
    play.clean()


def test_a_refused_write_is_made_up_for() -> None:
    """The API server takes no write of ours for 30 s: nothing is killed twice, and no more than is needed."""
    play = contended()
    grown(play, 8)
    play.create_raw(fixed_size(3))
    play.cell.advance(500)
    play.cell.disorder = Disorder(outage=1.0)
    play.tick(6)
    assert len(play.pods("auto")) == 8
    play.cell.heal()
    play.tick(10)
    assert (len(play.pods("auto")), len(play.pods("owed"))) == (6, 3)
    play.clean()


def test_queue_tree_shows_what_is_granted_asked_for_and_taken_back() -> None:
    play = contended()
    grown(play, 8)
    play.create(fixed_size(3))
    narrator = Narrator()
    for stored in play.cell.log:
        narrator.feed(stored)
    board = board_of(narrator.state)
    [node] = [node for node in board.nodes if node.path == "root/other"]
    assert node.workers == RayWorkers(granted=8, asked=0, going=2)
    shown = " ".join(line.plain for line in tree_lines(board, board.nodes))
    assert "8 Ray workers granted, 2 of them taken back" in shown
    [told] = [each for each in record(board, board.nodes)["queues"] if each["path"] == "root/other"]
    assert told["ray_workers"] == {"granted": 8, "asked": 0, "going": 2}


@pytest.mark.parametrize("idle", ("auto", "young"))
def test_idle_workers_of_any_cluster_go_before_busy_ones(idle: str) -> None:
    """The younger of two clusters gave first, be all of its workers busy."""
    play = contended()
    scalers = {}
    for name in ("auto", "young"):
        scalers[name] = play.create(raycluster(name, "other"))
        for number in range(4):
            scalers[name].start(f"{name}-{number}")
        play.tick(5)
    for each in scalers.values():
        each.idle_ms = 10**9
    before = {name: len(play.pods(name)) for name in scalers}
    scalers[idle].end(f"{idle}-0")
    scalers[idle].end(f"{idle}-1")
    play.tick(1)
    play.create(fixed_size(3))
    play.tick(8)
    gone = {name: count - len(play.pods(name)) for name, count in before.items()}
    assert gone[idle] > 0 and sum(gone.values()) == gone[idle], gone
    play.clean()


def test_a_head_alone_leaves_once_for_one_claimant() -> None:
    """A cluster without workers is in its claimant's way for once: it waits until that has ended."""
    play = ElasticPlay(("ns", "0", "4"), ("other", "4", "4"), total="4")
    play.create(raycluster())
    assert (play.cpu(), len(play.pods())) == (HEAD_CPU, 0)
    play.other_claims(4)
    play.tick(36)
    assert len(play.pods("claims")) == 4
    assert [victim.ref.name for order in play.told(EvictionOrdered) for victim in order.victims] == ["auto"]
    play.call("DELETE", api.RAYCLUSTERS, "other", "claims")
    play.tick(12)
    assert play.cpu() == HEAD_CPU, "it runs again"
    assert len(play.told(EvictionOrdered)) == 1
    play.clean()
