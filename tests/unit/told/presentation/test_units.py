"""What QueueUnits, Events and PodGroups say of jobs that wait: what can never run comes first, the place last."""

from __future__ import annotations

import pytest

from kit import facts, nodes
from kit.packed import Packed, Shape
from kit.scenes import Scene, beginning
from muster.core.stage import Folder
from muster.model.workload import Wishes
from muster.told.presentation.desired import job_event, moved_up, nearly, overuse_event, queue_unit, run_elsewhere
from muster.told.presentation.kaigroups import pod_group
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.views.story import Story
from muster.told.wording.jobs import headline

NEVER = "asks for nvidia.com/gpu 9, and the largest of 2 nodes has 8"


class Reader:
    """Follows a bench, as the presenter follows a log."""

    def __init__(self) -> None:
        self.state, self._folder, self._read = ReadState(), Folder(ReadModel()), 0

    def follow(self, scene: Scene | Packed) -> ReadState:
        for stored in scene.bench.log[self._read :]:
            self._folder.fold(self.state, stored)
        self._read = len(scene.bench.log)
        return self.state

    def uid(self, name: str) -> str:
        return next(uid for uid, each in self.state.queues.workloads.items() if each.ref.name == name)

    def unit(self, name: str) -> str:
        unit = queue_unit(self.state, self.uid(name))
        return unit.status["message"] if unit is not None else ""


def test_what_no_node_can_run_is_said_first_while_quota_is_short() -> None:
    """KAI queues: 16 GPUs, 16 used. Today's only word was of the quota."""
    cluster, read = Packed([8, 8], {"b": 0, "a": 0}, kai=True), Reader()
    cluster.arrives("full", "a", Shape(2, 8))
    cluster.arrives("wide", "b", Shape(1, 9))
    state = read.follow(cluster)
    uid = read.uid("wide")
    event, group = job_event(state, uid), pod_group(state, uid)
    assert event is not None
    assert group is not None
    [condition] = group.status["schedulingConditions"]
    assert condition["reason"] == "PodSchedulingErrors"
    assert event.reason == "FitsNoNode"
    for text in (read.unit("wide"), event.message, condition["message"], cluster.told("wide")):
        assert NEVER in text.partition(". ")[0]
    assert "running jobs to complete" not in event.message


def test_a_larger_node_and_a_pool_of_larger_nodes_are_noticed() -> None:
    scene, read, unfit = beginning("node n cpu=2", "job full cpu=8"), Reader(), dict[str, None]()
    scene.lines("gang one head=4 workers=1x3", "gang two head=2 workers=1x2")
    run_elsewhere(read.follow(scene), unfit)
    assert [*unfit] == [read.uid("one")]
    assert "asks for cpu 4, and the largest of 1 node has 2" in read.unit("one")
    assert "largest of" not in read.unit("two")
    scene.lines("pool large max=2 cpu=4 memory=64")
    assert run_elsewhere(read.follow(scene), unfit) == [read.uid("one")]
    scene.lines("pools-gone")
    assert run_elsewhere(read.follow(scene), unfit) == [read.uid("one")]
    scene.lines("node m cpu=4")
    assert run_elsewhere(read.follow(scene), unfit) == [read.uid("one")]
    assert "largest of" not in read.unit("one")
    scene.lines("node m cpu=3")
    assert run_elsewhere(read.follow(scene), unfit) == [read.uid("one")]
    assert run_elsewhere(read.follow(scene), unfit) == []


def test_many_nodes_without_the_resource_cost_nothing() -> None:
    """A job of GPUs is held against nodes with GPUs only, however many others there are."""
    scene, read = beginning(), Reader()
    scene.bench.facts(*(nodes.node(f"cpu-{index}", cpu=64) for index in range(300)), nodes.node("gpu", cpu=64, gpu=8))
    scene.do(facts.seen(facts.job("one", gpu=4)))
    state = read.follow(scene)
    assert state.nodes.complete
    assert {name: len(uids) for name, uids in state.nodes.offering.items()}["nvidia.com/gpu"] == 1


def test_a_unit_says_about_where_the_job_is_and_is_written_again_at_few_moves() -> None:
    scene, read, steps = beginning("job first cpu=12 memory=1"), Reader(), dict[str, dict[str, int]]()
    scene.lines(*(f"job j{index} cpu=11 memory=1" for index in range(1, 25)))
    state = read.follow(scene)
    [queue] = state.queues.book.lines
    moved_up(state, queue, steps)
    names = [state.queues.workloads[place.uid].ref.name for place, _ in state.queues.book.in_order(queue)]
    said = [read.unit(name).rpartition("; position ")[2] for name in names]
    assert said[0] == f"1 in queue {queue}"
    assert said[1] == said[3] == f"2 to 4 in queue {queue}"
    assert said[4] == said[15] == f"5 to 16 in queue {queue}"
    scene.lines(f"gone {names[0]}")
    state = read.follow(scene)
    moved = [state.queues.workloads[uid].ref.name for uid in moved_up(state, queue, steps) if uid in state.queues.jobs]
    assert moved == [names[1], names[4], names[16]]
    assert read.unit(names[1]).endswith(f"position 1 in queue {queue}")
    assert [nearly(place) for place in (1, 2, 4, 5, 64, 65, 9000)] == [
        (1, 1), (2, 4), (2, 4), (5, 16), (17, 64), (65, 0), (65, 0)
    ]  # fmt: skip


def test_a_job_that_nobody_suspended_has_an_event_and_those_of_the_first_list_have_none() -> None:
    scene, read = Scene(), Reader()
    scene.lines("tree")
    scene.do(facts.seen(facts.job("old", cpu=1, suspended=False, phase="running")))
    scene.lines("synced")
    scene.do(facts.seen(facts.job("new", cpu=1, suspended=False, phase="running", created=scene.bench.now)))
    state = read.follow(scene)
    assert overuse_event(state, read.uid("old")) is None
    event = overuse_event(state, read.uid("new"))
    assert event is not None
    assert event.reason == "Adopted"
    assert "it was not suspended when it was first seen" in event.message


@pytest.mark.parametrize("by", ["", "dave"])
def test_who_started_a_job_by_hand_is_told_once(by: str) -> None:
    scene, read = beginning("job two", "job one"), Reader()
    hand = Wishes(by=by, reason="the demo is today") if by else Wishes()
    names = set()
    for phase in ("waiting", "starting", "running"):
        scene.change("one", suspended=False, phase=phase, wishes=hand)
        state = read.follow(scene)
        event = overuse_event(state, read.uid("one"))
        if event is not None:
            names.add(event.name)
            assert ("dave started it by hand (the demo" in event.message) == bool(by)
            assert ("another client started it" in event.message) == (not by)
    assert len(names) == 1


def test_the_word_of_a_kind_for_the_end_is_said_where_it_says_more() -> None:
    scene = beginning("job one", "resumed one", "cluster one", "runs one")
    for detail, told in (("Failed", "It failed. "), ("BackoffLimitExceeded", "It failed (BackoffLimitExceeded: ")):
        scene.change("one", phase="finished", outcome="failed", detail=detail)
        story = Story("video/one")
        for stored in scene.bench.log:
            story.feed(stored)
        assert story.of("video/one").standing.text.startswith(told)


def test_a_headline_is_a_short_sentence_and_jobs_that_wait_for_the_same_read_alike() -> None:
    cluster, read = Packed([8, 8], {"b": 0, "a": 0}, kai=False), Reader()
    cluster.arrives("full", "a", Shape(2, 8))
    for name in ("one", "two"):
        cluster.arrives(name, "b", Shape(1, 4))
    state = read.follow(cluster)
    lines = {name: headline(job_status(state, read.uid(name))) for name in ("one", "two")}
    assert set(lines.values()) == {"All 16 GPUs are in use; it needs 4"}
