"""Packed or spread: for the whole cluster, for pods with and without GPUs, and as a queue wants it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kit import nodes
from kit.bench import Bench
from kit.facts import amounts, next_rv, node, seen, tree, vector
from kit.kai import queue, work
from kit.podgangs import member
from kit.words import in_words
from muster.core.quota.trees.kaisource import DEFAULT_QUEUE
from muster.core.stage import Folder
from muster.events.decisions import GangAdmitted, QuotaTreeAccepted, QuotaTreeRejected
from muster.events.facts import PodObserved, TreeNodeSpec
from muster.events.gangs import PodsPlaced
from muster.events.system import PlacementChosen
from muster.model.placing import GPU
from muster.model.workload import PodSet
from muster.told.readmodel.model import ReadModel
from muster.told.views.story import Story

GPUS = PodSet("main", 4, vector(cpu=1) | {GPU: 1000})
CORES = PodSet("main", 4, vector(cpu=1))
HERE = (
    queue("team"),
    queue("packs", "team", placement="gpu=pack"),
    queue("spreads", "team", placement="spread"),
    queue("plain", "team"),
)


def begun(mode: str = "pack", *facts: Any, cpu: str | None = None) -> Bench:
    bench = Bench()
    chosen = PlacementChosen(mode=mode, cpu=cpu)  # type: ignore[arg-type]
    bench.append("gang_admitter", "input", [chosen])
    bench.facts(*(nodes.node(f"n{index}", cpu=32, memory=256, gpu=8) for index in range(4)), *(facts or HERE))
    bench.synced()
    bench.settle()
    return bench


def used(bench: Bench, name: str, pods: PodSet, of: str, **where: Any) -> int:
    """How many nodes a job of four pods is laid out on."""
    need = {key: amount * pods.count for key, amount in pods.request.items()}
    bench.facts(seen(work(name, of, need={"ack": need, "full": need}, pod_sets=(pods,), **where)))
    bench.settle()
    [found] = [each for each in bench.happened(GangAdmitted) if each.ref.name == name]
    return len({place.node for place in found.placements})


@pytest.mark.parametrize(
    ("mode", "cpu", "gpus", "cores"),
    [
        ("pack", None, 1, 1),
        ("spread", None, 4, 4),
        ("pack", "spread", 1, 4),
        ("spread", "pack", 4, 1),
    ],
)
def test_the_configuration_says_it_for_pods_with_and_without_gpus(
    mode: str, cpu: str | None, gpus: int, cores: int
) -> None:
    bench = begun(mode, cpu=cpu)
    assert used(bench, "gpus", GPUS, "plain") == gpus
    assert used(bench, "cores", CORES, "plain") == cores
    bench.sound()


@pytest.mark.parametrize(("of", "gpus", "cores"), [("plain", 1, 1), ("spreads", 4, 4), ("packs", 1, 1)])
def test_a_queue_says_it_for_its_own(of: str, gpus: int, cores: int) -> None:
    bench = begun("pack")
    assert used(bench, "gpus", GPUS, of) == gpus
    assert used(bench, "cores", CORES, of) == cores
    bench.sound()


def test_each_resource_by_the_lowest_queue_that_names_it_else_by_the_configuration() -> None:
    bench = begun("spread")
    assert used(bench, "gpus", GPUS, "packs") == 1
    assert used(bench, "cores", CORES, "packs") == 4
    above = (queue("team", placement="spread"), queue("packs", "team", placement="gpu=pack"))
    bench = begun("pack", *above)
    assert used(bench, "gpus", GPUS, "packs") == 1
    assert used(bench, "cores", CORES, "packs") == 4
    bench.sound()


def test_a_queue_that_says_nothing_that_can_be_read_is_disabled_with_the_way_out() -> None:
    bench = begun("pack", queue("team", placement="binpack"), queue("other"), queue(DEFAULT_QUEUE))
    [accepted] = bench.happened(QuotaTreeAccepted)
    told = in_words(accepted.tree.disabled["team"])
    assert "annotation muster.dev/placement: 'binpack' is no strategy; write pack, spread" in told
    assert set(accepted.tree.disabled) == {"team"}


def root(placement: str) -> TreeNodeSpec:
    whole = amounts(64, "512Gi", 32)
    leaf = replace(node("a", whole, whole, ("default",)), attributes={"muster.dev/placement": placement})
    return node("root", whole, whole, children=(leaf,))


def test_a_node_of_an_elastic_quota_tree_says_it_by_an_attribute() -> None:
    bench = begun("pack", tree(root("gpu=spread")))
    assert used(bench, "gpus", GPUS, "") == 4
    assert used(bench, "cores", CORES, "") == 1
    bench.sound()
    bench.facts(replace(tree(root("wide")), rv=next_rv()))
    bench.settle()
    [refused] = bench.happened(QuotaTreeRejected)
    assert "attribute muster.dev/placement: 'wide' is no strategy" in in_words(refused.violations[0])
    assert used(bench, "more", GPUS, "") == 4, "the last good tree stays in force"


def test_pods_that_name_us_follow_the_configuration() -> None:
    bench = begun("pack", cpu="spread")
    for index in range(4):
        bench.facts(PodObserved(pod=member(f"g{index}", "gpus", 4, request=GPUS.request)))
        bench.facts(PodObserved(pod=member(f"c{index}", "cores", 4, request=CORES.request)))
    bench.settle()
    found = {each.gangs[0]: len({pod.node for pod in each.pods}) for each in bench.happened(PodsPlaced)}
    assert found == {"video/gpus": 1, "video/cores": 4}
    bench.sound()


def test_why_says_which_rule_it_was() -> None:
    bench = begun("pack", cpu="spread")
    used(bench, "theirs", GPUS, "spreads")
    used(bench, "ours", GPUS, "plain")
    folder, state = Folder(ReadModel()), ReadModel().initial()
    for stored in bench.log:
        folder.fold(state, stored)

    def admitted(name: str) -> str:
        story = Story(f"default/{name}", "", state)
        found = story.of(story.matches().keys[0], acting=True, present=True)
        return next(each.entry.text for each in found.happenings if each.entry.word == "admitted")

    assert "by the rule gpu=spread,cpu=spread of queue kai/team/spreads" in admitted("theirs")
    assert "by the rule gpu=pack,cpu=spread of the configuration" in admitted("ours")
