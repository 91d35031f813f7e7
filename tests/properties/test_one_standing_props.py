"""Every reader says the same of a job, at any position of any history; its phases follow each other as they may."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import gangscenes
from kit.chaos import Chaos
from kit.depth import examples
from kit.scenario import Play
from kit.standings import SCENES
from muster.core.stage import Folder
from muster.events.decisions import WorkloadQueued
from muster.model.keys import Ref
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state
from muster.serving.board import board_of
from muster.serving.joblist import job_rows
from muster.told.codes.codetable import JobCode
from muster.told.codes.values import GangCode
from muster.told.presentation import desired
from muster.told.presentation.gangnotes import gang_events
from muster.told.readmodel.jobfolds import phase_of
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import gang_status, job_status
from muster.told.views.gangstory import gang_tale
from muster.told.views.story import Story, standing_of
from muster.told.wording import jobs
from muster_cli.levers import standing_line

SETTINGS = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**32)
SHOWN_AS = {
    "Finished": ("Succeed", "Failed"),
    "FinishedStillCharged": ("Succeed", "Failed"),
    "Reserved": ("Admitted",),
    "Starting": ("Admitted",),
    "BeingTried": ("Queued",),
    "Seen": ("Queued",),
}
"""Words of kube-queue for what we tell apart; its phases tell some of it apart again."""


def readers_agree(state: ReadState) -> set[str]:
    """All of them, of every job there is or was, and of every gang of pods; returns the codes that were met."""
    met: set[str] = set()
    listed = {row.uid: row for row in job_rows(state, state.now)}
    heads = {node.head.job: node.head.code for node in board_of(state).nodes if node.head is not None}
    for uid, record in state.records.items():
        status = job_status(state, uid)
        assert phase_of(state, uid) == status.phase
        story = Story(record.ref.key, record.ref.kind, state).of(record.ref.key)
        if story.ref.uid == uid:
            assert story.standing.code == status.code
        assert standing_of(state, uid, state.now).code == status.code
        assert (listed[uid].code, listed[uid].phase) == (status.code, status.phase)
        assert jobs.reason(status).text
        assert standing_line(state, uid) == jobs.line(status)
        unit = desired.unit_state(state, uid)
        if unit is not None:
            shown = unit.reason.code
            assert shown in (
                status.code,
                *SHOWN_AS.get(status.code, ()),
                *((status.pods.code,) if status.pods else ()),
            ), status
        event = desired.job_event(state, uid)
        assert event is None or event.reason == status.code
        if record.ref.key in heads and status.line.position == 1:
            assert heads[record.ref.key] == status.code
        if status.short is not None:
            assert status.short.refusal.missing > 0, status
        met |= {status.code, job_status(state, uid, acting=False).code}
    for key, record in state.gang_records.items():
        gang = state.gangs.gangs.get(key)
        found = gang_status(gang)
        newest = next(each for each, other in reversed(state.gang_records.items()) if other.name == record.name)
        assert gang_tale(state, record.name).code == gang_status(state.gangs.gangs.get(newest)).code
        if found.held is not None:
            told = {each.note.reason for each in gang_events(state, key)} - {"GangMarkIgnored"}
            assert told <= {found.code}
        met.add(found.code)
    return met


@SETTINGS
@given(SEEDS, st.lists(st.integers(0, 10_000), min_size=1, max_size=6))
def test_all_readers_say_the_same_at_any_position(seed: int, cuts: list[int]) -> None:
    chaos = Chaos(Random(seed))
    chaos.run(steps=200)
    model = ReadModel()
    folder, state, whole = Folder(model), model.initial(), model.initial()
    looked = {cut % len(chaos.bench.log) for cut in cuts}
    for stored in chaos.bench.log:
        folder.fold(state, stored)
        folder.fold(whole, stored)
        if stored.seq in looked:
            readers_agree(state)
            state = decode_state(encode_state(state), ReadState)
    readers_agree(state)
    assert model.check(state) == []
    assert encode_state(whole) == encode_state(state), "it goes on from a snapshot as if there were none"
    assert any(isinstance(event, WorkloadQueued) for stored in chaos.bench.log for event in stored.commit.events)
    assert all(isinstance(record.ref, Ref) for record in state.records.values())


def fold(scene: Play) -> list[ReadState]:
    """The read model after every commit of a play; each a state of its own."""
    folder, state, found = Folder(ReadModel()), ReadState(), []
    for stored in scene.bench.log:
        folder.fold(state, stored)
        found.append(decode_state(encode_state(state), ReadState))
    return found


def goes_on(scene: Play, rng: Random) -> None:
    """A few things that may happen in any cell."""
    for number in range(rng.randrange(5)):
        waiting = [name for name, job in scene.jobs.items() if job.suspended and job.phase == "waiting"]
        line = rng.choice(("time", "job", "edit", "gone", "tree", "full"))
        if line == "time":
            scene.line(f"time +{rng.choice((1, 30, 700, 4_000))}s")
        elif line == "job":
            scene.line(f"job {rng.choice(('video', 'text', 'nowhere'))}/new-{number} cpu={rng.choice((1, 4, 12))}")
        elif line == "edit" and waiting:
            scene.line(f"edit {rng.choice(waiting)} cpu={rng.choice((1, 7, 13))}")
        elif line == "gone" and waiting:
            scene.line(f"gone {rng.choice(waiting)}")
        elif line == "tree":
            scene.line(rng.choice(("tree", "tree none")))
        elif line == "full" and rng.random() < 0.2:
            scene.line("log-nearly-full")
        scene.settle()


@pytest.mark.parametrize("name", SCENES)
@settings(max_examples=4, deadline=None)
@given(SEEDS)
def test_all_readers_say_the_same_wherever_a_scene_goes_on(name: str, seed: int) -> None:
    rng, (scene, _) = Random(seed), SCENES[name]()
    goes_on(scene, rng)
    states = fold(scene)
    for state in rng.sample(states, min(4, len(states))):
        readers_agree(state)


def test_every_code_is_asked_of_all_readers() -> None:
    """Each code of docs/reference/status.md, and each that a gang of pods may have."""
    met: set[str] = set()
    for make in SCENES.values():
        scene, _ = make()
        met |= readers_agree(fold(scene)[-1])
    assert set(get_args(JobCode)) - met == set()
    for gang in (*gangscenes.HELD.values(), *(partial(gangscenes.standing, code) for code in GANGS_AT_EASE)):
        play, _ = gang()
        met |= readers_agree(fold(play)[-1])
    assert set(get_args(GangCode)) - met == set()


GANGS_AT_EASE = (
    "Waiting",
    "OtherScheduler",
    "KubeScheduler",
    "Gone",
    "Starting",
    "Bound",
    "Running",
    "Finished",
    "Failed",
)
