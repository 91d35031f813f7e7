"""Placement on random clusters against the naive oracle: never over-commits, whole or nothing, finds what there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kit import nodes
from kit.nodes import Naive
from muster.core.placement.devices import DEVICE, PART
from muster.core.placement.nodeledger import NodeLedger, Occupant
from muster.core.placement.place import place
from muster.core.placement.view import Ask, View
from muster.events.facts import NodeGone
from muster.model.keys import Ref
from muster.model.places import Shortage
from muster.model.placing import GPU, PodRules

SETTINGS = settings(max_examples=400)
SEEDS = st.integers(0, 2**32)


def cluster(rng: Random, *, pod_rules: bool, most: int = 6) -> NodeLedger:
    """Nodes, and foreign pods on them (also more than fit, also on nodes nobody knows)."""
    found = nodes.ledger(*nodes.some_nodes(rng, most))
    for index in range(rng.randint(0, 6)):
        where = rng.choice([*found.nodes, "unknown"])
        foreign = nodes.some_ask(rng, f"foreign-{index}", pod_rules=pod_rules)
        found.settle(f"pod-{index}", Occupant(where, "video", foreign.request, 1, foreign.rules))
    return found


def consistent(found: NodeLedger) -> None:
    """The index is what a fresh count says."""
    used = {name: dict(each.used) for name, each in found.nodes.items() if each.used}
    assert used == {name: total for name, total in found.recount().items() if total}
    listed = sorted(
        name for group in found.classes.values() for bucket in group.buckets.values() for name in bucket.names
    )
    assert listed == sorted(name for name, each in found.nodes.items() if each.uid)
    assert sorted(found.lost) == sorted(name for name, each in found.nodes.items() if not each.uid)
    for name, each in found.nodes.items():
        if each.uid:
            fresh = found.slot_of(each)
            assert each.slot == fresh
            assert name in found.classes[fresh.group].buckets[fresh.key].names
            assert found.classes[fresh.group].buckets[fresh.key].free == fresh.free


def valid(found: NodeLedger, view: View, asks: Sequence[Ask]) -> None:
    """What was taken is whole, and the oracle could have put every pod where it stands."""
    for each in asks:
        assert sum(taken.count for taken in view.taken if taken.ask is each) == each.count
    naive = Naive(found)
    for taken in view.taken:
        for _ in range(taken.count):
            assert naive.room(taken.ask, taken.node) and naive.static(taken.ask, taken.node), taken
            plain = not (taken.ask.rules.spread or taken.ask.rules.together)
            assert not plain or naive.beside(taken.ask, taken.node), taken
            naive.put(taken.ask, taken.node)


@SETTINGS
@given(SEEDS, st.sampled_from(["pack", "spread"]))
def test_one_shape_is_placed_exactly_when_it_fits(seed: int, strategy: str) -> None:
    rng = Random(seed)
    found = cluster(rng, pod_rules=False)
    one = nodes.some_ask(rng, "worker", most=9)
    view = View(found)
    short = place(view, [one], strategy)
    could = Naive(found).search([one])
    assert could is None or could == (short is None), short
    if short is None:
        valid(found, view, [one])
    else:
        assert not view.taken
        told(found, one, short)


def told(found: NodeLedger, one: Ask, short: Shortage) -> None:
    """The counts are those of the nodes that refuse the next pod, each for the first thing Kubernetes would name."""
    there = [each for each in found.nodes.values() if each.uid]
    assert short.nodes == len(there)
    assert 0 <= short.fitted < one.count
    by_amount = ("insufficient", "too_small")
    first = sum(each.nodes for each in short.obstacles if each.code not in by_amount)
    tight = Counter[str]()
    for each in short.obstacles:
        tight[each.detail] += each.nodes if each.code in by_amount else 0
    assert first + max(tight.values(), default=0) <= short.nodes <= first + tight.total()
    little = Counter[str]()
    for node in there:
        missing = [name for name in one.request if name not in node.allocatable]
        little.update(missing or [name for name, amount in one.request.items() if node.allocatable[name] < amount])
    small = Counter({each.detail: each.nodes for each in short.obstacles if each.code == "too_small"})
    if not one.rules.share:
        assert small == little if not first else small <= little


@SETTINGS
@given(SEEDS)
def test_a_head_and_one_group_are_placed_exactly_when_they_fit(seed: int) -> None:
    rng = Random(seed)
    found = cluster(rng, pod_rules=False, most=4)
    head = nodes.some_ask(rng, "head", most=1)
    group = nodes.some_ask(rng, "worker", most=6)
    view = View(found)
    short = place(view, [head, group])
    could = Naive(found).search([head, group])
    assert could is None or could == (short is None), short
    if short is None:
        valid(found, view, [head, group])


@SETTINGS
@given(SEEDS, st.sampled_from(["pack", "spread"]))
def test_several_shapes_are_whole_or_nothing(seed: int, strategy: str) -> None:
    rng = Random(seed)
    found = cluster(rng, pod_rules=True)
    asks = [nodes.some_ask(rng, f"set-{index}", pod_rules=rng.random() < 0.5) for index in range(rng.randint(1, 4))]
    view = View(found)
    earlier = nodes.some_ask(rng, "earlier")
    place(view, [earlier], strategy)
    before, taken = naive_slots(view), list(view.taken)
    short = place(view, asks, strategy)
    if short is None:
        valid(found, view, [*(each.ask for each in taken), *asks])
    else:
        assert view.taken == taken and naive_slots(view) == before
    consistent(found)


def naive_slots(view: View) -> dict[str, object]:
    return {name: (list(slot.free), dict(slot.shared)) for name in view.ledger.nodes if (slot := view.slot(name))}


@SETTINGS
@given(SEEDS)
def test_rules_between_pods_hold_whatever_the_order(seed: int) -> None:
    """One shape with one rule between pods: what is found is legal pod by pod in the order it was taken."""
    rng = Random(seed)
    found = cluster(rng, pod_rules=True)
    one = nodes.some_ask(rng, "worker", pod_rules=True)
    view = View(found)
    short = place(view, [one])
    naive = Naive(found)
    for taken in view.taken:
        for _ in range(taken.count):
            assert naive.fits(one, taken.node), (taken, one.rules)
            naive.put(one, taken.node)
    if short is not None and not one.rules.spread and not one.rules.together:
        assert Naive(found).search([one]) in (False, None), short


@SETTINGS
@given(SEEDS)
def test_the_ledger_is_a_function_of_what_is_there(seed: int) -> None:
    """Pods and nodes come and go in any order; the index always equals one built anew from what is left."""
    rng = Random(seed)
    found = NodeLedger()
    observed: dict[str, object] = {}
    for step in range(rng.randint(1, 40)):
        match rng.randint(0, 5):
            case 0 | 1:
                each = nodes.some_nodes(rng)[-1]
                name = each.node.ref.name
                if name not in observed or rng.random() < 0.5:
                    observed[name] = each
                    found.node_observed(each)
            case 2 if observed:
                name = rng.choice(sorted(observed))
                rv = observed.pop(name).node.rv
                found.node_gone(NodeGone(ref=Ref("Node", "", name, f"uid-{name}"), rv=rv))
            case 3:
                shape = nodes.some_ask(rng, "x", pod_rules=True)
                found.learn(shape.rules)
            case 4 if found.occupants:
                key = rng.choice(sorted(found.occupants))
                found.thin(key) if rng.random() < 0.5 else found.evict(key)
            case _:
                shape = nodes.some_ask(rng, "x", pod_rules=True)
                found.settle(f"p{step}", Occupant(f"n{rng.randint(0, 6)}", "video", shape.request, 2, shape.rules))
        consistent(found)
    fresh = nodes.ledger(*observed.values())
    for key, each in found.occupants.items():
        fresh.settle(key, each)
    assert {n: e.slot.free for n, e in fresh.nodes.items() if e.slot} == {
        n: e.slot.free for n, e in found.nodes.items() if e.slot
    }


@SETTINGS
@given(SEEDS)
def test_shares_of_devices_never_add_up_to_more_than_a_device(seed: int) -> None:
    rng = Random(seed)
    found = nodes.ledger(*(nodes.node(f"n{i}", cpu=64, memory=256, gpu=rng.randint(1, 4)) for i in range(3)))
    gone = 0
    for step in range(30):
        rules = PodRules(share=rng.choice((0, 200, 300, 500, 700)))
        one = nodes.ask(f"p{step}", count=rng.randint(1, 3), gpu=0 if rules.share else rng.randint(0, 2), rules=rules)
        view = View(found)
        if place(view, [one]) is None:
            nodes.apply(found, view, f"step-{step}")
        elif found.occupants:
            key = rng.choice(sorted(found.occupants))
            found.thin(key)
            gone += 1
        consistent(found)
        for each in found.nodes.values():
            assert all(0 <= left < DEVICE for left in each.shared.values())
            assert each.used.get(GPU, 0) <= each.allocatable[GPU]
            assert len(each.shared) * 1000 <= each.used.get(GPU, 0)
            shares: dict[int, int] = {}
            for key in each.occupants:
                for device in found.occupants[key].devices:
                    shares[device] = shares.get(device, 0) + found.occupants[key].rules.share * PART
            assert each.shared == {device: DEVICE - taken for device, taken in shares.items()}


@SETTINGS
@given(SEEDS)
def test_what_is_placed_does_not_depend_on_the_order_nodes_came_in(seed: int) -> None:
    rng = Random(seed)
    observed = nodes.some_nodes(rng, 8)
    asks = [nodes.some_ask(rng, f"set-{index}", pod_rules=True) for index in range(2)]
    answers = []
    for _ in range(2):
        view = View(nodes.ledger(*observed))
        short = place(view, asks)
        answers.append((short, [(each.ask.name, each.node, each.count) for each in view.taken]))
        rng.shuffle(observed)
    assert answers[0] == answers[1]
