"""Nodes are looked at first: who is owed GPUs is given a place wherever some legal set of victims leaves one."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from kit import nodes
from kit.packed import STOP_MS, Judge, Packed, Shape, claim, filled

LEAST = 0.99
LONG = [pytest.mark.nightly, pytest.mark.timeout(1200)]


@dataclass
class Tally:
    """What was asked for within a guarantee and could be given, and what was; GPUs in thousandths."""

    askable: int = 0
    given: int = 0
    judged: int = 0
    """Orders that were looked at."""
    vain: int = 0
    """Of those: ordered more to leave than the job needed."""
    dear: int = 0
    """Of those: at more than 1.1 times the least that it could have cost."""

    @property
    def share(self) -> float:
        return self.given / self.askable if self.askable else 1.0


def ask(cluster: Packed, name: str, shape: Shape, tally: Tally) -> None:
    """``b`` asks; the judge says what it must get."""
    judge = Judge(cluster, "b", shape)
    possible = judge.possible()
    cluster.arrives(name, "b", shape)
    cluster.passes(2 * STOP_MS)
    runs, victims = name in cluster.running, cluster.ordered(name)
    if possible is not None:
        tally.askable += shape.milli
        tally.given += shape.milli * runs
    if runs and victims and set(victims) <= judge.runs.keys():
        tally.judged += 1
        tally.vain += any(judge.fits([each for each in victims if each != one]) for one in victims)
        if possible is not None and judge.few():
            tally.dear += judge.price(victims) * 10 > 11 * min(judge.price(each) for each in judge.every())
    if not runs:
        cluster.ends(name)
        cluster.passes(2 * STOP_MS)


def tally(seeds: range, most: int, *, kai: bool) -> Tally:
    found = Tally()
    for seed in seeds:
        rng = Random(f"packed {seed} {kai}")
        cluster = filled(rng, most, kai=kai)
        for number in range(4):
            shape = claim(rng, cluster)
            if Judge(cluster, "b", shape).within_guarantee():
                ask(cluster, f"owed{number}", shape, found)
    return found


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 200), marks=LONG)], ids=str)
@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_what_is_guaranteed_is_given(kai: bool, seeds: range) -> None:
    found = tally(seeds, 5, kai=kai)
    print(f"{'KAI queues' if kai else 'quota tree'}: {found.share:.1%} of what is guaranteed is given; {found}")
    assert found.share >= LEAST
    assert not found.vain
    assert found.dear * 10 <= found.judged


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_moves_break_no_guarantee(kai: bool) -> None:
    """Jobs that may not be evicted for an owner go on elsewhere; what could be given without moves is given."""
    given, moved = Tally(), 0
    for seed in range(20):
        rng = Random(f"moved {seed} {kai}")
        cluster = filled(rng, 5, kai=kai, moves=16)
        for number in range(4):
            shape, name = claim(rng, cluster), f"owed{number}"
            judge = Judge(cluster, "b", shape)
            if not judge.within_guarantee():
                continue
            possible, may = judge.possible() is not None, judge.candidates()
            cluster.arrives(name, "b", shape)
            cluster.passes(3 * STOP_MS)
            stay = [each for each in cluster.ordered(name) if each in judge.runs and each not in may]
            moved += len(stay)
            assert all(each in cluster.running for each in stay), (seed, number)
            given.askable += shape.milli * possible
            given.given += shape.milli * (possible and name in cluster.running)
            if name not in cluster.running:
                cluster.ends(name)
                cluster.passes(2 * STOP_MS)
        cluster.bench.sound()
    assert given.share >= LEAST, given
    assert moved, "no job moved: these clusters say nothing"


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_a_node_is_cleared_whatever_the_ages_of_what_runs_there(kai: bool) -> None:
    """Of two nodes of four GPUs each has an old and a young job of two; the youngest two are not on one node."""
    cluster = Packed([4, 4], {"a": 4, "b": 4}, kai=kai)
    for name, on in (("old", "n0"), ("older", "n1"), ("young", "n0"), ("younger", "n1")):
        cluster.arrives(name, "a", Shape(1, 2), on)
        cluster.passes(60_000)
    cluster.arrives("owed", "b", Shape(1, 4))
    cluster.passes(STOP_MS + 1_000)
    assert "owed" in cluster.running
    assert sorted(cluster.ordered("owed")) in (["old", "young"], ["older", "younger"])
    cluster.bench.sound()


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_the_one_victim_that_is_enough_is_found(kai: bool) -> None:
    """The younger job is no help: with it gone the other may not go, and alone it is too small."""
    cluster = Packed([4], {"a": 1, "b": 3}, kai=kai)
    cluster.arrives("large", "a", Shape(1, 3))
    cluster.passes(60_000)
    cluster.arrives("small", "a", Shape(1, 1))
    cluster.passes(60_000)
    cluster.arrives("owed", "b", Shape(1, 3))
    cluster.passes(STOP_MS + 1_000)
    assert cluster.ordered("owed") == ["large"]
    assert "owed" in cluster.running
    cluster.bench.sound()


@pytest.mark.parametrize("block", range(4))
def test_bursts_of_owners_before_victims_that_are_slow_or_cannot_be_suspended(block: int) -> None:
    """No GPU is promised twice, and no rule of the audit is broken; `Packed` looks at each job that starts."""
    for seed in range(3 * block, 3 * (block + 1)):
        burst(Random(f"burst {seed}")).bench.sound()


def burst(rng: Random) -> Packed:
    """A full cluster, owners that ask for all that they are guaranteed, and twenty minutes."""
    size, count = rng.choice((1, 4, 8)), rng.randint(2, 5)
    least, kai = rng.randint(size, size * count), rng.random() < 0.5
    first = rng.randint(0, least)
    guarantees = {"o1": first, "o2": least - first, "b1": size * count - least, "b2": 0}
    cluster = Packed([size] * count, guarantees, kai=kai, moves=rng.choice((0, 16)))
    shapes = [Shape(1, 1), Shape(1, size), Shape(2, 1), Shape(1, share=500), Shape(2, share=250)]
    for index in range(2 * size * count):
        cluster.stops[f"v{index}"] = 1000 * rng.choice((30, 60, 300, 600, 10**5))
        cluster.arrives(f"v{index}", rng.choice(("b1", "b2")), rng.choice(shapes))
    cluster.passes(rng.choice((1000, 600_000, 3_700_000)))
    often = rng.choice((0, 0.1, 0.25))
    for name in ("o1", "o2"):
        left = guarantees[name] * 1000
        for index in range(12):
            shape = rng.choice(shapes)
            if shape.milli <= left:
                left -= shape.milli
                cluster.arrives(f"{name}-{index}", name, shape)
    for _ in range(20):
        cluster.refuses = {name for name in cluster.running if rng.random() < often}
        cluster.bench.paused = frozenset(rng.sample(sorted(cluster.bench.seats), rng.choice((0, 0, 1, 2))))
        cluster.passes(60_000)
        cluster.bench.paused = frozenset()
        cluster.settle()
        if rng.random() < 0.3 and cluster.running:
            cluster.ends(rng.choice(sorted(cluster.running)))
    return cluster


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_a_claimant_starts_elsewhere_while_its_victims_leave(kai: bool) -> None:
    """Two are ordered to leave one node, and do not; the job on the other node ends by itself."""
    cluster = Packed([2, 2], {"a": 0, "b": 4}, kai=kai)
    cluster.arrives("old", "a", Shape(1, 2), "n0")
    cluster.passes(60_000)
    cluster.stops |= {"first": 10**8, "second": 10**8}
    cluster.arrive(cluster.stops, "a", Shape(1, 1))
    cluster.passes(60_000)
    cluster.arrives("owed", "b", Shape(1, 2))
    assert sorted(cluster.ordered("owed")) == ["first", "second"]
    cluster.ends("old")
    assert "owed" in cluster.running, cluster.told("owed")
    cluster.bench.sound()


def test_the_order_in_which_nodes_are_cleared_takes_no_victim_away() -> None:
    """c may give the two large ones and the two small ones if a large one is the last; the large ones are cheapest."""
    cluster = Packed([8, 4, 4, 4], {"a": 0, "b": 13, "c": 2, "d": 5}, kai=True)
    for name, of, shape, on in (
        ("d1", "d", Shape(1, 1), "n1"),
        ("d2", "d", Shape(1, 1), "n2"),
        ("d3", "d", Shape(1, 3), "n3"),
        ("small1", "c", Shape(1, 1), "n1"),
        ("small2", "c", Shape(1, 1), "n2"),
    ):
        cluster.arrives(name, of, shape, on)
    for index in range(10):
        cluster.arrives(f"a{index}", "a", Shape(1, share=100), "n3")
    cluster.passes(50 * 3_600_000)
    for name in ("large1", "large2"):
        cluster.arrives(name, "c", Shape(1, 4), "n0")
        cluster.passes(60_000)
    cluster.arrives("owed", "b", Shape(4, 3))
    assert sorted(cluster.ordered("owed")) == ["large1", "large2", "small1", "small2"]
    cluster.passes(STOP_MS)
    assert "owed" in cluster.running, cluster.told("owed")
    cluster.bench.sound()


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_nobody_takes_the_place_that_leaves_for_an_owner(kai: bool) -> None:
    """Five leave for four, the last ones slowly. Two others are owed the fifth; the first to claim it has it."""
    cluster = Packed([4, 4], {"a": 0, "b": 4, "c": 3, "d": 1}, kai=kai)
    for name, of, shape, on in (
        ("slow", "a", Shape(1, 3), "n0"),
        ("whole", "c", Shape(1, 1), "n1"),
        ("part", "c", Shape(1, share=700), "n1"),
        ("other", "c", Shape(1, share=700), "n1"),
        ("wide", "a", Shape(2, 1), ""),
    ):
        cluster.arrives(name, of, shape, on)
        cluster.passes(60_000)
    cluster.stops["slow"] = 2 * STOP_MS
    for name, of, shape in (("owed", "b", Shape(1, 4)), ("one", "d", Shape(1, 1)), ("share", "c", Shape(1, share=400))):
        cluster.arrives(name, of, shape)
        cluster.passes(1000)
    cluster.passes(STOP_MS)
    assert {"one", "share", "slow"} & cluster.running.keys() == {"one", "slow"}
    cluster.passes(STOP_MS)
    assert "owed" in cluster.running, cluster.told("owed")
    assert not [*cluster.ordered("one"), *cluster.ordered("share")]
    cluster.bench.sound()


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_room_that_comes_on_the_node_of_two_claimants_is_used_at_once(kai: bool) -> None:
    """The victim of the first is slow, that of the second is not; the quota has room for both."""
    cluster = Packed([4, 4], {"a": 0, "b": 8}, kai=kai)
    for index in range(4):
        cluster.stops[f"v{index}"] = 3_000_000
        cluster.arrives(f"v{index}", "a", Shape(1, 1), "n0")
        cluster.passes(60_000)
    cluster.arrives("first", "b", Shape(1, 1), "n0")
    for name in {f"v{index}" for index in range(4)} - set(cluster.ordered("first")):
        cluster.stops[name] = STOP_MS
    cluster.passes(1000)
    cluster.arrives("second", "b", Shape(1, 1), "n0")
    cluster.passes(2 * STOP_MS)
    assert "first" in cluster.running, cluster.told("first")
    assert "second" not in cluster.running
    assert [len(cluster.ordered(name)) for name in ("first", "second")] == [1, 1]
    cluster.passes(3_000_000)
    assert "second" in cluster.running
    cluster.bench.sound()


@pytest.mark.parametrize("refuses", [True, False], ids=["refuses", "leaves"])
def test_of_two_that_ask_alike_each_has_its_own_claim_where_the_first_waits_for_its_place(refuses: bool) -> None:
    """Its victim is of another department: beside its claim the quota of their own lacks room for the second."""
    parents = {"o": "y", "b": "y", "c": "x"}
    cluster = Packed([2, 2, 4], {"o": 3, "b": 0, "c": 0}, kai=False, parents=parents, limits={"y": 3})
    cluster.bench.facts(nodes.node("n2", cpu=1000, memory=1000, gpu=4, schedulable=False))
    for name, of in (("c0", "c"), ("c1", "c"), ("b0", "b"), ("b1", "b")):
        cluster.stops[name] = 10 * STOP_MS
        cluster.arrives(name, of, Shape(1, 1))
        cluster.passes(60_000)
    cluster.refuses = {"b1"} if refuses else set()
    cluster.arrives("first", "o", Shape(1, 1))
    cluster.passes(1000)
    cluster.arrives("second", "o", Shape(1, 1))
    assert cluster.ordered("first") == ["c1"]
    assert cluster.ordered("second") == (["b1", "b0"] if refuses else ["b1"])
    cluster.passes(10_000)
    cluster.arrives("third", "o", Shape(1, 1))
    cluster.passes(11 * STOP_MS)
    assert {"first", "second"} <= cluster.running.keys(), cluster.told("second")
    cluster.passes(3_600_000)
    assert refuses or "third" in cluster.running, cluster.told("third")
    cluster.bench.sound()


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
@pytest.mark.parametrize("head", ["n1", "nowhere"])
def test_a_job_without_a_place_holds_up_none_that_asks_for_as_much_elsewhere(kai: bool, head: str) -> None:
    """Its node is full of owners, or there is none; the next one is owed the same, and may be on any."""
    cluster = Packed([2, 2], {"a": 1, "b": 1, "c": 2}, kai=kai)
    cluster.arrives("owner", "c", Shape(1, 2), "n1")
    cluster.arrive(("one", "other"), "a", Shape(1, 1))
    cluster.passes(60_000)
    cluster.arrives("head", "b", Shape(1, 1), head)
    cluster.passes(1000)
    cluster.arrives("next", "b", Shape(1, 1))
    cluster.passes(2 * STOP_MS)
    assert "next" in cluster.running, cluster.told("next")
    assert not cluster.ordered("head")
    cluster.bench.sound()


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_room_that_comes_is_for_those_that_are_owed_it(kai: bool) -> None:
    """Two jobs wait for nodes, the borrower for longer; the owner of all the room ends."""
    cluster = Packed([2, 2], {"a": 0, "b": 2, "c": 2}, kai=kai)
    cluster.arrives("mine", "b", Shape(1, 2), "n0")
    cluster.arrives("full", "c", Shape(1, 2), "n1")
    cluster.ends("mine")
    cluster.arrives("borrower", "a", Shape(1, 2), "n1")
    cluster.passes(60_000)
    cluster.arrives("owed", "b", Shape(1, 2), "n1")
    cluster.passes(60_000)
    cluster.ends("full")
    assert "owed" in cluster.running, cluster.told("owed")
    assert not cluster.ordered("owed")
    cluster.bench.sound()


def test_no_borrower_takes_the_quota_that_leaves_a_node_for_its_owner() -> None:
    """The quota has room for the owner while its node is full; a borrower has waited longer for two, elsewhere."""
    cluster = Packed([4, 1], {"a": 0, "b": 5}, kai=False)
    for index in range(4):
        cluster.arrives(f"v{index}", "a", Shape(1, 1), "n0")
        cluster.passes(60_000)
    cluster.arrives("wide", "a", Shape(1, 2), "n2")
    cluster.sizes["n2"] = 4
    cluster.bench.facts(nodes.node("n2", cpu=1000, memory=1000, gpu=4))
    cluster.passes(60_000)
    cluster.arrives("owed", "b", Shape(1, 1), "n0")
    cluster.passes(5 * STOP_MS)
    assert "owed" in cluster.running, cluster.told("owed")
    assert cluster.ordered("owed") == ["v3"]
    assert "wide" not in cluster.running, "one is free, and it asks for two"
    cluster.bench.sound()


@pytest.mark.parametrize("seed", [171, 5010])
def test_a_plan_that_counts_on_the_victim_of_another_order_awaits_it(seed: int) -> None:
    burst(Random(f"burst {seed}")).bench.sound()


def two_nodes(kai: bool, guarantees: dict[str, int], *jobs: tuple[str, str, str]) -> Packed:
    """Two nodes of four GPUs, and (name, queue, node) of jobs with two each, in the order of their ages."""
    cluster = Packed([4, 4], guarantees, kai=kai, moves=16)
    free = {"n0": 4, "n1": 4}
    for name, of, on in jobs:
        [other] = free.keys() - {on}
        if free[other]:
            cluster.arrives(f"beside-{name}", of, Shape(1, free[other]), other)
        cluster.arrives(name, of, Shape(1, 2))
        assert [node for node, _ in cluster.running[name].at] == [on]
        if free[other]:
            cluster.ends(f"beside-{name}")
        free[on] -= 2
        cluster.passes(60_000)
    return cluster


def goes_on(cluster: Packed, name: str, *, than: int) -> None:
    """It moved: it runs with its quota, since later than then."""
    assert name in cluster.running
    assert cluster.running[name].since > than
    cluster.bench.sound()


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_work_within_its_guarantee_moves_where_room_is_in_pieces(kai: bool) -> None:
    """Two GPUs are free on each node; nobody has more than its guarantee."""
    cluster = two_nodes(kai, {"a": 2, "b": 4, "c": 2}, ("within", "a", "n0"), ("mine", "c", "n1"))
    then = cluster.bench.now
    cluster.arrives("owed", "b", Shape(1, 4))
    cluster.passes(3 * STOP_MS)
    assert "owed" in cluster.running, cluster.told("owed")
    [moved] = cluster.ordered("owed")
    goes_on(cluster, moved, than=then)


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_some_are_evicted_and_others_move_in_one_plan(kai: bool) -> None:
    """On each node runs a job that may be evicted, and one that may not: it moves to where the other was."""
    jobs = (("first", "c", "n0"), ("second", "c", "n1"), ("over", "a", "n0"), ("above", "a", "n1"))
    cluster = two_nodes(kai, {"a": 0, "b": 4, "c": 4}, *jobs)
    then = cluster.bench.now
    cluster.arrives("owed", "b", Shape(1, 4))
    cluster.passes(3 * STOP_MS)
    assert "owed" in cluster.running, cluster.told("owed")
    assert len(cluster.ordered("owed")) == 3
    [moved] = {"first", "second"} & {*cluster.ordered("owed")}
    goes_on(cluster, moved, than=then)
    assert cluster.running.keys() == {"owed", "first", "second"}


def test_of_two_that_could_give_the_smaller_moves() -> None:
    """c may give two of its three GPUs: were the small job evicted, the large one could not be."""
    cluster = Packed([4, 4], {"a": 3, "b": 4, "c": 1}, kai=False, moves=16)
    cluster.arrives("tied", "a", Shape(1, 3), "n0")
    cluster.arrives("filler", "a", Shape(1, 1), "n0")
    for name, gpus in (("small", 1), ("large", 2)):
        cluster.arrives(name, "c", Shape(1, gpus))
        cluster.passes(60_000)
    cluster.ends("filler")
    then = cluster.bench.now
    cluster.arrives("owed", "b", Shape(1, 4))
    cluster.passes(3 * STOP_MS)
    assert "owed" in cluster.running, cluster.told("owed")
    assert sorted(cluster.ordered("owed")) == ["large", "small"]
    goes_on(cluster, "small", than=then)
    assert "large" not in cluster.running


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_what_leaves_for_one_that_is_gone_leaves_for_the_next(kai: bool) -> None:
    cluster = Packed([4], {"a": 3, "b": 1}, kai=kai)
    for name in ("oldest", "older", "old", "young"):
        cluster.arrives(name, "a", Shape(1, 1))
        cluster.passes(60_000)
    cluster.arrives("gone", "b", Shape(1, 1))
    cluster.passes(5_000)
    cluster.ends("gone")
    cluster.arrives("owed", "b", Shape(1, 1))
    cluster.passes(STOP_MS)
    assert cluster.ordered("gone") == ["young"]
    assert not cluster.ordered("owed")
    assert cluster.running.keys() == {"oldest", "older", "old", "owed"}
    cluster.bench.sound()
