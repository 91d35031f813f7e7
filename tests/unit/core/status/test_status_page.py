"""The page of codes is complete, and says of each in which states it may be."""

from random import Random
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.chaos import Chaos
from muster.core.presentation import desired
from muster.core.readmodel.model import ReadModel
from muster.core.stage import Folder
from muster.core.status.job import job_status
from muster.core.status.values import JobCode, Phase
from muster.core.wording import jobs
from muster.core.wording.statuses import MEANINGS


def test_every_code_has_a_row_and_words() -> None:
    codes = set(get_args(JobCode))
    assert codes == MEANINGS.keys() == jobs._REASONS.keys()
    assert codes >= set(desired.TOLD)
    assert {phase for row in MEANINGS.values() for phase in row.phases} == set(get_args(Phase))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_a_code_is_only_met_in_the_states_the_page_says(seed: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run(steps=120)
    model = ReadModel()
    folder, state = Folder(model), model.initial()
    for stored in chaos.bench.log:
        folder.fold(state, stored.seq, stored.commit)
        for uid in state.records if stored.seq % 7 == 0 else ():
            status = job_status(state, uid)
            assert status.phase in MEANINGS[status.code].phases, status
