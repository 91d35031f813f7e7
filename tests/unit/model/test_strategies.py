"""The words that say how pods are laid out on nodes."""

from __future__ import annotations

import pytest

from muster.model.strategies import StrategyError, inherited, strategies, strategies_text


def test_one_word_is_for_everything_and_each_resource_may_have_its_own() -> None:
    assert strategies("") == {}
    assert strategies("spread") == {"gpu": "spread", "cpu": "spread"}
    assert strategies("gpu=pack, cpu=spread") == {"gpu": "pack", "cpu": "spread"}
    assert strategies_text(strategies("gpu=spread")) == "gpu=spread"
    assert strategies(strategies_text(strategies("pack"))) == strategies("pack")


@pytest.mark.parametrize("text", ["binpack", "gpu", "gpu=", "gpu=pack,", "tpu=pack", "gpu=pack,gpu=spread", "=", ","])
def test_anything_else_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(StrategyError, match="not_a_strategy"):
        strategies(text)


def test_the_lowest_that_names_a_resource_counts() -> None:
    assert inherited(["spread", "", "cpu=pack", "gpu=pack,cpu=spread", ""]) == {"gpu": "pack", "cpu": "spread"}
    assert inherited(["spread", "cpu=pack"]) == {"gpu": "spread", "cpu": "pack"}
