"""Nodes of the reference engine: places of gangs are found whenever there are any, and nothing is lost or made."""

from itertools import product
from random import Random

from muster.tracesim.model import GPU
from muster.tracesim.places import Places


def held(places: Places) -> int:
    """Free GPUs of all nodes, counted by taking them one by one."""
    copy, count = places.copied(), 0
    while copy.pod(copy.amounts({GPU: 1000})) is not None:
        count += 1
    return count


def test_a_gang_finds_places_exactly_where_there_are_some():
    rng = Random(4)
    for _ in range(300):
        free = [rng.randint(0, 8) for _ in range(rng.randint(1, 5))]
        nodes = {f"node-{at}": {GPU: gpus * 1000} for at, gpus in enumerate(free)}
        places = Places(nodes, spread=rng.random() < 0.5)
        for gpus, count in product((1, 2, 3, 8), (1, 2, 5)):
            need = places.amounts({GPU: gpus * 1000})
            there = sum(each // gpus for each in free) >= count
            trial = places.copied()
            taken = trial.gang(need, count)
            assert places.fits(need, count) == there == (taken is not None)
            if taken is not None:
                assert (len(taken), held(trial)) == (count, sum(free) - gpus * count)
                trial.give(need, taken)
            assert held(trial) == sum(free)


def test_a_lost_node_takes_no_pods_and_comes_back_with_what_has_left():
    places = Places({"a": {GPU: 4000}, "b": {GPU: 4000}})
    one, whole = places.amounts({GPU: 1000}), places.amounts({GPU: 4000})
    assert places.pod(one) == "a"
    places.lose("a")
    assert places.gang(one, 5) is None
    places.give(one, ["a"])
    places.restore("a")
    assert places.gang(whole, 2) == ["a", "b"]


def test_what_a_node_does_not_name_is_ample():
    places = Places({"a": {GPU: 2000, "cpu": 4000}, "b": {GPU: 2000}})
    need = places.amounts({GPU: 1000, "cpu": 3000})
    assert places.gang(need, 3) == ["a", "b", "b"]
    assert not places.fits(need, 1)
