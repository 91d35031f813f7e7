"""A supposed tree passes the rules of an applied tree, and a supposed resource is one that exists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit import facts, nodes
from kit.scenes import Scene
from muster.core.quota.trees.treesource import as_written, read_tree
from muster.core.stage import Folder
from muster.events.facts import QuotaTreeObserved
from muster.serving.scope import EVERYTHING, Lens
from muster.serving.supposed import Change, WhatIf
from muster.serving.views import moment_of
from muster.serving.whatif import ChangeError, what_if
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState

GPU = "nvidia.com/gpu"
INTERNS = "root/research/interns"


def amounts(gpu: int, most: int) -> tuple[dict[str, int], dict[str, int]]:
    return {"cpu": gpu * 8, "gpu": gpu}, {"cpu": most * 8, "gpu": most}


@pytest.fixture(scope="module")
def state() -> ReadState:
    """The tree of the demo: research is guaranteed 24 GPUs, its children 8, 12 and 0."""
    scene, children = Scene(), (("vision", 8, 24), ("language", 12, 32), ("interns", 0, 16))
    research = facts.node("research", *amounts(24, 32), children=tuple(
        facts.node(name, *amounts(least, most), (name,)) for name, least, most in children
    ))  # fmt: skip
    scene.do(facts.tree(facts.node("root", *amounts(32, 32), children=(research,))))
    scene.do(*(nodes.node(f"n{index}", cpu=64, memory=512, gpu=8) for index in range(4)))
    scene.lines("synced")
    scene.do(facts.seen(facts.job("one", "vision", gpu=2)))
    read, folder = ReadState(), Folder(ReadModel())
    for stored in scene.bench.log:
        folder.fold(read, stored)
    return read


def tried(state: ReadState, *changes: Change) -> WhatIf:
    return what_if(state, Lens(EVERYTHING, state), moment_of(state, state.now, live=True), changes, state.now)


def test_mins_of_children_above_the_parent_are_refused_as_lint_does(state: ReadState) -> None:
    with pytest.raises(ChangeError, match=r"would refuse this tree: root/research: .*gpu.* 28, .* 24"):
        tried(state, Change(queue=INTERNS, field="min", resource=GPU, value="8"))
    both = (Change(queue="root/research", field="min", resource=GPU, value="28"),)
    tried(state, *both, Change(queue=INTERNS, field="min", resource=GPU, value="8"))


@pytest.mark.parametrize(
    ("queue", "field", "value"),
    [
        ("root/research/vision", "min", "25"),  # Above its own max.
        ("root/research/vision", "max", "7"),  # Below its own min.
        ("root", "max", "16"),  # Below the sum of its children.
        ("root/research", "min", "10"),  # Below the sum of its children.
        ("root/research/vision", "max", "-1"),
        ("root/research/vision", "max", "a lot"),
    ],
)
def test_no_tree_is_supposed_that_would_not_be_put_in_force(
    state: ReadState, queue: str, field: str, value: str
) -> None:
    with pytest.raises(ChangeError):
        tried(state, Change(queue=queue, field=field, resource=GPU, value=value))


def test_the_min_and_the_max_of_the_root_are_one_number(state: ReadState) -> None:
    for field in ("min", "max"):
        assert tried(state, Change(queue="root", field=field, resource=GPU, value="40")).waiting == 0


def test_a_resource_that_nobody_has_is_named_with_the_nearest(state: ReadState) -> None:
    with pytest.raises(ChangeError, match=r"no node and no quota has nvidia.com/gpus; there is nvidia.com/gpu$"):
        tried(state, Change(queue=INTERNS, field="max", resource="nvidia.com/gpus", value="8"))
    with pytest.raises(ChangeError, match="there is memory"):
        tried(state, Change(job="vision/one", resource="memory-gib", value="8Gi"))


@given(least=st.integers(0, 40), most=st.integers(0, 40), above=st.integers(0, 40))
def test_the_judgement_is_that_of_the_applied_object(state: ReadState, least: int, most: int, above: int) -> None:
    """Accepted exactly if the same tree, written down by hand, is accepted."""
    research = facts.node("research", *amounts(above, 32), children=(
        facts.node("vision", *amounts(8, 24), ("vision",)), facts.node("language", *amounts(12, 32), ("language",)),
        facts.node("interns", *amounts(least, most), ("interns",)),
    ))  # fmt: skip
    root = facts.node("root", *amounts(32, 32), children=(research,))
    right = not read_tree(facts.tree(root))[1]
    changes = [
        Change(queue=queue, field=field, resource=name, value=str(gpu * size))
        for queue, field, gpu in (("root/research", "min", above), (INTERNS, "min", least), (INTERNS, "max", most))
        for name, size in ((GPU, 1), ("cpu", 8))
    ]
    try:
        tried(state, *changes)
    except ChangeError:
        assert not right
    else:
        assert right


def test_a_tree_in_force_reads_as_it_was_written(state: ReadState) -> None:
    for tree in state.queues.ledger.trees.values():
        again, broken = read_tree(QuotaTreeObserved(ref=tree.ref, rv=0, created=0, root=as_written(tree), rules={}))
        assert not broken
        assert again.nodes == tree.nodes
