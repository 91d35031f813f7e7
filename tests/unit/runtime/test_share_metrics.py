"""Fair shares as metrics: every queue and resource, in cores, bytes and devices."""

from __future__ import annotations

from kit import nodes
from kit.bench import Bench
from kit.facts import seen, tree
from kit.kai import queue, work
from kit.scenario import Play
from muster.core.stage import Folder
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.views.measures import measures, queue_share, queues_named, share_measures

GPU = "nvidia.com/gpu"


def bench() -> Bench:
    found = Bench()
    teams = (queue("a", gpu=(2, -1, 3)), queue("b", gpu=(0, -1, 1)))
    found.facts(nodes.node("n1", cpu=64, memory=256, gpu=8), tree(), *teams)
    found.synced()
    found.settle()
    found.facts(seen(work("one", "a", gpu=2)), seen(work("two", "b", gpu=6)), seen(work("three", "a", gpu=8)))
    found.settle()
    return found


def view(found: Bench) -> ReadState:
    model = ReadModel()
    folder, state = Folder(model), model.initial()
    for stored in found.log:
        folder.fold(state, stored)
    return state


def test_each_queue_and_resource_has_its_gauges() -> None:
    made = bench()
    ledger = made.states["quota_accountant"].ledger
    found = {(name, dict(key)["queue"], dict(key)["resource"]): value for name, key, value in share_measures(ledger)}
    known = view(made)
    found |= {
        (name, dict(key).get("queue"), dict(key).get("resource")): value
        for name, key, value in measures(known, known.now)
    }
    assert found["muster_queue_fair_share", "kai/a", GPU] == 7
    assert found["muster_queue_fair_share", "kai/b", GPU] == 1
    assert found["muster_queue_used", "kai/b", GPU] == 6
    assert found["muster_queue_asked", "kai/a", GPU] == 10
    assert found["muster_queue_keeps", "kai/a", GPU] == 7
    assert ("muster_queue_keeps", "kai/a", "cpu") not in found, "unlimited"


def test_a_queue_tells_why_its_share_is_what_it_is() -> None:
    state = view(bench())
    assert queues_named(state, "a") == ["kai/a"]
    assert queues_named(state, "video") == ["root/algorithm/video"]
    share = queue_share(state, "kai/a")
    row = next(each for each in share.rows if each.resource == GPU)
    assert (row.share, row.uses, row.asks, row.quota, row.keeps, row.parent) == ("7", "2", "10", "2", "7", "8")
    assert "its quota of 2" in row.why
    assert "75 %" in row.why
    assert "b 1 of nvidia.com/gpu" in share.siblings
    video = queue_share(state, "root/algorithm/video")
    assert {each.resource: each.why for each in video.rows}["cpu"] == "min 12, max 14"


def test_a_queue_of_a_tree_says_what_it_asks_for_with_those_that_wait() -> None:
    play = Play()
    for line in ("tree", "synced", "job one", "job two"):
        play.line(line)
        play.settle()
    rows = {each.resource: each for each in queue_share(view(play.bench), "root/algorithm/video").rows}
    assert (rows["cpu"].uses, rows["cpu"].asks) == ("12", "24")
