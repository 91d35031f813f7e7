"""What one worker of a group offers to Ray; `tests/ray/test_judged.py` asks Ray itself about the same groups."""

from __future__ import annotations

import msgspec
import pytest

from kit.raytemplates import NAMED
from muster.core.workloads.ray import WorkerGroup
from muster.core.workloads.rayscaling import labels_of, offers_of
from muster.model.raydemand import RAY_UNIT


@pytest.mark.parametrize("name", NAMED)
def test_a_worker_offers_what_ray_reads_from_its_group(name: str) -> None:
    raw, wanted = NAMED[name]
    assert offers_of(msgspec.convert(raw, WorkerGroup)) == {key: each * RAY_UNIT for key, each in wanted.items()}


@pytest.mark.parametrize("odd", [None, [], "a=b", 7])
def test_labels_that_are_none_choose_nothing(odd: object) -> None:
    assert labels_of(msgspec.convert({"labels": odd}, WorkerGroup)) == {}
    assert labels_of(msgspec.convert({"labels": {"zone": "a", "kind": "spot"}}, WorkerGroup)) == {
        "kind": "spot",
        "zone": "a",
    }
