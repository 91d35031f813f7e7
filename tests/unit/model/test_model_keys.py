"""Names of things: references, intents, quota paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.keys import Intent, Ref, parent_path, path_chain

numbers = st.integers(0, 10**18 - 1)


@given(numbers, numbers, numbers)
def test_an_intent_is_read_as_it_was_written(generation: int, seq: int, item: int) -> None:
    intent = Intent(generation, seq, item)
    assert Intent.parse(str(intent)) == intent


OTHERS = ["1", "1-2", "1-2-3-4", "1--2", "-1-2-3", "1-2-", "a-b-c", "+1-2-3", "1_0-2-3", "²-1-1", "١-1-1", "1.0-2-3"]


@pytest.mark.parametrize("text", [*OTHERS, "", "1-2-3 ", " 1-2-3", "1-2-3\n", "9" * 19 + "-1-1"])
def test_what_somebody_else_wrote_is_no_intent(text: str) -> None:
    assert Intent.parse(text) is None


def test_the_newer_decision_is_the_larger_intent() -> None:
    ordered = [Intent(1, 2, 3), Intent(1, 2, 10), Intent(1, 10, 0), Intent(2, 1, 0), Intent(10, 0, 0)]
    assert sorted(ordered, key=str) != ordered
    assert sorted(ordered) == ordered


def test_a_reference_reads_as_kind_and_key() -> None:
    assert str(Ref("RayJob", "video", "train", "u")) == "RayJob video/train"
    assert str(Ref("Node", "", "node-1", "u")) == "Node node-1"
    assert Ref("RayJob", "video", "train", "u1") != Ref("RayJob", "video", "train", "u2")


@pytest.mark.parametrize(
    ("path", "parent", "chain"),
    [
        ("root", None, ("root",)),
        ("root/a", "root", ("root/a", "root")),
        ("root/a/b", "root/a", ("root/a/b", "root/a", "root")),
        ("root/root", "root", ("root/root", "root")),
    ],
)
def test_paths_lead_up_to_the_root(path: str, parent: str | None, chain: tuple[str, ...]) -> None:
    assert parent_path(path) == parent
    assert path_chain(path) == chain


@given(st.lists(st.text(alphabet="ab-.", min_size=1, max_size=3), min_size=1, max_size=8))
def test_each_step_of_a_chain_is_the_parent_of_the_one_before(names: list[str]) -> None:
    chain = path_chain("/".join(names))
    assert len(chain) == len(names)
    assert [parent_path(path) for path in chain] == [*chain[1:], None]
