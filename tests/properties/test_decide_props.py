"""``muster decide`` on random states: nothing is given twice, gangs are whole, the order of the file means nothing, and
the state that it leads to is one in which nothing more happens.
"""

from __future__ import annotations

import json
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kit import states
from muster.simulation.decide.answer import Answer
from muster.simulation.decide.reading import read_state
from muster.simulation.decide.run import decide


def answer(state: states.State) -> Answer:
    return decide(read_state(json.dumps(state), "state"))


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_nothing_is_given_twice_and_gangs_are_whole(seed: int) -> None:
    state = states.state(Random(seed))
    assert states.wrong(state, answer(state)) == []


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_the_order_of_the_file_means_nothing(seed: int) -> None:
    rng = Random(seed)
    state = states.state(rng)
    assert states.told(answer(states.shuffled(state, rng))) == states.told(answer(state))


def test_the_states_are_worth_something() -> None:
    found = [answer(states.state(Random(seed))) for seed in range(60)]
    assert sum(len(each.admitted) for each in found) > 60
    assert sum(len(each.evicted) for each in found) > 10
    assert sum(len(each.moved) for each in found) > 1
