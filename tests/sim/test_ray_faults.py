"""Faults while a Ray cluster grows and while it gives back: it converges, no quota is passed, no worker is lost.

Whatever happens, at every position of the log the grants are within the quota, no pod is named twice to be deleted, no
busy worker goes that need not, and no more workers are taken than are needed.
"""

from __future__ import annotations

from typing import Any

import pytest

from kit.contention import contended, names, owed
from kit.disorder import Disorder
from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster
from kit.raylaws import taken_for_others, within_quota
from kit.rayscaler import RayScaler
from muster.events.base import Event
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GateSet, GrowthGranted, GrowthRequested, WorkersChosen
from muster.events.raydemand import RayDemandObserved
from muster.model import api

Object = dict[str, Any]


def growing(play: ElasticPlay, actors: int) -> RayScaler:
    """A cluster in queue ``other`` with so many actors that wait."""
    scaler = play.create(raycluster("auto", "other", maxReplicas=30))
    scaler.idle_ms = 10**9
    for number in range(actors):
        scaler.start(f"actor-{number}")
    return scaler


def judged(play: ElasticPlay, *, taken: int = 0) -> None:
    """The sentence at the top of this file. ``taken``: workers that had to go for others."""
    within_quota(play.cell.log)
    taken_for_others(play.cell.log, needed=taken)
    play.clean()


def full(play: ElasticPlay, scaler: RayScaler) -> None:
    """It has grown as far as there is room: nine workers beside its head."""
    play.tick(10)
    assert (len(play.pods("auto")), play.cpu("auto")) == (9, HEAD_CPU + 9 * CORE)
    assert len(scaler.busy) == 9


def given(play: ElasticPlay, scaler: RayScaler, busy: set[str]) -> None:
    """Who is owed three cores has them; the six workers that are left did not stop."""
    play.tick(16)
    left = names(play.pods("auto"))
    assert (len(play.pods("owed")), len(left), play.cpu("auto")) == (3, 6, HEAD_CPU + 6 * CORE)
    assert left <= busy
    assert len(scaler.busy) == 6


# --- the API server takes no patch for 30 s -----------------------------------------------------------------------


@pytest.mark.parametrize("when", ["grows", "gives"])
@pytest.mark.row(22)
def test_patches_are_denied_for_half_a_minute(when: str) -> None:
    play = contended()
    scaler = growing(play, 12)
    if when == "grows":
        play.cell.disorder = Disorder(outage=1.0)
        play.tick(6)
        assert not play.pods("auto")
        play.cell.heal()
    full(play, scaler)
    busy = scaler.busy
    owed(play)
    if when == "gives":
        play.cell.advance(500)
        play.cell.disorder = Disorder(outage=1.0)
        play.tick(6)
        assert len(play.pods("auto")) == 9
        play.cell.heal()
    given(play, scaler, busy)
    judged(play, taken=3)


# --- the autoscaler starts anew -----------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["grows", "gives"])
@pytest.mark.row(22)
def test_the_autoscaler_restarts(when: str) -> None:
    play = contended()
    scaler = growing(play, 12)
    if when == "grows":
        play.tick(1)
        scaler.stopped = True
        play.tick(4)
        scaler.stopped = False
    full(play, scaler)
    busy = scaler.busy
    owed(play)
    if when == "gives":
        scaler.stopped = True
        play.tick(4)
        play.scalers["auto"] = scaler = RayScaler(idle_ms=10**9, actors=scaler.actors)
    given(play, scaler, busy)
    judged(play, taken=3)


# --- the head is lost ---------------------------------------------------------------------------------------------


@pytest.mark.row(22)
def test_the_head_is_lost_and_with_it_all_workers() -> None:
    """Without a store outside, actors are gone and raylets end: KubeRay makes head and workers anew."""
    play = contended()
    scaler = growing(play, 12)
    full(play, scaler)
    before = {pod["metadata"]["uid"] for node in ("head", "worker") for pod in play.pods("auto", node)}
    scaler.stopped, scaler.trouble = True, "unreachable"
    for node in ("head", "worker"):
        for pod in play.pods("auto", node):
            meta = pod["metadata"]
            path, body = api.PODS.path("other", meta["name"]) + "/status", b'{"status": {"phase": "Failed"}}'
            kind = "application/merge-patch+json"
            assert play.cluster.server.handle("PATCH", path, body=body, content_type=kind).ok
    play.tick(4)
    after = {pod["metadata"]["uid"] for node in ("head", "worker") for pod in play.pods("auto", node)}
    assert len(after) == 10 and not after & before
    scaler.stopped, scaler.trouble = False, ""
    full(play, scaler)
    judged(play)


# --- the bridge is killed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [GrowthRequested, GrowthGranted, GateSet, WorkersChosen, EvictionOrdered])
@pytest.mark.row(22)
def test_the_bridge_is_killed_right_after(after: type[Event]) -> None:
    """Each time such a decision is stored the bridge dies and another one reads the log from the beginning."""
    play = contended()
    killed, plain = [0, 0], play.cell.step
    play.cell.on_commit = lambda stored: killed.__setitem__(
        0, killed[0] or any(isinstance(event, after) for event in stored.commit.events)
    )

    def step(key: str) -> list[Event]:
        if key == "autoscaler_bridge" and killed[0]:
            killed[:] = 0, killed[1] + 1
            play.cell._restart(key)
        return plain(key)

    play.cell.step = step  # type: ignore[method-assign]
    scaler = growing(play, 12)
    full(play, scaler)
    busy = scaler.busy
    owed(play)
    given(play, scaler, busy)
    assert killed[1] >= 1
    judged(play, taken=3)


# --- two bridges, two actuators -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.row(22)
def test_two_bridges(seed: int) -> None:
    """Another one reads the heads too and says what they said before; decisions come late, patches are sent twice."""
    play = contended(seed=seed, disorder=Disorder(late=0.3, repeat=0.3, lost_answer=0.5, stale_patch=0.3, crash=0.1))
    scaler = growing(play, 12)
    facts: list[Event] = []
    for _ in range(10):
        play.tick(1)
        said = play.told(RayDemandObserved)
        facts += said[len(facts) :]
        play.cell.append("autoscaler_bridge", "input", facts[-3:])
    play.cell.heal()
    full(play, scaler)
    busy = scaler.busy
    play.cell.disorder = Disorder(late=0.3, repeat=0.3, lost_answer=0.5, stale_patch=0.3)
    owed(play)
    play.tick(8)
    play.cell.heal()
    given(play, scaler, busy)
    judged(play, taken=3)


# --- a pod is replaced --------------------------------------------------------------------------------------------


@pytest.mark.row(22)
def test_a_pod_of_the_same_name_is_not_the_one_that_was_chosen() -> None:
    play = contended()
    scaler = growing(play, 12)
    full(play, scaler)
    owed(play)
    while not play.told(WorkersChosen):
        play.cell.advance(500)
    chosen = play.told(WorkersChosen)[0].workers[0].ref
    play.cell.disorder = Disorder(outage=1.0)
    [old] = [pod for pod in play.pods("auto") if pod["metadata"]["uid"] == chosen.uid]
    play.call("DELETE", api.PODS, "other", chosen.name)
    play.cell.advance(2_000)
    fresh = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": chosen.name, "namespace": "other"}}
    fresh["metadata"]["labels"] = {"app": "somebody-else"}
    fresh["spec"] = {"containers": old["spec"]["containers"]}
    play.call("POST", api.PODS, "other", body=fresh)
    play.cell.heal()
    play.tick(16)
    found = play.call("GET", api.PODS, "other", chosen.name)
    assert not found["metadata"].get("deletionTimestamp"), "somebody else's pod has that name now, and stays"
    assert len(play.pods("owed")) == 3
    assert len(play.pods("auto")) <= 6
    play.clean()


# --- a tenant edits -----------------------------------------------------------------------------------------------


def raised_by_hand(play: ElasticPlay, most: int) -> None:
    """What an autoscaler would write before it is lowered again is refused by policy muster-jobs."""
    play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/maxReplicas", "value": most}])
    play.cell.advance(500)


@pytest.mark.row(22)
def test_a_tenant_raises_what_is_granted_by_hand_again_and_again() -> None:
    play = contended()
    scaler = growing(play, 12)
    for most in (30, 50, 4, 30, 2_000, 30):
        raised_by_hand(play, most)
        play.tick(1)
    full(play, scaler)
    assert play.group("auto")["maxReplicas"] == 9
    busy = scaler.busy
    owed(play)
    for most in (30, 40):
        raised_by_hand(play, most)
        play.tick(2)
    given(play, scaler, busy)
    judged(play, taken=3)


@pytest.mark.row(22)
def test_a_tenant_scales_by_hand_beyond_the_grant() -> None:
    """Where no policy refuses it: what runs is charged, the grants stay within the quota, and all is right again."""
    play = contended()
    scaler = growing(play, 4)
    play.tick(8)
    at = "/spec/workerGroupSpecs/0"
    play.edit([{"op": "replace", "path": f"{at}/{name}", "value": 14} for name in ("maxReplicas", "replicas")])
    play.tick(10)
    assert play.cpu("auto") >= HEAD_CPU + len(play.pods("auto")) * CORE, "all that runs is charged"
    assert play.group("auto")["maxReplicas"] <= 14
    scaler.idle_ms = 10_000
    play.tick(24)
    assert (len(play.pods("auto")), play.cpu("auto")) == (4, HEAD_CPU + 4 * CORE)
    assert not scaler.waiting and not play.over("auto")
    judged(play)
