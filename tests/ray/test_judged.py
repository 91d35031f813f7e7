"""Ray's own code judges what Muster computes of Ray clusters. No cluster runs."""

from __future__ import annotations

import os
from random import Random

import msgspec
import pytest

from kit import raydemands
from kit.raytemplates import NAMED, drawn
from kit.realray.judging import LAUNCHES, OFFERS, asked
from muster.core.workloads.ray import WorkerGroup
from muster.core.workloads.rayscaling import offers_of
from muster.model.raydemand import RAY_UNIT

CASES = int(os.environ.get("MUSTER_TEST_DEMANDS", "1500"))
"""Demands of each kind: half a minute for 1,500."""
SAME, SIZE = 0.98, 1.02


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


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("labels", [False, True], ids=["plain", "labels"])
def test_the_groups_that_grow_are_those_that_ray_would_have_grow(labels: bool) -> None:
    cases = [raydemands.drawn(seed, labels=labels, joined=seed % 3 > 0) for seed in range(CASES)]
    found = [raydemands.launched(raydemands.wish(case), raydemands.elastic_of(case)) for case in cases]
    said = asked(LAUNCHES, cases, within_s=1_700)
    different = [seed for seed in range(CASES) if found[seed] != dict(sorted(said[seed].items()))]
    sizes = [
        sum(raydemands.cost(case, one)["CPU"] for case, one in zip(cases, counts, strict=True))
        for counts in (found, said)
    ]
    print(
        f"{CASES} demands: {len(different)} differ from Ray's choice {different[:10]}; size {sizes[0] / sizes[1]:.4f}"
    )
    assert len(different) <= CASES * (1 - SAME), different
    assert sizes[0] <= sizes[1] * SIZE


@pytest.mark.timeout(1_800)
def test_with_quota_ray_uses_what_is_granted_and_nothing_waits_that_one_more_worker_would_hold() -> None:
    chance, cases, quotas = Random(23), [], []
    for seed in range(CASES // 3):
        cases.append(raydemands.drawn(seed, labels=seed % 2 > 0, joined=seed % 3 > 0))
        quotas.append({"CPU": chance.choice([0, 4, 8, 16, 40]), "GPU": chance.choice([0, 0, 1, 2, 8])})
    granted = [raydemands.settled(case, quota) for case, quota in zip(cases, quotas, strict=True)]
    used = asked(LAUNCHES, [raydemands.gated(case, most) for case, most in zip(cases, granted, strict=True)])
    unused = [
        seed
        for seed, (case, most, said) in enumerate(zip(cases, granted, used, strict=True))
        if raydemands.plus(raydemands.elastic_of(case).sizes, said) != most
    ]
    tries = [
        (seed, raydemands.gated(cases[seed], most))
        for seed in range(len(cases))
        for most in raydemands.one_more(cases[seed], quotas[seed], granted[seed])
    ]
    more = asked(LAUNCHES, [case for _, case in tries], within_s=1_700)
    waits = {
        seed
        for (seed, _), said in zip(tries, more, strict=True)
        if sum(said.values()) > sum(used[seed].values())
        and all(said.get(name, 0) >= n for name, n in used[seed].items())
    }
    print(
        f"{len(cases)} demands with quota: {len(unused)} with a grant too many {unused}, {len(waits)} that wait {waits}"
    )
    assert len(unused) <= len(cases) * (1 - SAME)
    assert len(waits) <= len(cases) * (1 - SAME)
