"""Annotation ``ray.io/ippr``: what it lets pods of a Ray cluster become, and what we write there."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from muster.core.workloads import rayscaling
from muster.core.workloads.ray import RayClusterSpec

AMOUNTS = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
SIZE = {"max-cpu": "4", "max-memory": "8Gi", "resize-timeout": 60}


def spec(resources: Any = AMOUNTS) -> RayClusterSpec:
    template = {"spec": {"containers": [{"name": "ray", "resources": resources}]}}
    raw = {
        "headGroupSpec": {"template": template},
        "workerGroupSpecs": [{"groupName": "small", "template": template}],
    }
    return msgspec.convert(raw, RayClusterSpec)


def text(**groups: Any) -> str:
    return json.dumps({"groups": groups})


def test_a_closed_group_has_the_size_of_its_template_and_an_open_one_what_its_owner_wants() -> None:
    own = text(small=SIZE, headgroup=SIZE, unknown=SIZE)
    closed = rayscaling.notes_of(spec(), {"ray.io/ippr": own}, ())
    same = {"max-cpu": "2000m", "max-memory": str(2 * 2**30), "resize-timeout": 60}
    assert json.loads(closed["ray.io/ippr"])["groups"] == {"headgroup": same, "small": same}
    assert (closed["muster.dev/ippr"], closed["muster.dev/resize"]) == (own, "")
    opened = rayscaling.notes_of(spec(), closed, ("small",))
    assert json.loads(opened["ray.io/ippr"])["groups"] == {"headgroup": same, "small": SIZE}
    # Ray keeps the distance between requests and limits.
    assert opened["muster.dev/resize"] == f"small/cpu=3000m,small/memory={7 * 2**30}"
    assert rayscaling.growing(opened) == ("small",)
    assert rayscaling.notes_of(spec(), opened, ("small",)) == opened, "written again it is the same"
    assert rayscaling.notes_of(spec(), opened, ()) == closed


def test_what_was_allowed_is_taken_back_when_its_owner_takes_the_annotation_away() -> None:
    opened = rayscaling.notes_of(spec(), {"ray.io/ippr": text(small=SIZE)}, ("small",))
    del opened["ray.io/ippr"]
    assert rayscaling.notes_of(spec(), opened, ()) == {"muster.dev/resize": ""}
    assert rayscaling.notes_of(spec(), {}, ()) == {}


@pytest.mark.parametrize(
    "odd",
    [
        "", "{", "[]", "null", "7", '{"groups": []}', '{"groups": {"small": []}}', '{"groups": {"small": {}}}',
        text(small={"max-cpu": "many"}), text(small={"max-cpu": True}), text(small={"max-cpu": -4}),
        text(small={"max-cpu": "1e99"}), text(small={"max-cpu": 1}), text(small={"max-memory": {}}),
        '{"muster.dev": true, "groups": {"small": {"max-cpu": 64}}}', "{" * 20_000, text(small=SIZE) + " " * 20_000,
    ],
)  # fmt: skip
def test_whatever_stands_there_nothing_may_grow_by_it(odd: str) -> None:
    notes = {"ray.io/ippr": odd}
    made = msgspec.convert({"groupName": "small"}, rayscaling.WorkerGroup)
    raw = (spec().worker_group_specs or (made,))[0]
    group = rayscaling.with_growth(rayscaling.ScaledGroup("small"), raw, rayscaling.sizes_of(notes))
    assert not group.grows
    assert not rayscaling.notes_of(spec(), notes, ("small",)).get("muster.dev/resize")


def test_a_group_that_does_not_say_its_size_is_left_out_as_ray_refuses_it() -> None:
    own = {"ray.io/ippr": text(small=SIZE)}
    for resources in ({}, {"requests": {"cpu": "1"}}, {"limits": {"memory": "1Gi"}}):
        assert json.loads(rayscaling.notes_of(spec(resources), own, ("small",))["ray.io/ippr"])["groups"] == {}
