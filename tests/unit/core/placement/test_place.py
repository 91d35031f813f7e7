"""What placement prefers and how it words a refusal: single cases, small enough to check by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kit import nodes
from muster.core.placement.matching import holds, tolerates
from muster.core.placement.place import place
from muster.core.placement.view import Ask, View
from muster.model.placing import (
    HOSTNAME,
    HostPort,
    NodeTerm,
    PodRules,
    PodTerm,
    Requirement,
    Spread,
    Taint,
    Toleration,
)
from muster.model.problem import problem
from muster.model.strategies import Strategy
from muster.told.wording.nodewords import no_room

WORKER = (Requirement("app", "In", ("worker",)),)


def placed(found: nodes.NodeLedger, *asks: Ask, strategy: Strategy = "pack") -> dict[str, int] | str:
    """{node: pods} or the sentence of the refusal."""
    view = View(found)
    short = place(view, asks, strategy)
    if short is not None:
        return no_room(short)
    counts: dict[str, int] = {}
    for taken in view.taken:
        counts[taken.node] = counts.get(taken.node, 0) + taken.count
    return counts


def test_a_gang_fills_what_is_already_in_use_and_leaves_whole_nodes_whole() -> None:
    found = nodes.ledger(nodes.node("a", cpu=32, gpu=8), nodes.node("b", cpu=32, gpu=8))
    assert placed(found, nodes.ask(count=6, gpu=1)) == {"a": 6}
    view = View(found)
    assert place(view, [nodes.ask(count=6, gpu=1)]) is None
    nodes.apply(found, view)
    assert placed(found, nodes.ask(count=2, gpu=1)) == {"a": 2}
    assert placed(found, nodes.ask(count=1, gpu=8)) == {"b": 1}


def test_spreading_goes_round_the_nodes() -> None:
    found = nodes.ledger(*(nodes.node(f"n{index}") for index in range(3)))
    assert placed(found, nodes.ask(count=6), strategy="spread") == {"n0": 2, "n1": 2, "n2": 2}


def test_pods_that_need_no_gpu_stay_off_gpu_nodes_while_gpus_are_asked_for() -> None:
    found = nodes.ledger(nodes.node("gpu", cpu=4, gpu=4), nodes.node("plain", cpu=64))
    found.mix.learn({"cpu": 1000, "nvidia.com/gpu": 1000}, PodRules(), 10)
    assert placed(found, nodes.ask(count=2)) == {"plain": 2}


def test_the_refusal_counts_every_node_by_its_first_obstacle() -> None:
    taint = Taint("dedicated", "infra")
    found = nodes.ledger(
        nodes.node("gpu-0", cpu=8, gpu=1),
        *(nodes.node(f"tainted-{index}", taints=(taint,)) for index in range(3)),
        nodes.node("cordoned", schedulable=False),
    )
    assert placed(found, nodes.ask("worker", count=2, gpu=1)) == (
        "1 of 2 worker pods fit; for the next one 0/5 nodes are available: 1 Insufficient nvidia.com/gpu, "
        "1 node(s) were unschedulable, 3 node(s) had untolerated taint {dedicated: infra}"
    )


def test_a_node_short_of_two_resources_counts_for_both() -> None:
    found = nodes.ledger(nodes.node("a", cpu=1, memory=1))
    assert placed(found, nodes.ask("head", cpu=2, memory=2)) == (
        "0/1 nodes are available: 1 Insufficient cpu even when empty, 1 Insufficient memory even when empty"
    )


def test_a_node_that_is_full_is_told_from_one_that_is_too_small() -> None:
    found = nodes.ledger(nodes.node("a", cpu=1), nodes.node("b", cpu=3), nodes.node("c", cpu=1))
    assert placed(found, nodes.ask("worker", cpu=2, count=2)) == (
        "1 of 2 worker pods fit; for the next one 0/3 nodes are available: 1 Insufficient cpu, "
        "2 Insufficient cpu even when empty"
    )


def test_no_nodes_at_all() -> None:
    assert placed(nodes.ledger(), nodes.ask("head")) == "0/0 nodes are available"


def test_too_many_pods() -> None:
    found = nodes.ledger(nodes.node("a", cpu=64, pods=1))
    assert placed(found, nodes.ask("worker", count=2)) == (
        "1 of 2 worker pods fit; for the next one 0/1 nodes are available: 1 Too many pods"
    )


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (PodRules(node_labels={"disk": "ssd"}), "2 node(s) didn't match Pod's node affinity/selector"),
        (
            PodRules(volumes=((NodeTerm(labels=(Requirement(HOSTNAME, "In", ("c",)),)),),)),
            "2 node(s) had volume node affinity conflict",
        ),
        (
            PodRules(spread=(Spread("rack", selector=WORKER),)),
            "2 node(s) didn't match pod topology spread constraints (missing required label)",
        ),
        (PodRules(together=(PodTerm("zone", WORKER),)), "2 node(s) didn't match pod affinity rules"),
        (
            PodRules(unsupported=problem("", "said", said="namespaceSelector cannot be judged")),
            "2 node(s) were not tried: namespaceSelector cannot be judged",
        ),
    ],
)
def test_words_of_rules(rules: PodRules, words: str) -> None:
    found = nodes.ledger(nodes.node("a", labels={"zone": "x"}), nodes.node("b", labels={"zone": "y"}))
    assert placed(found, nodes.ask("head", rules=rules)) == f"0/2 nodes are available: {words}"


def test_one_pod_per_node_when_they_keep_apart() -> None:
    found = nodes.ledger(*(nodes.node(f"n{index}", cpu=64) for index in range(3)))
    rules = PodRules(labels={"app": "worker"}, apart=(PodTerm(HOSTNAME, WORKER),))
    assert placed(found, nodes.ask("worker", count=3, rules=rules)) == {"n0": 1, "n1": 1, "n2": 1}
    assert placed(found, nodes.ask("worker", count=4, rules=rules)) == (
        "3 of 4 worker pods fit; for the next one "
        "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules"
    )


def test_host_ports_take_a_node_each() -> None:
    found = nodes.ledger(nodes.node("a", cpu=64), nodes.node("b", cpu=64))
    rules = PodRules(ports=(HostPort(80),))
    assert placed(found, nodes.ask("worker", count=2, rules=rules)) == {"a": 1, "b": 1}
    assert "2 node(s) didn't have free ports" in str(placed(found, nodes.ask("worker", count=3, rules=rules)))


def test_a_gang_that_wants_one_domain_gets_one_that_holds_all_of_it() -> None:
    found = nodes.ledger(
        nodes.node("small-1", cpu=2, labels={"zone": "small"}),
        *(nodes.node(f"large-{index}", cpu=2, labels={"zone": "large"}) for index in range(3)),
    )
    rules = PodRules(labels={"app": "worker"}, together=(PodTerm("zone", WORKER),))
    assert placed(found, nodes.ask("worker", count=5, rules=rules)) == {"large-0": 2, "large-1": 2, "large-2": 1}


def test_spread_over_zones() -> None:
    found = nodes.ledger(
        nodes.node("a", cpu=64, labels={"zone": "x"}),
        nodes.node("b", cpu=64, labels={"zone": "y"}),
    )
    rules = PodRules(labels={"app": "worker"}, spread=(Spread("zone", 1, WORKER),))
    assert placed(found, nodes.ask("worker", count=7, rules=rules)) in ({"a": 4, "b": 3}, {"a": 3, "b": 4})


def test_a_head_gives_way_to_the_workers_it_would_squeeze_out() -> None:
    """Best fit alone would put the head beside the only place for the second worker."""
    found = nodes.ledger(nodes.node("a", cpu=3), nodes.node("b", cpu=2))
    assert placed(found, nodes.ask("head", cpu=1), nodes.ask("worker", count=2, cpu=2)) == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("toleration", "taint", "expected"),
    [
        (Toleration(operator="Exists"), Taint("a", "1"), True),
        (Toleration("a", "Exists"), Taint("a", "1", "NoExecute"), True),
        (Toleration("a", "Equal", "1", "NoSchedule"), Taint("a", "1", "NoExecute"), False),
        (Toleration("a", "Equal", "2"), Taint("a", "1"), False),
        (Toleration("a", "", "1"), Taint("a", "1"), True),
        (Toleration("a", "Gt", "1"), Taint("a", "2"), False),
        (Toleration("b", "Exists"), Taint("a"), False),
    ],
)
def test_tolerations(toleration: Toleration, taint: Taint, expected: bool) -> None:
    assert tolerates(toleration, taint) is expected


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (Requirement("a", "In", ("1", "2")), True),
        (Requirement("a", "NotIn", ("1",)), False),
        (Requirement("b", "NotIn", ("1",)), True),
        (Requirement("a", "Exists"), True),
        (Requirement("b", "DoesNotExist"), True),
        (Requirement("a", "Gt", ("0",)), True),
        (Requirement("a", "Lt", ("0",)), False),
        (Requirement("b", "Gt", ("0",)), False),
        (Requirement("a", "Gt", ("zero",)), False),
    ],
)
def test_requirements(requirement: Requirement, expected: bool) -> None:
    assert holds(requirement, {"a": "1"}) is expected


def test_nodes_that_have_taken_something_in_this_decision_are_all_there_for_the_next() -> None:
    found = nodes.ledger(*(nodes.node(f"n{index}", cpu=4) for index in range(6)))
    view = View(found)
    assert place(view, [nodes.ask("one", 6, cpu=1)], "spread") is None
    assert place(view, [nodes.ask("other", 6, cpu=3)]) is None
    assert sorted(taken.node for taken in view.taken if taken.ask.name == "other") == [
        f"n{index}" for index in range(6)
    ]


def test_a_share_that_is_kept_is_taken_from_its_device_and_from_no_whole_one() -> None:
    share = replace(nodes.ask(count=1), rules=PodRules(share=500, devices=1))
    found = nodes.ledger(nodes.node("a", cpu=8, gpu=2))
    view = View(found)
    assert place(view, [replace(share, rules=PodRules(share=300, devices=1))]) is None
    whole = [nodes.ask(count=1, gpu=1)]
    kept = view.keep(share, "a", 1, devices=(0,))
    assert place(view, [replace(share, name="other")]) is None, "the second device is free"
    assert place(view, [replace(share, name="third", rules=PodRules(share=300, devices=1))]) is None
    assert [taken.devices for taken in view.taken] == [(0,), (1,), (1,)]
    view.unkeep("a", kept)
    assert place(view, [replace(share, name="fourth")]) is None
    assert view.taken[-1].devices == (0,)
    opened = View(found)
    kept = opened.keep(share, "a", 1, devices=(0,))
    assert place(opened, whole) is None
    assert place(opened, whole) is not None
    opened.unkeep("a", kept)
    assert place(opened, whole) is None
