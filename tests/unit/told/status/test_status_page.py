"""The page of codes is complete, and says of each in which states it may be."""

from random import Random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.chaos import Chaos
from kit.depth import examples
from kit.standings import SCENES
from muster.core.stage import Folder
from muster.told.codes.codetable import CODES
from muster.told.codes.values import Phase, Short
from muster.told.presentation.desired import job_event
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.views.story import Story
from muster.told.wording.meanings import MEANINGS


def test_every_phase_has_a_code() -> None:
    assert {phase for row in CODES.values() for phase in row.phases} == set(get_args(Phase))


def test_what_needs_nothing_is_not_red() -> None:
    for code, row in CODES.items():
        assert not (row.tone == "act" and MEANINGS[code].do.startswith("Nothing")), code
    assert {code for code in ("WaitingForClaim", "Reclaimed", "Preempted") if CODES[code].tone == "act"} == set()


def test_refusals_of_a_limit_give_an_event_and_name_the_jobs_that_hold_it() -> None:
    for code, row in CODES.items():
        if row.values is Short:
            assert row.event == "while", code
            assert (row.holders != "none") == (row.lasts != "final"), code


@pytest.mark.parametrize("code", ["InsufficientRuntimeQuota", "BehindHead", "QuotaHeld", "WaitingForClaim"])
def test_a_wait_gives_an_event_and_why_names_the_jobs_that_hold_what_it_waits_for(code: str) -> None:
    scene, job = SCENES[code]()
    folder, state, story = Folder(ReadModel()), ReadState(), Story(job)
    for stored in scene.bench.log:
        folder.fold(state, stored)
        story.feed(stored)
    uid = scene.jobs[job].ref.uid
    note, short = job_event(state, uid), job_status(state, uid).short
    assert note is not None
    assert note.reason == code
    wanting = story.of(job).standing.wanting
    named = wanting is not None and bool(wanting.holders)
    assert named == (short is not None and short.refusal.used > 0)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32))
def test_a_code_is_only_met_in_the_states_the_page_says(seed: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run(steps=120)
    model = ReadModel()
    folder, state = Folder(model), model.initial()
    for stored in chaos.bench.log:
        folder.fold(state, stored)
        for uid in state.records if stored.seq % 7 == 0 else ():
            status = job_status(state, uid)
            assert status.phase in CODES[status.code].phases, status
