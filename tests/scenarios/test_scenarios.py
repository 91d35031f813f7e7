"""Every scenario file plays out as written."""

from pathlib import Path

import pytest

from kit.scenario import play

FILES = sorted(Path(__file__).parent.rglob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}/{p.stem}" for p in FILES])
def test_scenario_plays_out_as_written(path: Path) -> None:
    play(path)
