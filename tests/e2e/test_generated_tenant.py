"""A tenant made from the server's own OpenAPI edits every field of every kind, alone and in pairs, while it waits, runs
or is part of another object: nothing starts, nothing that runs asks for more, and nothing is steered otherwise.

A sample for each kind here; `make attack` goes on for an hour (MUSTER_ATTACK_S: seconds for all of them).
"""

import copy
import itertools
import os
import time

import pytest

from kit import jobs
from kit.cluster import RAY
from kit.controlplane import ControlPlane
from kit.guarded import ALICE, MANAGED, client, job
from kit.kubeclient import ApiError, KubeClient, Object
from kit.tenant import all_edits, complaint, patches, schemas_of
from muster.core.workloads.registry import KINDS

SECONDS = float(os.environ.get("MUSTER_ATTACK_S", "0"))
SAMPLE = 120
"""Edits of one object here: the hour takes all of them, and pairs."""
SEED = int(os.environ.get("MUSTER_ATTACK_SEED", "21"))
STATES = ("waits", "runs")
PARTS = ("RayCluster", "Job")
"""Kinds that are also part of another object."""


async def prepared(admin: KubeClient, kind: str, state: str, parent: str) -> Object:
    """An object of Alice's in a state. ``parent``: uid of the RayJob that it may be part of."""
    body = job(suspend=True) if kind == "RayJob" else jobs.KINDS[kind].make("tried", MANAGED)
    body["metadata"].pop("generateName", None)
    body["metadata"] |= {"name": "tried", "annotations": {"mine": "1"}}
    if state == "part":
        owner = {"apiVersion": RAY, "kind": "RayJob", "name": "parent", "uid": parent, "controller": True}
        body["metadata"]["ownerReferences"] = [owner]
    found = await admin.create(body)
    if state != "waits":
        _, *above, field = KINDS[kind].suspend_path.split("/")
        start: Object = {field: False}
        for key in reversed(above):
            start = {key: start}
        start["metadata"] = {"annotations": {"muster.dev/intent": "1-7-0"}}
        found = await admin.patch(found["apiVersion"], kind, "tried", MANAGED, patch=start)
    return found


CASES = [(kind, state) for kind in KINDS for state in (*STATES, *(("part",) if kind in PARTS else ()))]


@pytest.mark.timeout(max(120, int(SECONDS)))
@pytest.mark.parametrize(("kind", "state"), CASES, ids=lambda each: str(each))
async def test_no_edit_of_a_tenant_lets_more_run(plane: ControlPlane, kind: str, state: str) -> None:
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        schemas = await schemas_of(admin)
        parent = job(suspend=True)
        parent["metadata"].pop("generateName", None)
        parent["metadata"]["name"] = "parent"
        uid = (await admin.create(parent))["metadata"]["uid"]
        try:
            found = await prepared(admin, kind, state, uid)
            edits = all_edits(schemas, found)
            assert len(edits) > 40
            tried = patches(edits, SEED)
            until, passed = time.monotonic() + SECONDS / len(CASES), 0
            chosen = tried if SECONDS else itertools.islice(tried, SAMPLE)
            for patch in chosen:
                if SECONDS and time.monotonic() > until:
                    break
                try:
                    after = await alice.patch(found["apiVersion"], kind, "tried", MANAGED, patch=copy.deepcopy(patch))
                except ApiError as err:
                    assert err.status in (400, 403, 404, 409, 422), (patch, err)
                    continue
                wrong = complaint(found, after)
                assert not wrong, f"{kind} that {state}: {patch} passed, and {wrong}"
                passed += 1
                await admin.delete(found["apiVersion"], kind, "tried", MANAGED, grace_s=0)
                found = await prepared(admin, kind, state, uid)
        finally:
            for name, each in (("tried", kind), ("parent", "RayJob")):
                await admin.delete(KINDS[each].resource.api_version, each, name, MANAGED, grace_s=0)
        assert passed, "nothing passes: what a tenant may do does not work either"


async def test_the_judge_of_the_tenant_sees_what_grows() -> None:
    for kind, pointer, value in (
        ("RayCluster", "/spec/workerGroupSpecs/0", {"replicas": 40}),
        ("RayCluster", "/spec/headGroupSpec/template/spec", {"overhead": {"cpu": "64"}}),
        ("Job", "/spec/template/spec", {"resources": {"requests": {"cpu": "64"}}}),
        ("PyTorchJob", "/spec", {"elasticPolicy": {"maxReplicas": 40}}),
        ("TFJob", "/spec/tfReplicaSpecs/PS/template/spec", {"nodeName": "node-0"}),
    ):
        before = jobs.KINDS[kind].make("tried", MANAGED)
        _, *above, field = KINDS[kind].suspend_path.split("/")
        jobs.at(before, "/" + "/".join(above))[field] = False
        after = copy.deepcopy(before)
        jobs.at(after, pointer).update(value)
        assert complaint(before, after) and not complaint(before, before), (kind, value)
