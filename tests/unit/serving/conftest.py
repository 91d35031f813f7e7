"""A log of a turbulent day, for all questions."""

from __future__ import annotations

from random import Random

import pytest

from kit.chaos import Chaos


@pytest.fixture(scope="session")
def chaos() -> Chaos:
    made = Chaos(Random(5))
    made.run(steps=200)
    return made
