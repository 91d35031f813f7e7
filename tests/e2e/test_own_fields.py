"""Every field of every object that Muster's actuator may patch: what is not Muster's to write is refused. On a real API
server with the shipped roles and policies; the fields are those of its own OpenAPI, the kinds those of the role.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest

from kit import jobs
from kit.cluster import SCHEDULING, TREES
from kit.controlplane import ControlPlane
from kit.deployed import of_kind, rights
from kit.guarded import ACTUATOR, MANAGED, client, gang_pod, job
from kit.kubeclient import ApiError, KubeClient, Object
from kit.tenant import Edit, Schemas
from muster.core.workloads.registry import KINDS

KAI = "scheduling.run.ai"
TEMPLATES = ("*.template.metadata.annotations*", "*.template.spec.schedulerName", "*.template.spec.schedulingGroup*")
TEMPLATES += ("*.template.spec.nodeSelector*", "*.template.spec.tolerations*")  # Of the flavors of a job.
MARKS = ("metadata.annotations.muster.dev/*", "metadata.annotations.scheduling.x-k8s.io/suspend")
GROUPS = ("metadata.annotations.muster.dev/*",)
WRITES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(KINDS, (*TEMPLATES, *MARKS, "*.suspend")),
    "RayCluster": (
        *TEMPLATES,
        *MARKS,
        "*.suspend",
        *(f"*.{key}*" for key in ("replicas", "maxReplicas", "scaleStrategy")),
    ),
    "SparkApplication": (
        "spec.driver.schedulerName",
        "spec.executor.schedulerName",
        "*.annotations*",
        *MARKS,
        "*.suspend",
    ),
    "Pod": ("metadata.labels.runai-gpu-group", "status.conditions*"),
    "ConfigMap": (),
    "Event": (),
    "ElasticQuotaTree": ("status*",),
    "Queue": (),
    f"Queue.{KAI}": ("status*",),
    "QueueUnit": ("spec*", "status*", "metadata.labels*", "metadata.annotations*", "metadata.ownerReferences*"),
    "PodGroup": ("status*", *GROUPS),
    f"PodGroup.{KAI}": ("status*", "metadata.labels.kai.scheduler/queue", "metadata.ownerReferences*", *GROUPS),
}
"""{kind: fields of an object of others that Muster may write}"""
WRITES |= {kind: (*WRITES[kind], *WRITES["RayCluster"]) for kind in ("RayJob", "RayService")}
WRITES["RayJob"] = (*WRITES["RayJob"], "spec.submitterPodTemplate")  # Empty: it gets its scheduler there.
WRITES["Job"] = (*WRITES["Job"], "status*")  # By its controller, meanwhile.


def theirs() -> Iterator[Object]:
    """An object of others of each kind that the actuator may patch."""
    for kind in KINDS:
        yield job(suspend=True) if kind == "RayJob" else jobs.KINDS[kind].make("theirs", MANAGED)
    yield gang_pod(spec={"schedulerName": "muster", "nodeName": "node-0"}, labels={"app": "theirs"})
    about = {"kind": "Pod", "name": "x", "namespace": MANAGED}
    data: Object = {"key": "x"}
    root = {"name": "root", "max": {"cpu": "1"}, "min": {"cpu": "1"}}
    bodies: list[tuple[str, str, Object]] = [
        ("v1", "ConfigMap", {"data": data}),
        ("v1", "Event", {"involvedObject": about, "reason": "Real", "message": "x", "type": "Normal"}),
        (TREES, "ElasticQuotaTree", {"spec": {"root": root}}),
        (SCHEDULING, "Queue", {"spec": {"queuePolicy": "Round"}}),
        (SCHEDULING, "QueueUnit", {"spec": {"priority": 0, "consumerRef": {"kind": "Job", "name": "x"}}}),
        ("scheduling.x-k8s.io/v1alpha1", "PodGroup", {"spec": {"minMember": 1}}),
        ("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", {"spec": {"minMember": 1}}),
        (f"{KAI}/v2alpha2", "PodGroup", {"spec": {"minMember": 1, "queue": "theirs"}}),
        (f"{KAI}/v2", "Queue", {"spec": {"parentQueue": "x"}}),
    ]
    for api_version, kind, body in bodies:
        yield {"apiVersion": api_version, "kind": kind, "metadata": {"labels": {"app": "theirs"}}, **body}


def called(found: Object) -> str:
    group = found["apiVersion"].partition("/")[0]
    return f"{found['kind']}.{KAI}" if group == KAI else str(found["kind"])


def leaves(value: Any, at: str = "") -> dict[str, Any]:
    """{field: value} of all that says something; places of lists are one."""
    if isinstance(value, dict) and value:
        return {path: each for key in value for path, each in leaves(value[key], f"{at}.{key}").items()}
    if isinstance(value, list) and value:
        return {path: each for index, item in enumerate(value) for path, each in leaves(item, f"{at}.{index}").items()}
    return {at.removeprefix("."): value}


KEPT = re.compile(r"metadata\.(managedFields|resourceVersion|generation|generateName|selfLink)\b")
"""Written by the server with every change, or read by nothing."""


def changed(before: Object, after: Object) -> set[str]:
    was, now = leaves(before), leaves(after)
    return {path for path in was.keys() | now.keys() if was.get(path) != now.get(path) and not KEPT.match(path)}


async def schemas_of(kube: KubeClient, found: list[Object]) -> Schemas:
    paths = {f"apis/{each['apiVersion']}" if "/" in each["apiVersion"] else "api/v1" for each in found}
    return Schemas({path: await kube.request("GET", f"/openapi/v3/{path}") for path in sorted(paths)})


def edits_of(schemas: Schemas, found: Object) -> list[Edit]:
    """All fields; the marks of metadata by which others find or judge an object too."""
    group, _, version = found["apiVersion"].rpartition("/")
    schema = schemas.of_kind(group, version, found["kind"])
    kept = {key: each for key, each in found["metadata"].items() if key != "managedFields"}
    made = [*schemas.edits(schema, {**found, "metadata": kept}, "")]
    marks = {"other": "1", "kai.scheduler/queue": "theirs", "muster.dev/overuse-timeout": "1s", "app": "other"}
    made += [
        {"op": "add", "path": f"/metadata/{part}", "value": {**kept.get(part, {}), key: text}}
        for part in ("labels", "annotations")
        for key, text in marks.items()
    ]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}
    made.append({"op": "add", "path": "/metadata/ownerReferences", "value": [owner]})
    made.append({"op": "add", "path": "/metadata/finalizers", "value": ["a.example/b"]})
    return [each for each in made if each["path"] != "/metadata/managedFields"]


def test_every_kind_that_the_role_allows_to_patch_is_tried() -> None:
    patched = {right for right in rights(of_kind("ClusterRole")["muster-actuator"]) if right.verb == "patch"}
    tried = {(each["apiVersion"].rpartition("/")[0], each["kind"].lower() + "s") for each in theirs()}
    assert {(right.group, right.resource.partition("/")[0]) for right in patched} == tried


@pytest.mark.parametrize("made", [*theirs()], ids=called)
async def test_the_actuator_writes_no_foreign_field(plane: ControlPlane, made: Object) -> None:
    kind, name = called(made), "theirs"
    meta: Object = {**made["metadata"], "name": name, "annotations": {"note": "1"}}
    meta.pop("generateName", None)
    if kind not in ("ElasticQuotaTree", f"Queue.{KAI}"):
        meta["namespace"] = MANAGED
    if kind == "ElasticQuotaTree":
        meta["namespace"] = "kube-system"
    async with client(plane, ACTUATOR) as actuator, client(plane, plane.admin) as admin:
        found = await admin.create({**made, "metadata": meta})
        about = found["apiVersion"], found["kind"], name, meta.get("namespace")
        group, resource = found["apiVersion"].rpartition("/")[0], found["kind"].lower() + "s"
        role = rights(of_kind("ClusterRole")["muster-actuator"])
        parts = ["", *(["status"] if ("patch", group, f"{resource}/status") in role else [])]
        path = await admin._path(*about[:2], about[3], name)
        limit, wrong, seen = asyncio.Semaphore(8), [], 0

        async def attempt(part: str, edit: Edit) -> None:
            nonlocal seen
            async with limit:
                try:
                    after = await actuator.request(
                        "PATCH",
                        f"{path}/{part}".rstrip("/"),
                        body=[edit],
                        params={"dryRun": "All"},
                        content_type="application/json-patch+json",
                    )
                except ApiError as err:
                    seen += err.status == 403
                    return  # A server that cannot read a change does not make it either.
            foreign = [
                each
                for each in changed(found, after)
                if not any(fnmatchcase(each, pattern) for pattern in WRITES[kind])
            ]
            if foreign:
                wrong.append(f"{part} {edit}: {sorted(foreign)[:3]}")

        try:
            edits = edits_of(await schemas_of(admin, [found]), found)
            await asyncio.gather(*(attempt(part, edit) for part in parts for edit in edits))
        finally:
            await admin.delete(*about, grace_s=0)
        assert not wrong, f"{len(wrong)} passed of {len(edits)}: " + "\n".join(wrong[:10])
        assert seen, "the policies were asked"
