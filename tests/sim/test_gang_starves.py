"""A gang that others are let in before for 20 minutes says so where its owner looks: real runners, virtual time.

From the pods on the simulated API server to the Events and conditions that the presenter writes there.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kit.podgangs import SIGS
from kit.shell import NODES, Cell, play
from muster.core.gang.podunits import STARVED_MS
from muster.events.gangs import GangHeldBack
from muster.model import api

LATE_S = 30.0
"""How long anything may take to be seen, written and read."""


def member(gang: str, index: int) -> dict[str, Any]:
    labels = {f"{SIGS}/name": gang, f"{SIGS}/min-available": str(len(NODES))}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "12"}}}
    return {
        "metadata": {"name": f"{gang}-{index}", "namespace": "default", "labels": labels},
        "spec": {"schedulerName": "muster", "containers": [container]},
    }


def create(cell: Cell, *gangs: str) -> None:
    """One pod for each node and gang, in turn; it leaves room there for none of another gang."""
    for index in range(len(NODES)):
        for gang in gangs:
            cell.request("POST", api.PODS, "default", body=member(gang, index))


def pods(cell: Cell) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in cell.request("GET", api.PODS, "default")["items"]}


def bound(cell: Cell) -> set[str]:
    return {name.partition("-")[0] for name, each in pods(cell).items() if each["spec"].get("nodeName")}


def told(cell: Cell, reason: str) -> dict[str, str]:
    """{pod: message} of the Events for that reason."""
    found = cell.request("GET", api.EVENTS, "default")["items"]
    return {each["involvedObject"]["name"]: each["message"] for each in found if each["reason"] == reason}


def condition(cell: Cell, name: str) -> dict[str, Any]:
    found = [each for each in pods(cell)[name]["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert len(found) == 1
    return dict(found[0])


async def blocked(cell: Cell) -> None:
    waits = {f"waits-{index}" for index in range(len(NODES))}
    create(cell, "first", "waits")
    await cell.until(lambda: bound(cell) == {"first"}, LATE_S, "one gang to be bound")
    since = asyncio.get_running_loop().time()
    await cell.until(lambda: told(cell, "GangFailedScheduling").keys() == waits, LATE_S, "the other to be told")
    assert all("rejected by podgroup default/first" in each for each in told(cell, "GangFailedScheduling").values())
    await asyncio.sleep(STARVED_MS / 1000 - 2 * LATE_S)
    assert told(cell, "GangStarved") == {}, "it is not starving yet"
    await cell.until(lambda: told(cell, "GangStarved").keys() == waits, 4 * LATE_S, "every pod of it to be told")
    assert asyncio.get_running_loop().time() - since >= STARVED_MS / 1000 - LATE_S
    for name, message in told(cell, "GangStarved").items():
        assert message.startswith(f"{name} "), message
        assert "20 minutes (default/first)" in message, message
        assert condition(cell, name)["reason"] == "Unschedulable"
        assert condition(cell, name)["message"].endswith("; rejected by podgroup default/first")
    for index in range(len(NODES)):
        cell.request("DELETE", api.PODS, "default", f"first-{index}", query={"gracePeriodSeconds": "0"})
    await cell.until(lambda: bound(cell) == {"waits"}, LATE_S, "its turn to come")
    assert condition(cell, "waits-0")["status"] == "True"


def test_a_gang_that_starves_says_so_after_20_minutes_and_names_the_blocker() -> None:
    cell = Cell()
    play(cell, blocked)
    events = [
        (event, stored.commit.at)
        for stored in cell.commits()
        for event in stored.commit.events
        if isinstance(event, GangHeldBack) and event.gang == "default/waits"
    ]
    starved = [(event, at) for event, at in events if event.reason == "starved"]
    assert starved, "the log says so"
    assert starved[0][0].by == "default/first"
    assert STARVED_MS <= starved[0][1] - events[0][1] <= STARVED_MS + 60_000
