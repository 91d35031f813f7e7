"""Replays: the first decision that differs is told with the state after both; one decision can be stepped."""

import subprocess
import sys

import msgspec
import pytest

from kit.bench import Bench
from kit.scenario import Play
from muster.core.cell.deciders import DECIDERS
from muster.core.stage import Folder
from muster.events.decisions import QuotaReserved
from muster.events.envelope import Stored
from muster.runtime.replaying.replay import SILENCE_MS, Replayer, replay
from muster.runtime.replaying.states import about, copy_of, differences, plain
from muster.runtime.replaying.stepping import Stepper

LINES = (
    "tree", "synced", "job two", "job one", "resumed two", "cluster two", "pod two 0", "runs two", "time +60s",
    "job three prio=5 cpu=2", "finishes two", "cluster-gone two", "pod-gone two 0",
)  # fmt: skip


@pytest.fixture(scope="module")
def log() -> list[Stored]:
    scene = Play()
    for line in LINES:
        scene.line(line)
        scene.settle()
    return scene.bench.log


def tampered(log: list[Stored], index: int, **changes: object) -> list[Stored]:
    """The log with one reservation recorded otherwise than it was decided; returns it up to there."""
    stored = log[index]
    events = tuple(
        msgspec.structs.replace(event, **changes) if isinstance(event, QuotaReserved) else event
        for event in stored.commit.events
    )
    return [*log[:index], Stored(stored.seq, msgspec.structs.replace(stored.commit, events=events))]


def first_reservation(log: list[Stored]) -> int:
    return next(i for i, each in enumerate(log) if any(isinstance(e, QuotaReserved) for e in each.commit.events))


def test_what_was_recorded_is_decided_again(log):
    report = replay(log)
    assert (report.commits, report.divergences, report.violations) == (len(log), [], [])
    assert report.decisions == sum(each.commit.kind == "decision" for each in log)


def test_the_first_divergence_tells_both_decisions_and_the_state_that_differs(log):
    index = first_reservation(log)
    report = replay(tampered(log, index, request={"cpu": 1000}))
    (found,) = report.divergences
    assert (found.stage, found.seq) == ("quota_accountant", log[index].seq)
    one, other = (msgspec.json.decode(text) for text in found.first_difference())
    assert (one["request"], other["request"]["cpu"]) == ({"cpu": 1000}, 12_000)
    paths = {each.path: (each.one, each.other) for each in found.state}
    assert paths["ledger.used.root/algorithm/video.cpu"] == (1000, 12_000)
    assert all(one != other for one, other in paths.values())


def test_what_lies_before_a_position_is_folded_and_not_judged(log):
    index = first_reservation(log)
    broken = [*tampered(log, index, request={"cpu": 1000})]
    replayer = Replayer()
    for stored in broken:
        replayer.feed(stored, judged=stored.seq > log[index].seq)
    assert replayer.finish().divergences == []
    assert replayer.states["quota_accountant"].seq == log[index].seq


def held_up(ms: int, *, others_first: bool = False, never: bool = False) -> list[Stored]:
    """The sorter decides about a job so long after it was observed, or never; meanwhile another job appears.

    ``others_first``: what it decided is stored behind a commit that it had not folded yet.
    """
    scene = Play()
    for line in ("tree", "synced"):
        scene.line(line)
        scene.settle()
    scene.line("job one")
    bench = scene.bench
    looked_at = len(bench.log)
    due = bench.seats["queue_sorter"].decisions()
    if others_first:
        bench.now += ms
        scene.line("job two cpu=2")
    elif not never:
        bench.now += ms
    if not never:
        bench.append("queue_sorter", "decision", due, in_seq=looked_at)
        scene.settle()
    bench.now += ms
    scene.line("job three cpu=2")
    scene.settle()
    return bench.log


@pytest.mark.parametrize("others_first", [False, True])
def test_who_decides_late_was_not_silent(others_first):
    report = replay(held_up(10 * SILENCE_MS, others_first=others_first))
    assert report.divergences == []
    assert report.silences > 0, "what was quiet behind it is decided at"


def test_who_says_nothing_for_long_where_something_was_due_diverges():
    (found,) = replay(held_up(SILENCE_MS + 1, never=True)).divergences
    assert (found.stage, found.recorded) == ("queue_sorter", [])
    assert "workload_queued" in found.decided[0]
    assert replay(held_up(SILENCE_MS, never=True)).divergences == [], "it may have been held up"


@pytest.mark.parametrize("name", DECIDERS)
def test_a_step_shows_what_led_to_every_decision(log, name):
    stage = DECIDERS[name]()
    folder, states = Folder(stage), [stage.initial()]
    for stored in log:
        state = copy_of(states[-1])
        folder.fold(state, stored)
        states.append(state)
    for upto in range(1, len(log) + 1):
        stepper = Stepper(name)
        for stored in log[:upto]:
            stepper.feed(stored)
        step, commit = stepper.step(), log[upto - 1].commit
        own = commit.stage == name and commit.kind == "decision"
        assert step.in_seq == (commit.in_seq if own else upto)
        assert step.state == states[step.in_seq]
        assert step.changed == differences(states[step.before], states[step.in_seq], limit=500)
        assert [each.seq for each in step.folded] == list(range(step.before + 1, step.in_seq + 1))
        assert step.same
        assert (step.recorded == list(commit.events)) if own else step.recorded is None
        assert step.decided == stage.decide(states[step.in_seq])


def test_a_step_tells_where_it_decides_otherwise(log):
    index = first_reservation(log)
    stepper = Stepper("quota_accountant")
    for stored in tampered(log, index, attempt=7):
        stepper.feed(stored)
    step = stepper.step()
    assert not step.same
    assert {each.path.rpartition(".")[2]: (each.one, each.other) for each in step.differs}["attempt"] == (7, 1)


def test_an_order_that_differs_is_a_difference():
    bench = Bench()
    one = bench.states["queue_sorter"]
    other = copy_of(one)
    one.required = {"pods": None, "nodes": None}
    other.required = {"nodes": None, "pods": None}
    (found,) = differences(one, other)
    assert (found.path, found.one, found.other) == ("required (order)", ["pods", "nodes"], ["nodes", "pods"])


def test_the_part_of_a_state_about_a_job(log):
    replayer = Replayer(stages=("quota_accountant",))
    for stored in log:
        replayer.feed(stored)
    replayer.finish()
    state = plain(replayer.states["quota_accountant"])
    found = about(state, ["uid-video-one"])
    assert found["entries"] == {"uid-video-one": state["entries"]["uid-video-one"]}
    assert about(state, ["uid-of-nobody"]) is None


@pytest.mark.parametrize(
    ("module", "banned"),
    [
        ("muster.runtime.replaying.replay", ("muster.kube", "muster.bus", "kubernetes_asyncio", "nats", "socket")),
        ("muster.runtime.replaying.stepping", ("muster.kube", "muster.bus", "kubernetes_asyncio", "nats", "socket")),
        ("muster_cli.commands.replay", ("muster.kube", "kubernetes_asyncio", "muster.core.actuation.intents")),
        ("muster_cli.commands.debug", ("muster.kube", "kubernetes_asyncio", "muster.core.actuation.intents")),
    ],
)
def test_a_replay_has_no_way_to_a_cluster(module, banned):
    """Whatever it imports, all the way down, holds no transport; reading a running log takes the bus, and no more."""
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded
    assert [name for name in loaded if name in banned or name.startswith(tuple(f"{each}." for each in banned))] == []
