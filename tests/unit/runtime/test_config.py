"""Settings that cannot be used: each is named as it was written, with its value and what it takes."""

from pathlib import Path

import pytest

from muster.runtime.config import Config, ConfigError, load


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("MUSTER_PLACEMENT", "pak", "MUSTER_PLACEMENT is 'pak'; take off, native, pack or spread"),
        ("MUSTER_LOG_LEVEL", "loud", "MUSTER_LOG_LEVEL is 'loud'; take debug, info, warning or error"),
        ("MUSTER_ACT", "maybe", "MUSTER_ACT is 'maybe'; take true or false"),
        ("MUSTER_RULESET", "new", "MUSTER_RULESET is 'new'; take a whole number"),
        ("MUSTER_REPLICAS", "2", "MUSTER_REPLICAS is '2'; take 1, 3 or 5"),
        ("MUSTER_PLACEMENT_GROW_S", "-5", "MUSTER_PLACEMENT_GROW_S is '-5'; take a whole number from 0 to 86400"),
        ("MUSTER_LOG_KEEP", "-1", "MUSTER_LOG_KEEP is '-1'; take a whole number, 0 or more"),
        ("MUSTER_PLACMENT", "pack", "MUSTER_PLACMENT is no setting; did you mean MUSTER_PLACEMENT?"),
        ("MUSTER_CONFIG", "/nowhere", "cannot read /nowhere, which MUSTER_CONFIG names: No such file or directory"),
    ],
)
def test_a_variable_is_named_with_its_value_and_what_it_takes(name: str, value: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load({name: value})
    assert str(refused.value) == told


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "muster.yaml"
    file.write_text("placement_moves: 65\nreplicas: two\n")
    with pytest.raises(ConfigError) as refused:
        load({"MUSTER_CONFIG": str(file), "MUSTER_ACT": "perhaps", "MUSTER_NOTHING_LIKE_IT": "1"})
    problems = str(refused.value).split("; ")
    assert f"placement_moves of {file} is 65" in problems and f"replicas of {file} is 'two'" in problems
    assert "MUSTER_ACT is 'perhaps'" in problems and "MUSTER_NOTHING_LIKE_IT is no setting" in problems


def test_what_is_written_as_in_the_docs_is_taken() -> None:
    assert load({"MUSTER_REPLICAS": "3", "MUSTER_ACT": "false", "MUSTER_PLACEMENT_HOLD_S": "90"}) == Config(
        replicas=3, act=False, placement_hold_s=90
    )
