"""What knows each kind beside its reader: definitions, watches, hostile objects, and lists written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.crds import others
from kit.hostile import corpus
from kit.jobs import KINDS as KNOWN
from muster.core.reading.watched import WATCHED
from muster.core.workloads.edits import BY_HAND
from muster.core.workloads.registry import KINDS, POD_OWNERS
from muster.model import api

ROOT = Path(__file__).parents[4]
each_kind = pytest.mark.parametrize("kind", KINDS)


def test_the_definitions_of_others_serve_what_the_code_addresses() -> None:
    served = set()
    for definition in others():
        spec, version = definition["spec"], definition["spec"]["versions"][0]
        served.add((spec["names"]["kind"], f"{spec['group']}/{version['name']}", spec["names"]["plural"]))
    addressed = {(kind, row.resource.api_version, row.resource.plural) for kind, row in KINDS.items()}
    asked = api.PROVISIONING_REQUESTS
    addressed.add((asked.kind, asked.api_version, asked.plural))
    assert served <= addressed
    missing = {kind for kind, *_ in addressed - served} - {"RayJob", "RayCluster", "Job"}
    assert not missing, f"tests/kit/definitions has no CustomResourceDefinition of {missing}: add it there"


@each_kind
def test_hostile_objects_of_it_are_kept(kind: str) -> None:
    """Of kinds with a function of their own, and of each form of pods: one reader reads all the others."""
    plural = KINDS[kind].resource.plural
    cases = [case for case in corpus() if case.shard == plural]
    least = 10 if kind in BY_HAND or kind in ("Job", "PyTorchJob") else 0
    assert len(cases) >= least, f"tests/corpus/{plural} has {len(cases)} cases of {kind}: add some there, at least 10"


@each_kind
def test_what_is_written_by_hand_knows_it(kind: str) -> None:
    """The lists of kinds are made by `make schemas`; these are not."""
    policy, page = "deploy/policies/jobs-validated.yaml", "docs/reference/kinds.md"
    for field in {pointer.split("/")[2] for pointer in KNOWN[kind].templates}:
        assert field in (ROOT / policy).read_text(), f"{policy} reads no pods in spec.{field} of {kind}: add it there"
        assert field in KINDS[kind].ours, f"Muster writes no spec.{field} of {kind}: core/workloads/edits.py"
    row = f"| {kind} `{KINDS[kind].resource.api_version}` |"
    assert row in (ROOT / page).read_text(), f"{page} has no row for {kind}: add one there"


@each_kind
def test_its_objects_and_pods_are_watched(kind: str) -> None:
    row = KINDS[kind]
    assert WATCHED[row.resource.plural].resource == row.resource
    assert {*row.pods_of} <= POD_OWNERS
    assert (row.alone is not None) is (kind == "RayCluster"), "only a name in the status of its parent disowns a child"
    assert all(WATCHED[KINDS[child].resource.plural].both for child in row.children)
