"""A child and its own children state the same pods: they are charged once, in whichever order they are observed."""

from __future__ import annotations

from typing import Any

import pytest

from kit import jobs, ray
from kit.charges import CPU, Cell

Obj = dict[str, Any]


def of(owner: Obj | None, made: Obj, name: str) -> Obj:
    """An object by this name, made by the controller of ``owner``."""
    made["metadata"] = {"name": name, "namespace": "ns", "uid": f"{name}-uid", "generation": 1}
    if owner is not None:
        marks = {key: owner[key] for key in ("apiVersion", "kind")}
        marks |= {key: owner["metadata"][key] for key in ("name", "uid")}
        made["metadata"]["ownerReferences"] = [{**marks, "controller": True}]
    return made


def trained() -> tuple[Obj, list[tuple[str, Obj]]]:
    top = of(None, jobs.trainjob(nodes=2), "top")
    inner = jobs.jobset(suspend=False)
    inner["spec"]["replicatedJobs"] = inner["spec"]["replicatedJobs"][1:]
    jobset = of(top, inner, "top-set")
    return top, [("jobsets", jobset), ("jobs", of(jobset, jobs.job(suspend=False), "top-set-workers-0"))]


def wrapped() -> tuple[Obj, list[tuple[str, Obj]]]:
    inner = ray.rayjob("", suspend=False)
    inner["spec"].pop("suspend", None)
    top = of(None, jobs.appwrapper(components=[{"template": inner}]), "top")
    job = of(top, ray.rayjob("", suspend=False), "top-job")
    return top, [("rayjobs", job), ("rayclusters", of(job, ray.raycluster(), "top-job-cluster"))]


@pytest.mark.parametrize("make", [trained, wrapped])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_pods_that_two_objects_state_are_charged_once(make: Any, order: tuple[int, ...]) -> None:
    top, children = make()
    cell, shard = Cell("full"), f"{top['kind'].lower()}s"
    cell.sees(shard, top)
    top["spec"]["suspend"] = False
    cell.sees(shard, top)
    granted = cell.charged("top-uid")
    assert granted["cpu"] >= 2 * CPU
    for index in order:
        cell.sees(*children[index])
    assert cell.charged("top-uid") == granted and not cell.over("top-uid")
    cell.bench.check()
