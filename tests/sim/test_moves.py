"""Running work is moved on a simulated cluster: what the API server says of the pods counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kit.consolidating import Consolidating
from kit.disorder import Disorder
from kit.elastic import kai_queue
from kit.histories import worth
from muster.events.decisions import GangAdmitted, GangDeferred
from muster.events.effects import EffectFailed
from muster.events.gangs import NodesClaimed, PodsReleased
from muster.model.quota import WIDTHS_TO_AGE

WILD = Disorder(late=0.4, crash=0.03, unseen=0.2, repeat=0.1, lost_answer=0.3, outage=0.2)


def shares_on_two_nodes() -> Consolidating:
    """A share on a GPU of each node, the other GPU of each is free."""
    play = Consolidating(nodes=2)
    for name in ("first", "gone", "second"):
        play.submit(name, 1, share="0.75")
    play.delete("gone")
    play.cell.advance(10_000)
    assert (play.nodes_of("first"), play.nodes_of("second")) == (["n0"], ["n1"])
    return play


def kept_on_while(play: Consolidating, what: Callable[[], None]) -> None:
    """The pods that keep devices go a minute later than those they kept them for."""
    play.stick(stuck=True)
    what()
    play.stick(stuck=False)
    play.cell.advance(10_000)


def deferred_after(play: Consolidating, name: str) -> list[GangDeferred]:
    """How often it found no place since anybody was ordered to leave."""
    found = list[GangDeferred]()
    for event in play.told(GangDeferred, *play.orders()):
        if isinstance(event, play.orders()):
            found = []
        elif event.ref.name == name:
            found.append(event)
    return found


def test_a_device_that_is_still_kept_for_who_left_is_waited_for() -> None:
    """The last share is gone; the pod that keeps its device goes a moment later."""
    play = shares_on_two_nodes()
    kept_on_while(play, lambda: play.submit("big", 1, "team-b", gpus=2, wait_ms=60_000))
    assert len(play.moved()) == 1
    assert not deferred_after(play, "big")
    assert play.running("first", "second", "big")
    assert len(play.told(GangAdmitted)) == 5, "three, one again, and the big one"
    play.at_rest()
    play.sound()


def test_who_moves_onto_a_device_that_it_had_itself_waits_for_it_too() -> None:
    play = Consolidating(nodes=2)
    play.submit("gone", 4)
    play.submit("gang", 4, share="0.75", count=2)
    play.delete("gone")
    play.cell.advance(10_000)
    assert play.nodes_of("gang") == ["n0", "n1"]
    kept_on_while(play, lambda: play.submit("big", 8, "team-b", wait_ms=60_000))
    assert play.moved() == [("gang", "big")]
    assert not deferred_after(play, "gang")
    play.cell.advance(60_000)
    [place], [big] = {*play.nodes_of("gang")}, play.nodes_of("big")
    assert play.nodes_of("gang") == [place, place]
    assert place != big
    play.at_rest()
    play.sound()


def test_so_it_is_where_work_gives_way_to_a_higher_priority() -> None:
    play = Consolidating(nodes=1)
    play.submit("low", 8, share="0.75")
    kept_on_while(play, lambda: play.submit("high", 8, priority="build", gpus=2, wait_ms=60_000))
    assert not deferred_after(play, "high")
    assert play.running("high")
    play.at_rest()
    play.sound()


def test_so_it_is_where_a_queue_takes_back_its_quota() -> None:
    play = Consolidating(nodes=1, queues=[kai_queue("team-a", 0), kai_queue("team-b", 8)])
    play.submit("low", 8, share="0.75")
    kept_on_while(play, lambda: play.submit("owner", 8, "team-b", gpus=2, wait_ms=60_000))
    assert not deferred_after(play, "owner")
    assert play.running("owner")
    play.at_rest()
    play.sound()


def test_a_device_that_stays_kept_is_waited_for_five_minutes() -> None:
    """Then the job says that it has no place, and gives its quota back."""
    play = Consolidating(nodes=1)
    play.submit("low", 8, share="0.75")
    play.cluster.server.denied = frozenset({("delete", "", "pods")})
    play.submit("high", 8, priority="build", gpus=2, wait_ms=60_000)
    assert not deferred_after(play, "high")
    play.cell.advance(5 * 60_000)
    assert deferred_after(play, "high")


def test_a_share_beside_all_the_cores_of_a_node_is_placed_once() -> None:
    """The pod that keeps its device asks for nothing but that: else there is no room for it, and no end to trying."""
    play = Consolidating(nodes=2)
    play.submit("all", 8, share="0.5", wait_ms=60_000)
    assert play.running("all")
    assert not play.told(PodsReleased)
    assert not play.told(EffectFailed)
    play.sound()


def test_pods_that_are_placed_by_us_are_known_to_be_of_their_job() -> None:
    """They leave with it in every plan; no budget, no minimum run time and no quota stands in the way here."""
    play = Consolidating(nodes=2, queues=[kai_queue("team-a", 16, preemptMinRuntime="1m"), kai_queue("team-b", 16)])
    play.submit("low", 5)
    play.submit("other", 5, priority="build")
    play.submit("high", 6, priority="build", wait_ms=30_000)
    assert not play.running("high")
    play.cell.advance(60_000)
    assert play.nodes_of("high") == ["n0"]
    assert play.running("other")
    play.at_rest()
    play.sound()


def test_who_has_claimed_nodes_takes_the_room_that_others_left_for_it() -> None:
    """What is cleared for it is kept from everybody else, and not from itself."""
    queues = [kai_queue("team-a", 16, preemptMinRuntime="10m"), kai_queue("team-b", 16)]
    play = Consolidating(nodes=2, queues=queues)
    play.submit("low", 5)
    play.submit("other", 5, priority="build")
    play.submit("high", 6, priority="build")
    for number in range(2 * WIDTHS_TO_AGE):
        assert not play.told(NodesClaimed)
        play.submit(f"small-{number}", 3, runtime="5s", wait_ms=20_000)
    assert play.told(NodesClaimed)
    play.cell.advance(10 * 60_000)
    assert play.nodes_of("high") == ["n0"]
    assert not deferred_after(play, "high")
    play.sound()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_people_and_machines_do_nobody_is_moved_in_vain_or_lost(seed: int) -> None:
    play = Consolidating(seed, WILD if seed % 2 else None, nodes=6)
    play.play()
    play.peace()
    play.at_rest()
    play.sound()


def test_the_histories_are_worth_something() -> None:
    def happened(seed: int) -> list[str]:
        play = Consolidating(seed, nodes=6)
        play.play()
        return ["moved"] * len(play.moved())

    worth(map(happened, range(100, 108)), moved=4)
