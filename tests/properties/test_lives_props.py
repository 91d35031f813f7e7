"""``muster decide`` step by step: small clusters over time, with both quota APIs, and with nodes that fail and return.

``kit.lives`` judges every step by plain numbers and every placement. 24 lives in a run; as many as MUSTER_TEST_LIVES
says, and others with MUSTER_TEST_EXAMPLES=random.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from random import Random

from kit import lives, states
from muster.tracesim.decide.answer import Answer, PodsWaitingAnswer
from muster.tracesim.decide.reading import read_state
from muster.tracesim.decide.run import decide

LIVES = int(os.environ.get("MUSTER_TEST_LIVES", "24"))
FIRST = Random().randrange(10**9) if os.environ.get("MUSTER_TEST_EXAMPLES") == "random" else 0
AT_MOST = 1
"""Of a hundred states: a job was started, and left for another a moment later; see record 166. Only goes down."""


def answer(state: states.State) -> Answer:
    return decide(read_state(json.dumps(state), "state"))


ONCE_WRONG = (20052,)
"""A gang that moved lost the pods beyond its minimum for good."""


def lived(seed: int) -> Iterator[tuple[states.State, Answer]]:
    """The steps of a life; nothing is wrong with any, and nothing happens after it."""
    rng = Random(seed)
    state = lives.begun(rng)
    for step in range(lives.STEPS):
        found = answer(state)
        assert list(lives.wrong(state, found)) == [], (seed, step)
        if not found.moved:
            after = answer(states.ended(state, found))
            assert (after.admitted, after.evicted, after.moved) == ([], [], []), (seed, step)
        yield state, found
        state = lives.later(rng, state, found, step)


def test_nobody_is_idle_who_fits_nobody_is_owed_and_the_end_is_quiet() -> None:
    moments, happened, hasty = 0, Counter[str](), list[str]()
    for seed in (*ONCE_WRONG, *range(FIRST, FIRST + LIVES)):
        for state, found in lived(seed):
            moments += 1
            happened.update(evicted=len(found.evicted), admitted=len(found.admitted))
            hasty += [f"{seed}: {each}" for each in lives.hasty(state, found)]
    assert len(hasty) * 100 <= AT_MOST * moments, hasty
    assert happened["evicted"] * 20 > moments, "worth something"
    assert happened["admitted"] * 2 > moments


def test_the_judge_sees_what_is_wrong() -> None:
    """An answer that lacks its last start is noticed."""
    noticed = Counter[str]()
    for seed in range(40):
        state = lives.begun(Random(seed))
        found = answer(state)
        if found.admitted:
            last = found.admitted[-1]
            waits = PodsWaitingAnswer(last.job, [pod.name for pod in last.pods], "Queued", "")
            less = Answer(found.admitted[:-1], found.running, [], [], [*found.waiting, waits], [])
            noticed["idle"] += any("would fit" in each for each in lives.wrong(state, less))
    assert noticed["idle"] >= 10
