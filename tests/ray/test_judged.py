"""Ray's own code judges what Muster computes of Ray clusters. No cluster runs."""

from __future__ import annotations

import msgspec

from kit.raytemplates import NAMED, drawn
from kit.realray.judging import OFFERS, asked
from muster.core.workloads.ray import WorkerGroup
from muster.core.workloads.rayscaling import offers_of
from muster.model.raydemand import RAY_UNIT


def test_what_a_worker_offers_is_what_ray_reads() -> None:
    groups = [raw for raw, _ in NAMED.values()] + drawn(23, 3_000)
    readable = 0
    for raw, said in zip(groups, asked(OFFERS, groups), strict=True):
        found = offers_of(msgspec.convert(raw, WorkerGroup))
        if isinstance(said, dict):
            readable += 1
            assert found == {name: int(each) * RAY_UNIT for name, each in sorted(said.items()) if each}, raw
        else:
            assert found == {}, (raw, said)
    assert readable > len(groups) // 2
