"""Ray clusters, jobs and services side by side in two queues that owe each other, and all faults at once.

At every position of the log what is granted is within every quota; no write of ours is one that an operator refuses or
an autoscaler answers by stopping busy workers; afterwards everything converges, and nothing is left over.
"""

from __future__ import annotations

import pytest

from kit.elastic import HEAD_CPU
from kit.rayjudged import named_once
from kit.raylaws import within_quota
from kit.raylives import RayLife
from muster.model import api

CORE = 1_000


@pytest.mark.parametrize("queues", ["tree", "kai"])
@pytest.mark.parametrize("seed", range(6))
def test_everything_at_once(seed: int, queues: str) -> None:
    lived(seed, queues, wild=bool(seed % 2))


def lived(seed: int, queues: str, *, wild: bool, steps: int = 60) -> None:
    life = RayLife(seed, queues=queues, wild=wild)
    play = life.play
    for _ in range(steps):
        life.step()
        assert not play.broken, (play.broken, life.done[-12:])
    life.settle()
    assert not play.broken, play.broken
    assert not play.cell.seats["autoscaler_bridge"].state.alarms, life.done
    for name, obj in life.manifests.items():
        scaler = play.scalers[name]
        assert not scaler.waiting, f"{name} waits beside free quota: {life.done}"
        assert not play.over(name), (name, life.done)
        scaler.actors.clear()
        assert obj["spec"]["workerGroupSpecs"][0]["maxReplicas"] == 90
    play.tick(24)
    for name, obj in life.manifests.items():
        group = obj["spec"]["workerGroupSpecs"][0]
        hosts, least = group["numOfHosts"], group["minReplicas"]
        assert len(play.pods(name)) == least * hosts, (name, life.done)
        assert play.group(name)["maxReplicas"] == least, (name, life.done)
        head = 0 if life.is_driven(name) else HEAD_CPU
        assert play.cpu(name) >= head + least * hosts * CORE
    assert within_quota(play.cell.log) > 100
    named_once(play)
    before = len(play.cell.log)
    play.tick(20)
    assert len(play.cell.log) - before <= 1, "nothing changed, so nothing is written"
    for name, obj in life.manifests.items():
        play.call("DELETE", api.RAYCLUSTERS, obj["metadata"]["namespace"], name)
    play.cell.advance(120_000)
    accountant = play.cell.seats["quota_accountant"].state
    assert not (accountant.ledger.charges or accountant.growths or accountant.returns), life.done
    bridge = play.cell.seats["autoscaler_bridge"].state
    left = (bridge.reclaims, bridge.chosen, bridge.named, bridge.clusters, bridge.grants, bridge.heard, bridge.workers)
    assert not any(left) and not any((bridge.gates, bridge.growing, bridge.alarms, bridge.watched, bridge.due))
    preemptor = play.cell.seats["preemptor"].state
    assert not preemptor.charged
    play.clean()
