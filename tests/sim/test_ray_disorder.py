"""Ray clusters under disorder: late decisions, crashes, lost answers, an API server that is away, the same and again.

Never more than the quota is used at any position of the log, the cluster converges, and nobody's worker is lost.
"""

from __future__ import annotations

import pytest

from kit.disorder import Disorder
from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster

WILD = Disorder(late=0.3, crash=0.05, unseen=0.3, repeat=0.1, lost_answer=0.3, outage=0.3)
CORES = 12


def within(play: ElasticPlay) -> None:
    ledger = play.cell.seats["quota_accountant"].state.ledger
    assert ledger.used.get("root/ns", {}).get("cpu", 0) <= CORES * CORE


@pytest.mark.parametrize("seed", range(5))
def test_two_clusters_grow_and_shrink_side_by_side(seed: int) -> None:
    play = ElasticPlay(("ns", str(CORES), str(CORES)), seed=seed, disorder=WILD)
    one, two = play.create(raycluster("one")), play.create(raycluster("two"))
    rng = play.cell.rng
    for number in range(12):
        scaler = rng.choice([one, two])
        if scaler.actors and rng.random() < 0.35:
            scaler.end(rng.choice(sorted(scaler.actors)))
        else:
            scaler.start(f"actor-{number}")
        play.tick(rng.randrange(1, 3))
        within(play)
    play.cell.heal()
    play.tick(14)
    within(play)
    running = len(one.actors) + len(two.actors)
    assert len(one.waiting) + len(two.waiting) == max(running - (CORES - 1), 0)
    assert len(play.pods("one")) + len(play.pods("two")) == min(running, CORES - 1)
    assert play.cpu("one") + play.cpu("two") == 2 * HEAD_CPU + min(running, CORES - 1) * CORE
    play.clean()


def test_an_api_server_that_takes_no_patch_for_a_while_costs_nothing() -> None:
    play = ElasticPlay()
    scaler = play.create(raycluster())
    play.cell.disorder = Disorder(outage=1.0)
    scaler.start("actor")
    play.tick(6)
    assert (play.group()["maxReplicas"], play.cpu()) == (0, HEAD_CPU + CORE), "granted, and not written yet"
    play.cell.heal()
    play.tick(3)
    assert len(play.pods()) == 1 and not scaler.waiting
    play.clean()


def test_an_autoscaler_that_is_gone_for_a_while_keeps_its_workers() -> None:
    play = ElasticPlay()
    scaler = play.create(raycluster())
    for number in range(3):
        scaler.start(f"actor-{number}")
    play.tick(4)
    scaler.stopped = True
    play.tick(8)
    assert len(play.pods()) == 3
    assert play.cpu() == HEAD_CPU + 3 * CORE
    play.clean()
