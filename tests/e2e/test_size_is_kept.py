"""Whatever runs keeps the size that was admitted, whichever of its objects is edited and by whom: on a real API server,
with the shipped policies, as a tenant. What its controllers and Ray's autoscaler have to do goes on.
"""

import contextlib
import copy
from collections.abc import AsyncIterator

import pytest

from kit import jobs
from kit.cluster import RAY
from kit.controlplane import ControlPlane
from kit.guarded import ALICE, AUTOSCALER, MANAGED, OPERATOR, client, job, mutates, refused
from kit.kubeclient import ApiError, KubeClient, Object
from kit.waiting import until
from muster.core.workloads.registry import KINDS

BIG = {"cpu": "64", "nvidia.com/gpu": "8"}
KEPT = "it runs with the size that was admitted"
START = {"metadata": {"annotations": {"muster.dev/intent": "1-7-0"}}}


def owned(body: Object, owner: Object) -> Object:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    body["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return body


async def edit(kube: KubeClient, found: Object, *ops: tuple[str, str, object]) -> Object:
    """Edit an object by (op, pointer, value)."""
    meta = found["metadata"]
    patch = [{"op": op, "path": pointer, "value": value} for op, pointer, value in ops]
    return await kube.patch(found["apiVersion"], found["kind"], meta["name"], meta["namespace"], patch=patch)


@contextlib.asynccontextmanager
async def admitted(plane: ControlPlane, *made: Object) -> AsyncIterator[list[Object]]:
    """Objects of Alice's that run; gone at the end."""
    found = []
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        for body in made:
            each = await alice.create(body)
            _, *above, field = KINDS[body["kind"]].suspend_path.split("/")
            start: Object = {field: False}
            for key in reversed(above):
                start = {key: start}
            name, version = each["metadata"]["name"], each["apiVersion"]
            found.append(await admin.patch(version, each["kind"], name, MANAGED, patch=start | START))
        try:
            yield found
        finally:
            for each in found:
                await admin.delete(each["apiVersion"], each["kind"], each["metadata"]["name"], MANAGED)


# --- its own objects --------------------------------------------------------------------------------------------------

HEAD, GROUP = "/spec/headGroupSpec/template/spec", "/spec/workerGroupSpecs/0"
CONFIG = "/spec/rayClusterConfig"
ROLES = "/spec/replicatedJobs"
SIDECAR = {"name": "beside", "image": "none", "resources": {"requests": BIG}}
GROWTH: dict[str, list[list[tuple[str, str, object]]]] = {
    "RayCluster": [
        [("replace", f"{GROUP}/replicas", 40)],
        [("add", f"{GROUP}/minReplicas", 40)],
        [("add", f"{GROUP}/maxReplicas", 40)],
        [("add", f"{GROUP}/numOfHosts", 4)],
        [("replace", "/spec/workerGroupSpecs/1/suspend", False)],
        [("remove", "/spec/workerGroupSpecs/1/suspend", None)],
        [("add", "/spec/workerGroupSpecs/-", {"groupName": "more", "replicas": 9, "template": jobs.template()})],
        [("replace", f"{HEAD}/containers/0/resources", {"requests": BIG})],
        [("add", f"{HEAD}/containers/-", SIDECAR)],
        [("add", f"{HEAD}/initContainers", [SIDECAR])],
        [("add", f"{HEAD}/initContainers", [{**SIDECAR, "restartPolicy": "Always"}])],
        [("add", f"{HEAD}/resources", {"requests": BIG})],
        [("add", f"{HEAD}/overhead", {"cpu": "64"})],
        [("add", f"{HEAD}/resourceClaims", [{"name": "gpu", "resourceClaimName": "gpu"}])],
        [("add", f"{HEAD}/nodeName", "node-0")],
        [("add", f"{HEAD}/schedulerName", "mine")],
        [("add", f"{HEAD}/schedulingGates", [{"name": "mine"}])],
        [("add", f"{HEAD}/priorityClassName", "low")],
        [("add", "/spec/headGroupSpec/template/metadata", {"labels": {"kai.scheduler/queue": "other"}})],
        [("add", "/spec/headGroupSpec/template/metadata", {"annotations": {"gpu-fraction": "0.9"}})],
        [("add", "/spec/enableInTreeAutoscaling", True)],
        [("add", "/spec/autoscalerOptions", {"resources": {"requests": BIG}})],
        [("add", "/spec/anything", {"pods": 40})],
    ],
    "RayService": [
        [("replace", f"{CONFIG}/workerGroupSpecs/0/replicas", 40)],
        [("add", f"{CONFIG}/headGroupSpec/template/spec/resources", {"requests": BIG})],
        [("add", f"{CONFIG}/headGroupSpec/template/spec/initContainers", [{**SIDECAR, "restartPolicy": "Always"}])],
        [("add", f"{CONFIG}/headGroupSpec/template/spec/overhead", {"cpu": "64"})],
        [("add", f"{CONFIG}/headGroupSpec/template/spec/resourceClaims", [{"name": "g", "resourceClaimName": "g"}])],
        [("add", f"{CONFIG}/autoscalerOptions", {"resources": {"requests": BIG}})],
        [("add", "/spec/upgradeStrategy", {"type": "NewClusterWithIncrementalUpgrade"})],
    ],
    "RayJob": [
        [("replace", "/spec/rayClusterSpec/workerGroupSpecs/0/replicas", 40)],
        [("add", "/spec/submitterPodTemplate", jobs.template("4"))],
    ],
    "Job": [
        [("replace", "/spec/completions", 500), ("replace", "/spec/parallelism", 500)],
        [("replace", "/spec/parallelism", 3)],
    ],
    "SparkApplication": [
        [("add", "/spec/sparkConf", {"spark.executor.instances": "40"})],
        [("replace", "/spec/executor/instances", 40)],
        [("add", "/spec/executor/cores", 40)],
        [("add", "/spec/dynamicAllocation", {"enabled": True, "maxExecutors": 40})],
        [("add", "/spec/arguments", ["--more"])],
    ],
    "PyTorchJob": [
        [("add", "/spec/elasticPolicy", {"minReplicas": 1, "maxReplicas": 40})],
        [("replace", "/spec/pytorchReplicaSpecs/Worker/replicas", 40)],
        [("add", "/spec/pytorchReplicaSpecs/Worker/template/spec/overhead", {"cpu": "64"})],
        [("add", "/spec/nprocPerNode", "40")],
    ],
    "TFJob": [[("add", "/spec/tfReplicaSpecs/Evaluator", {"replicas": 9, "template": jobs.template()})]],
    "MPIJob": [[("add", "/spec/slotsPerWorker", 40)], [("replace", "/spec/mpiReplicaSpecs/Worker/replicas", 40)]],
    "XGBoostJob": [[("replace", "/spec/xgbReplicaSpecs/Worker/replicas", 40)]],
    "JAXJob": [[("replace", "/spec/jaxReplicaSpecs/Worker/template/spec/containers/0/resources", {"requests": BIG})]],
    "PaddleJob": [[("replace", "/spec/paddleReplicaSpecs/Worker/replicas", 40)]],
    "JobSet": [
        [("replace", f"{ROLES}/1/replicas", 40)],
        [("replace", f"{ROLES}/1/template/spec/parallelism", 40)],
        [("add", f"{ROLES}/-", {"name": "more", "replicas": 9, "template": {"spec": {"template": jobs.template()}}})],
        [("replace", f"{ROLES}/0/template/spec/template/spec/containers/0/resources", {"requests": BIG})],
        [("add", "/spec/failurePolicy", {"maxRestarts": 40})],
    ],
    "TrainJob": [
        [("replace", "/spec/trainer/numNodes", 40)],
        [("replace", "/spec/trainer/resourcesPerNode", {"requests": BIG})],
        [("replace", "/spec/runtimeRef", {"name": "bigger"})],
    ],
    "AppWrapper": [
        [("replace", "/spec/components/0/template/spec/parallelism", 40)],
        [("add", "/spec/components/-", {"template": jobs.job("more", MANAGED, suspend=False)})],
    ],
    "Workflow": [[("add", "/spec/parallelism", 40)], [("replace", "/spec/entrypoint", "other")]],
}
"""{kind: what would let more run}"""
FALLS: dict[str, list[list[tuple[str, str, object]]]] = {
    "RayCluster": [
        [("replace", f"{GROUP}/replicas", 1)],
        [("replace", f"{HEAD}/containers/0/image", "newer")],
        [("add", "/spec/idleSuspend", True)],
    ],
    "RayService": [
        [("replace", f"{CONFIG}/headGroupSpec/template/spec/containers/0/image", "newer")],
        [("replace", "/spec/serveConfigV2", "applications: [{}]")],
    ],
    "RayJob": [[("add", "/spec/ttlSecondsAfterFinished", 60)]],
    "Job": [[("replace", "/spec/parallelism", 1)], [("add", "/spec/activeDeadlineSeconds", 60)]],
    "SparkApplication": [[("add", "/spec/timeToLiveSeconds", 60)]],
    "PyTorchJob": [[("add", "/spec/runPolicy/ttlSecondsAfterFinished", 60)]],
    "TFJob": [[("add", "/spec/runPolicy/backoffLimit", 2)]],
    "MPIJob": [[("add", "/spec/runPolicy/cleanPodPolicy", "All")]],
    "XGBoostJob": [[("add", "/spec/runPolicy/activeDeadlineSeconds", 60)]],
    "JAXJob": [[("add", "/spec/runPolicy/backoffLimit", 2)]],
    "PaddleJob": [[("add", "/spec/runPolicy/ttlSecondsAfterFinished", 60)]],
    "JobSet": [[("add", "/spec/ttlSecondsAfterFinished", 60)]],
    "TrainJob": [[("add", "/spec/activeDeadlineSeconds", 60)]],
    "AppWrapper": [],
    "Workflow": [[("add", "/spec/shutdown", "Stop")]],
}
"""{kind: what a tenant may do to it while it runs}"""


def fresh(kind: str) -> Object:
    if kind == "RayJob":
        return job(suspend=True)
    if kind == "RayCluster":
        made = jobs.raycluster("kept", MANAGED, replicas=2)
        [group] = made["spec"]["workerGroupSpecs"]
        group["maxReplicas"] = 2
        sleeping = {**copy.deepcopy(group), "groupName": "sleeps", "replicas": 50, "suspend": True}
        made["spec"]["workerGroupSpecs"].append(sleeping)
        return made
    if kind == "Job":
        return jobs.job("kept", MANAGED, completionMode="Indexed")
    return jobs.KINDS[kind].make("kept", MANAGED)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_running_object_does_not_grow_by_any_field(plane: ControlPlane, kind: str) -> None:
    async with admitted(plane, fresh(kind)) as [made], client(plane, ALICE) as alice:
        passed = []
        for ops in GROWTH[kind]:
            try:
                if (await edit(alice, made, *ops))["spec"] != made["spec"]:
                    passed.append(ops)
            except ApiError as err:
                assert KEPT in str(err), (ops, err)
        assert not passed
        for ops in FALLS[kind]:
            await edit(alice, made, *ops)


async def test_a_mark_of_older_operators_thaws_nothing_that_has_pods(plane: ControlPlane) -> None:
    async with (
        admitted(plane, fresh("PyTorchJob")) as [made],
        client(plane, ALICE) as alice,
        client(plane, plane.admin) as admin,
    ):
        status = {"status": {"replicaStatuses": {"Worker": {"active": 2}}}}
        await admin.patch(made["apiVersion"], made["kind"], "kept", MANAGED, patch=status, subresource="status")
        notes = {"scheduling.x-k8s.io/suspend": "true", "muster.dev/hold": "true"}
        wider = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 40}}}}
        both = {"metadata": {"annotations": notes}, **wider}
        await refused(alice.patch(made["apiVersion"], made["kind"], "kept", MANAGED, patch=both), KEPT)


# --- what is part of another object -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def family(plane: ControlPlane, **marks: str) -> AsyncIterator[tuple[Object, Object, Object]]:
    """A RayJob that runs, with the RayCluster and the submitter that KubeRay has made."""
    async with admitted(plane, job(suspend=True)) as [parent], client(plane, OPERATOR) as operator:
        cluster = owned(jobs.raycluster("child", MANAGED, replicas=2, suspend=False), parent)
        cluster["metadata"]["annotations"] = marks
        cluster = await operator.create(cluster)
        submitter = owned(jobs.job(parent["metadata"]["name"], MANAGED, parallelism=1, suspend=False), parent)
        submitter = await operator.create(submitter)
        try:
            yield parent, cluster, submitter
        finally:
            for each in (submitter, cluster):
                await operator.delete(each["apiVersion"], each["kind"], each["metadata"]["name"], MANAGED)


async def test_the_submitter_of_a_rayjob_is_its_operators_alone(plane: ControlPlane) -> None:
    async with family(plane) as (_, _, submitter), client(plane, ALICE) as alice:
        await refused(edit(alice, submitter, ("replace", "/spec/suspend", True)), "would stop this running job")
        held = {"metadata": {"annotations": {"muster.dev/hold": "true"}}, "spec": {"suspend": True}}
        name = submitter["metadata"]["name"]
        await alice.patch("batch/v1", "Job", name, MANAGED, patch=held)

        async def rests() -> bool:
            status = (await alice.get("batch/v1", "Job", name, MANAGED)).get("status") or {}
            suspended = [each for each in status.get("conditions") or [] if each["type"] == "Suspended"]
            return bool(suspended) and suspended[0]["status"] == "True" and not status.get("active")

        await until(rests, what="the submitter to be suspended")
        template = [("replace", "/spec/template/spec/containers/0/resources", {"requests": BIG, "limits": BIG})]
        if mutates(plane):  # Older servers let nobody change the template of a Job that has run.
            await refused(edit(alice, submitter, *template), "it is part of RayJob")
        await refused(edit(alice, submitter, ("replace", "/spec/suspend", False)), "it stays suspended")
        await refused(edit(alice, submitter, ("replace", "/spec/parallelism", 50)), KEPT)
        await refused(edit(alice, submitter, ("remove", "/metadata/ownerReferences", None)), "no longer names RayJob")


@pytest.mark.parametrize("grant", ["", "small=2"])
async def test_a_child_cluster_is_not_grown_by_a_tenant(plane: ControlPlane, grant: str) -> None:
    marks = {"muster.dev/granted": grant} if grant else {}
    async with (
        family(plane, **marks) as (_, cluster, _),
        client(plane, ALICE) as alice,
        client(plane, OPERATOR) as operator,
        client(plane, AUTOSCALER) as autoscaler,
        client(plane, plane.admin) as admin,
    ):
        for ops in (
            [("replace", f"{GROUP}/replicas", 50)],
            [("add", "/spec/workerGroupSpecs/-", {"groupName": "more", "replicas": 50, "template": jobs.template()})],
            [("replace", f"{GROUP}/template/spec/containers/0/resources", {"requests": BIG})],
            [("add", f"{GROUP}/template/spec/containers/-", SIDECAR)],
        ):
            await refused(edit(alice, cluster, *ops), KEPT)
            await refused(edit(autoscaler, cluster, *ops), KEPT)
        gone = ("remove", "/metadata/ownerReferences", None)
        await refused(edit(alice, cluster, gone), "no longer names RayJob")
        plain = ("replace", "/metadata/ownerReferences/0/controller", False)
        await refused(edit(alice, cluster, plain), "no longer names RayJob")
        forged = {"metadata": {"annotations": {"muster.dev/granted": "small=99"}}}
        await refused(alice.patch(RAY, "RayCluster", "child", MANAGED, patch=forged), "is written by Muster alone")
        # What Ray's autoscaler, the operator and Muster have to do.
        leaves = {"workersToDelete": ["child-small-worker-x"]}
        await edit(autoscaler, cluster, ("replace", f"{GROUP}/replicas", 1), ("add", f"{GROUP}/scaleStrategy", leaves))
        if grant:
            await edit(autoscaler, cluster, ("replace", f"{GROUP}/replicas", 2))
        await edit(operator, cluster, ("add", "/spec/workerGroupSpecs/0/suspend", False))
        await edit(admin, cluster, ("replace", f"{GROUP}/replicas", 5))
        # Asleep, and bigger when it wakes.
        held = {"metadata": {"annotations": {"muster.dev/hold": "true"}}, "spec": {"suspend": True}}
        await alice.patch(RAY, "RayCluster", "child", MANAGED, patch=held)
        await refused(edit(alice, cluster, ("replace", f"{GROUP}/replicas", 4_000)), KEPT)
        await refused(edit(alice, cluster, ("replace", "/spec/suspend", False)), "it stays suspended")
