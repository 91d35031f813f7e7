"""Ray clusters whose head or autoscaler does not do what it should: said once, and no quota waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster
from kit.raylaws import within_quota
from muster.events.alarms import AlarmCleared, AlarmRaised
from muster.events.elastic import GateSet, GrowthWithdrawn, WorkersChosen, WorkersKept
from muster.model import api
from muster.ray.pace import TickPace
from muster.ray.reading import Ticks

MINUTE = 12
"""Ticks."""


def grown(workers: int, *, ray: str = "auto", **group: Any) -> ElasticPlay:
    play = ElasticPlay(("ns", "8", "8"))
    scaler = play.create(raycluster(ray, **group))
    for number in range(workers):
        scaler.start(f"actor-{number}")
    play.tick(6)
    assert len(play.pods(ray)) == max(workers, group.get("minReplicas", 0)) and not scaler.waiting
    return play


def reasons(play: ElasticPlay) -> list[str]:
    return [event.reason if isinstance(event, AlarmRaised) else "" for event in play.told(AlarmRaised, AlarmCleared)]


def test_what_a_lost_autoscaler_does_not_use_goes_to_others_and_comes_back() -> None:
    play = grown(2)
    scaler = play.scalers["auto"]
    scaler.stopped = True
    for number in range(5):
        scaler.start(f"more-{number}")
    play.tick(2)
    assert play.cpu() == HEAD_CPU + 7 * CORE
    other = play.create(raycluster("other"))
    for number in range(4):
        other.start(f"other-{number}")
    play.tick(2)
    assert not play.pods("other"), "there is no room beside what is granted and not used"
    play.tick(2 * MINUTE)
    assert reasons(play) == ["not_growing"]
    [alarm] = play.told(AlarmRaised)
    assert alarm.groups == {"small": 5}
    assert play.cpu() == HEAD_CPU + 2 * CORE and len(play.pods()) == 2
    assert len(play.pods("other")) == 4
    before = len(play.cell.log)
    play.tick(MINUTE)
    assert len(play.cell.log) - before <= 1, "nothing changes, so nothing is written"
    scaler.stopped = False
    play.tick(6 * MINUTE)
    assert reasons(play) == ["not_growing", ""]
    assert len(play.pods()) == 3, "it grows again as far as there is room"
    assert (len(scaler.waiting), len(play.pods("other"))) == (4, 4)
    play.clean()


def test_in_vain_it_is_tried_more_and_more_seldom() -> None:
    play = grown(0)
    play.scalers["auto"].stopped = True
    play.scalers["auto"].start("actor")
    play.tick(40 * MINUTE)
    assert [event.tries for event in play.told(AlarmRaised)] == [1, 2, 3, 4]
    assert play.cpu() == HEAD_CPU
    play.scalers["auto"].end("actor")
    play.tick(1)
    assert reasons(play)[-1] == ""
    play.clean()


def test_idle_workers_of_a_stalled_autoscaler_are_removed_and_busy_ones_stay() -> None:
    play = grown(3)
    scaler = play.scalers["auto"]
    busy = {scaler.actors[name].on for name in ("actor-0", "actor-1")}
    scaler.stopped, scaler.trouble = True, "stalled"
    scaler.end("actor-2")
    play.tick(MINUTE)
    assert reasons(play) == ["stalled"]
    assert len(play.pods()) == 3, "the timeout of a minute, and a minute more"
    play.tick(MINUTE + 4)
    assert {pod["metadata"]["name"] for pod in play.pods()} == busy
    assert play.cpu() == HEAD_CPU + 2 * CORE
    [chosen] = play.told(WorkersChosen)
    assert (chosen.claimant, len(chosen.workers)) == (None, 1)
    before = len(play.cell.log)
    play.tick(MINUTE)
    assert len(play.cell.log) - before <= 2
    scaler.stopped, scaler.trouble = False, ""
    scaler.start("again")
    play.tick(4)
    assert reasons(play) == ["stalled", ""]
    assert len(play.pods()) == 3 and not scaler.waiting
    play.clean()


@pytest.mark.parametrize("again", [False, True], ids=["idle", "used again"])
def test_an_idle_worker_that_is_never_removed_is_removed_here(again: bool) -> None:
    play = grown(2)
    scaler = play.scalers["auto"]
    scaler.idle_ms = 10**9
    scaler.end("actor-1")
    play.tick(2 * MINUTE - 2)
    assert len(play.pods()) == 2 and reasons(play) == []
    while not play.told(WorkersChosen):
        play.cell.advance(200)
    if again:
        scaler.start("back")
    play.tick(4)
    assert reasons(play) == ["not_shrinking", ""]
    assert [kept.reason for kept in play.told(WorkersKept)] == (["in_use"] if again else [])
    assert len(play.pods()) == (2 if again else 1)
    assert play.cpu() == HEAD_CPU + len(play.pods()) * CORE
    play.clean()


def test_a_group_keeps_its_minimum_and_what_is_asked_for_explicitly() -> None:
    play = grown(0, minReplicas=2)
    play.scalers["auto"].idle_ms = 10**9
    play.tick(6 * MINUTE)
    assert len(play.pods()) == 2 and reasons(play) == []
    play.scalers["auto"].explicit = 3
    play.tick(6 * MINUTE)
    assert len(play.pods()) == 3 and reasons(play) == []
    play.clean()


def test_one_that_stalls_with_launches_open_gets_room_for_them_for_a_while() -> None:
    """Ray fails at every tick while more is on its way than ``maxReplicas`` allows: raising it lets it go on."""
    play = grown(2)
    scaler = play.scalers["auto"]
    scaler.stopped, scaler.trouble, scaler.launching = True, "stalled", 1
    play.tick(4)
    assert play.group()["maxReplicas"] == 3
    assert len(play.pods()) == 2, "nothing but Ray asks for more"
    scaler.stopped, scaler.trouble, scaler.launching = False, "", 0
    play.tick(6)
    assert play.group()["maxReplicas"] == 2 and play.cpu() == HEAD_CPU + 2 * CORE
    scaler.stopped, scaler.trouble, scaler.launching = True, "stalled", 1
    play.tick(8 * MINUTE)
    assert [event.tries for event in play.told(AlarmRaised)] == [1, 1, 2]
    assert play.group()["maxReplicas"] == 2 and play.cpu() == HEAD_CPU + 2 * CORE, "it did not help"
    play.clean()


def test_a_head_that_is_replaced_at_once_is_none_lost() -> None:
    play = grown(1)
    [head] = play.pods(node_type="head")
    play.call("DELETE", api.PODS, "ns", head["metadata"]["name"])
    play.tick(MINUTE)
    assert reasons(play) == []
    assert play.pods(node_type="head") != [head]
    play.clean()


def test_while_a_head_does_not_answer_nothing_is_granted_and_nothing_taken() -> None:
    play = grown(2)
    scaler = play.scalers["auto"]
    scaler.stopped = True
    scaler.start("more")
    play.tick(1)
    scaler.trouble = "unreachable"
    play.tick(2 * MINUTE)
    assert reasons(play) == ["unreachable"]
    assert play.cpu() == HEAD_CPU + 2 * CORE and len(play.pods()) == 2
    assert [event.removed for event in play.told(GrowthWithdrawn)] == [{"small": 1}]
    scaler.stopped, scaler.trouble = False, ""
    play.tick(4)
    assert reasons(play) == ["unreachable", ""] and len(play.pods()) == 3
    play.clean()


def test_a_cluster_that_goes_takes_its_alarm_with_it() -> None:
    play = grown(1)
    play.scalers["auto"].trouble = "stalled"
    play.tick(2)
    bridge = play.cell.seats["autoscaler_bridge"].state
    assert bridge.alarms and bridge.watched
    play.call("DELETE", api.RAYCLUSTERS, "ns", "auto")
    play.scalers.clear()
    play.cell.advance(120_000)
    assert not (bridge.alarms or bridge.watched or bridge.heads or bridge.head_of)
    assert not any(each.starting for each in bridge.jobs.values())
    assert play.told(GateSet)
    play.clean()


class Slow:
    """An autoscaler whose ticks take so many of the usual ones: it writes at the end what it read at the beginning."""

    def __init__(self, play: ElasticPlay, takes: int) -> None:
        self.play, self.takes, self.pace, self.number = play, takes, TickPace(), 0

    def tick(self, times: int = 1) -> None:
        scaler = self.play.scalers["auto"]
        for _ in range(times):
            most = self.play.group()["maxReplicas"]
            for step in range(self.takes):
                # Beyond what is granted by now nothing is written: policy muster-jobs.
                scaler.stopped = step < self.takes - 1 or self.play.group()["maxReplicas"] != most
                now = self.play.cluster.clock.now()
                self.pace.note(Ticks(self.number, 0), now)
                scaler.tick_ms = self.pace.tick_ms
                scaler.trouble = "stalled" if scaler.waiting and self.pace.late(now) else ""
                self.play.tick()
            self.number += 1


@pytest.mark.parametrize("takes", [8, 20, 60], ids=["40 s", "100 s", "5 min"])
def test_an_autoscaler_whose_ticks_take_long_is_waited_for(takes: int) -> None:
    """Ray's second version takes minutes for a tick where many hundreds wait (ray#57624)."""
    play = ElasticPlay(("ns", "24", "24"))
    scaler = play.create(raycluster(maxReplicas=30))
    slow = Slow(play, takes)
    slow.tick()
    for number in range(20):
        scaler.start(f"actor-{number}")
    slow.tick(5)
    assert len(play.pods()) == 20 and not scaler.waiting
    assert reasons(play) in ([], ["stalled", ""]), "the first time it is not known how long it takes"
    assert play.cpu() == HEAD_CPU + 20 * CORE
    slow.takes = 1
    slow.tick(MINUTE)
    assert scaler.tick_ms == 0
    scaler.stopped = True
    for number in range(9):
        scaler.start(f"late-{number}")
    play.tick(4 * MINUTE)
    assert reasons(play)[-1] == "not_growing" and play.cpu() == HEAD_CPU + 20 * CORE
    within_quota(play.cell.log)
    play.clean()
