"""Objects that are gone and there again, as the same or as another of their name, while any stage decides nothing.

What two stages hold of one fact is the same once all is decided, whatever came between their decisions.
"""

from __future__ import annotations

from random import Random

import pytest

from kit.depth import examples
from kit.goneandback import GoneAndBack, PodsGoneAndBack, differences
from kit.histories import is_sound
from muster.core.actuation.intents import Actuator
from muster.core.cell.deciders import DECIDERS
from muster.core.reading.watched import WATCHED
from muster.core.stage import Stage
from muster.events.facts import ChildGone, ChildObserved
from muster.told.readmodel.model import ReadModel


@pytest.mark.parametrize("seed", range(examples(60)))
def test_it_comes_to_rest_and_the_copies_are_equal(seed: int) -> None:
    history = GoneAndBack(seed)
    history.run()
    found = list(differences(history.bench.states, history.bench.log))
    assert not found, found[0]
    history.at_rest()
    is_sound(history.bench, seed)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_pods_of_gangs_are_bound_or_wait_for_what_they_were_told(seed: int) -> None:
    history = PodsGoneAndBack(Random(seed))
    history.run()
    history.peace()
    state, copy = history.bench.states["gang_admitter"], history.bench.states["preemptor"].places
    assert not state.pods.placed
    assert not history.orders()
    bound = {uid for uid, pod in history.pods.items() if pod.node and not pod.over}
    assert set(state.ledger.occupants) == bound
    assert (copy.pods, copy.ledger) == (state.pods, state.ledger)


@pytest.mark.parametrize("make", [*DECIDERS.values(), Actuator, ReadModel])
def test_who_hears_that_an_object_is_gone_hears_that_it_is_back(make: type[Stage]) -> None:
    """Else it is gone for that stage alone, and every decision that names it is void there."""
    heard = make().arms()
    pairs = {row.gone: row.observed for row in WATCHED.values()} | {ChildGone: ChildObserved}
    deaf = [gone.__name__ for gone, observed in pairs.items() if gone in heard and observed not in heard]
    assert not deaf
