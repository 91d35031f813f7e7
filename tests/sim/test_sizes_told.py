"""What is decided about the size of a running Ray cluster is seen with kubectl alone: an Event for each change, and the
message of the QueueUnit.
"""

from __future__ import annotations

import re
from typing import Any

from kit.elastic import ElasticPlay, raycluster, tree
from kit.rayservices import IMAGE, ServicePlay
from muster.core.stage import Folder
from muster.events.base import Event
from muster.events.decisions import SuspensionOrdered
from muster.model import api
from muster.told.presentation import desired
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState


class Shown:
    """The Events on one job and the message of its QueueUnit, after each commit of a log."""

    def __init__(self, log: list[Any], kind: str) -> None:
        self.events: list[tuple[str, str, str]] = []
        self.messages: list[str] = []
        state, folder, names = ReadState(), Folder(ReadModel()), set[str]()
        for stored in log:
            folder.fold(state, stored)
            uids = [uid for uid, workload in state.queues.workloads.items() if workload.ref.kind == kind]
            for uid in uids:
                for note in (desired.size_event(state, uid), desired.overuse_event(state, uid)):
                    if note is not None and note.name not in names:
                        names.add(note.name)
                        self.events.append((note.type, note.reason, note.message))
                unit = desired.unit_state(state, uid)
                if unit is not None and self.messages[-1:] != [unit.reason.text]:
                    self.messages.append(unit.reason.text)

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]


def test_an_upgrade_that_waits_and_starts() -> None:
    play = ServicePlay()
    play.create(replicas=5)
    play.cell.advance(20_000)
    play.edit(IMAGE, "ray:new")
    play.cell.advance(60_000)
    shown = Shown(play.cell.log, "RayService")
    [(kind, reason, message)] = shown.events
    wanted = "its upgrade waits for cpu in quota root/ns: request 6, max 10, used 6; the old cluster serves on"
    assert (kind, reason, message) == ("Warning", "UpgradeWaits", wanted)
    assert shown.messages[-1].endswith(f"; {wanted}")
    stored = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    stored["spec"] = tree(("ns", "20", "20"))["spec"]
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", stored)
    play.cell.advance(120_000)
    shown = Shown(play.cell.log, "RayService")
    assert shown.reasons == ["UpgradeWaits", "UpgradeStarts"]
    assert wanted not in shown.messages[-1]


def test_growth_that_is_denied_and_granted() -> None:
    play = ElasticPlay(("ns", "2500m", "2500m"))
    scaler = play.create(raycluster())
    for number in range(3):
        scaler.start(f"actor-{number}")
    play.tick(4)
    shown = Shown(play.cell.log, "RayCluster")
    assert shown.reasons == ["GrowthGranted", "GrowthDenied"]
    assert "RayCluster ns/auto cannot grow by 1 of group " in shown.events[-1][2]
    assert "cpu in quota root/ns: request 1, max 2500m, used 2500m" in shown.messages[-1]


def test_coming_overuse_has_an_event_and_the_released_workers_too() -> None:
    play = ElasticPlay(("ns", "3", "3"))
    stored = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    stored["metadata"]["annotations"]["muster.dev/overuse-timeout"] = "1m"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", stored)
    made = raycluster(replicas=2)
    made["spec"]["enableInTreeAutoscaling"] = False
    play.create(made).stopped = True
    play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 5}])
    play.cell.advance(3_000)
    coming = Shown(play.cell.log, "RayCluster")
    assert {*coming.reasons} == {"BeyondGrant"}
    assert re.search(r"While quota root/ns is above its max, the excess is taken back at \S+Z", coming.events[-1][2])
    play.cell.advance(70_000)
    gone = Shown(play.cell.log, "RayCluster")
    assert gone.reasons[len(coming.reasons) :][0] == "WorkersReleased"
    assert gone.events[len(coming.reasons)][2] == (
        "releases workers: cpu 2 runs beyond its grant and quota root/ns is above its max; the rest runs on"
    )
    told: list[type[Event]] = [SuspensionOrdered]
    assert not [event for stored in play.cell.log for event in stored.commit.events if type(event) in told]
