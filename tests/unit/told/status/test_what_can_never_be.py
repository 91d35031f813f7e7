"""A job beyond a limit that people have set is told so, whatever the nodes have and wherever it waits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kit import facts
from kit.kai import queue
from kit.packed import Packed, Shape

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("kai", [True, False])
def test_a_limit_that_falls_below_a_job_that_lacks_nodes_is_told(*, kai: bool) -> None:
    cluster = Packed([2, 2], {"b": 0, "a": 0}, kai=kai)
    cluster.arrives("wide", "b", Shape(1, 3))
    first = "Its pod asks for nvidia.com/gpu 3, and the largest of 2 nodes has 2. No node there is can run it"
    assert cluster.told("wide").startswith(first)
    if kai:
        cluster.bench.facts(queue("b", gpu=(0, 2, 1)))
    else:
        leaves = tuple(facts.node(name, {"gpu": 0}, {"gpu": 2}, (name,)) for name in ("b", "a"))
        cluster.bench.facts(facts.tree(facts.node("root", {"gpu": 4}, {"gpu": 4}, children=leaves)))
    cluster.settle()
    told = cluster.told("wide")
    assert told.startswith(first)
    assert f"Exceeds quota({GPU}) in " in told
    assert "request 3, " + ("limit" if kai else "max") + " 2. It can never be admitted like this" in told
    assert "position 1 of 1, no job is ahead" in told


def test_a_job_beyond_its_own_quota_is_not_told_to_wait_for_nodes() -> None:
    cluster = Packed([2, 1], {"b": 3, "a": 0}, kai=True)
    created = cluster.created("wide", "b", Shape(4, 1))
    job = replace(created.workload, priority_class="build")
    cluster.jobs["wide"] = job
    cluster.bench.facts(facts.seen(job))
    cluster.settle()
    told = cluster.told("wide")
    assert "in queue b for non-preemptible jobs: request 4, quota 3" in told
    assert "raise the quota, lower the request or make it preemptible" in told
