"""What deploy/ holds, on a real API server: it applies, it gives enough rights, and it keeps jobs in their queue."""

import asyncio
import contextlib
import copy
import json
from pathlib import Path

import pytest

from kit import jobs
from kit.cluster import RAY, Cluster, furnish
from kit.controlplane import ControlPlane, User
from kit.controlplane.build import Binaries
from kit.controlplane.plane import CONTROLLER_MANAGER
from kit.deployed import of_kind
from kit.guarded import (
    ACTUATOR,
    ALICE,
    ARGO,
    BOB,
    DAVE,
    FREE,
    MANAGED,
    MARKS,
    SORTER,
    WATCHER,
    apply,
    change,
    client,
    gang_pod,
    job,
    mutates,
    refused,
    remove,
)
from kit.kubeclient import Object
from kit.nats import new_cell
from kit.proof import commits_of
from kit.waiting import until
from muster.bus.server import EmbeddedServer
from muster.core.actuation.intents import known_of
from muster.core.actuation.orders import Outstanding
from muster.core.actuation.patches import resume_patch
from muster.core.cell.deciders import DECIDERS
from muster.core.gang.declare import NAME_ANNOTATION
from muster.core.gang.declare import NAME_LABELS as GANG_NAMES
from muster.core.objects.meta import DEQUEUE_STAMPS, DEQUEUED_AT, ENQUEUE_STAMPS, GANG, INTENT, QUEUED_AT, SUSPEND
from muster.core.workloads.registry import KINDS
from muster.events.decisions import WorkloadAdopted
from muster.events.facts import WorkloadObserved
from muster.kube.config import connect
from muster.kube.discovery import can_i
from muster.kube.sources import FromKubeconfig
from muster.kube.transport import KubeTransport
from muster.model import api
from muster.model.api import JSON_PATCH, ApiResource
from muster.model.keys import Intent, Ref
from muster.model.workload import Workload
from muster.runtime.config import Config
from muster.runtime.service import open_process

REASON = {"muster.dev/changed-by": "bob", "muster.dev/change-reason": "it cannot wait"}


async def test_everything_applies_again_and_changes_nothing(plane: ControlPlane) -> None:
    async with client(plane, plane.admin) as kube:
        before = await kube.get("rbac.authorization.k8s.io/v1", "ClusterRole", "muster-actuator")
        for folder in ("crds", "rbac", "policies"):
            await apply(plane, kube, folder)
        after = await kube.get("rbac.authorization.k8s.io/v1", "ClusterRole", "muster-actuator")
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


VALIDATING = sorted(of_kind("ValidatingAdmissionPolicy", "policies"))


@pytest.mark.timeout(600)
@pytest.mark.nightly
async def test_the_server_finds_nothing_wrong_with_the_expressions(control_plane_binaries: Binaries) -> None:
    """By the one controller that no other plane of the tests has."""
    every: dict[str, list[str]] = {CONTROLLER_MANAGER: []}
    async with (
        ControlPlane(scheduler=False, kwok=False, prepare=furnish, arguments=every) as plane,
        client(plane, plane.admin) as kube,
    ):
        for folder in ("crds", "rbac", "policies"):
            await apply(plane, kube, folder)

        async def looked_at() -> list[Object] | None:
            path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
            found = (await kube.request("GET", path))["items"]
            seen = [each.get("status", {}).get("observedGeneration") for each in found]
            return found if seen == [each["metadata"]["generation"] for each in found] else None

        # For each kind by itself: it takes a busy machine minutes.
        checked = await until(looked_at, 480.0, every_s=1.0, what="the expressions to be checked")
        assert {each["metadata"]["name"] for each in checked} >= {*VALIDATING}
        wrong = {each["metadata"]["name"]: each["status"].get("typeChecking") for each in checked}
        assert not {name: found for name, found in wrong.items() if (found or {}).get("expressionWarnings")}, wrong


@pytest.mark.parametrize("suspend", [None, False, True])
async def test_a_new_job_of_a_managed_namespace_begins_suspended(plane: ControlPlane, suspend: bool | None) -> None:
    for user in (plane.admin, ALICE):
        async with client(plane, user) as kube:
            if mutates(plane) or suspend:
                made = await kube.create(job(suspend=suspend))
                assert made["spec"]["suspend"] is True
                await remove(kube, made)
            elif user is ALICE:
                await refused(kube.create(job(suspend=suspend)), "spec.suspend must be true")


async def test_pods_of_gangs_that_name_no_scheduler_are_steered(plane: ControlPlane) -> None:
    steered = "muster" if mutates(plane) else "default-scheduler"
    async with client(plane, plane.admin) as kube:

        async def scheduler(made: Object) -> str:
            found = await kube.create(made)
            await kube.delete("v1", "Pod", found["metadata"]["name"], found["metadata"]["namespace"])
            return str(found["spec"]["schedulerName"])

        for key in GANG_NAMES:
            assert await scheduler(gang_pod(labels={key: "one"})) == steered
            assert await scheduler(gang_pod(FREE, labels={key: "one"})) == "default-scheduler"
        for key in (NAME_ANNOTATION, GANG):
            assert await scheduler(gang_pod(annotations={key: "one"})) == steered
        assert await scheduler(gang_pod()) == "default-scheduler"
        assert await scheduler(gang_pod(labels={"app": "x"}, annotations={"a": "b"})) == "default-scheduler"
        for name in ("volcano", "kai-scheduler"):
            assert await scheduler(gang_pod(spec={"schedulerName": name}, labels={GANG_NAMES[0]: "one"})) == name


async def test_other_namespaces_are_left_alone(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        made = await alice.create(job(FREE, suspend=False))
        assert made["spec"]["suspend"] is False
        await change(alice, made, {"spec": {"suspend": True}})
        assert not (await change(alice, made, {"spec": {"suspend": False}}))["spec"]["suspend"]
        await change(alice, made, {"metadata": {"annotations": dict.fromkeys(MARKS, "x")}})
        await remove(alice, made)


async def test_a_job_for_a_cluster_that_is_there_starts_at_once(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        chosen = job(suspend=False, clusterSelector={"ray.io/cluster": "shared"})
        del chosen["spec"]["rayClusterSpec"]
        made = await alice.create(chosen)
        assert made["spec"]["suspend"] is False
        await remove(alice, made)


async def test_without_the_right_nobody_resumes_a_queued_job(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        made = await alice.create(job(suspend=True))
        for patch in ({"suspend": False}, {"suspend": None}, {"suspend": False, "clusterSelector": {"a": "b"}}):
            await refused(change(alice, made, {"spec": patch}), "Muster starts this job when it is its turn")
        whole = await alice.get(RAY, "RayJob", made["metadata"]["name"], MANAGED)
        resumed = copy.deepcopy(whole)
        del resumed["spec"]["suspend"]
        await refused(alice.replace(resumed), "Muster starts this job when it is its turn")
        # Everything else about it stays theirs.
        groups = [{**whole["spec"]["rayClusterSpec"]["workerGroupSpecs"][0], "replicas": 1}]
        await change(alice, made, {"spec": {"rayClusterSpec": {"workerGroupSpecs": groups}}})
        await change(alice, made, {"metadata": {"annotations": {"team": "a"}, "labels": {"b": "c"}}})
        await remove(alice, made)


async def test_who_is_named_resumes_and_nobody_by_power(plane: ControlPlane) -> None:
    async with client(plane, BOB) as bob, client(plane, ARGO) as argo:
        mine = await bob.create(job(suspend=True))
        start = {"spec": {"suspend": False}}
        await refused(change(bob, mine, start), "it is recorded and charged: in the same change")
        assert not (await change(bob, mine, start | {"metadata": {"annotations": REASON}}))["spec"]["suspend"]
        # Stopping what runs takes no right, and then it is held.
        async with client(plane, ALICE) as alice:
            hold = {"metadata": {"annotations": {"muster.dev/hold": "true", "muster.dev/changed-by": "alice"}}}
            await change(alice, mine, {"spec": {"suspend": True}} | hold)
            await refused(change(alice, mine, {"spec": {"suspend": False}}), "Muster starts this job")
        named = {"metadata": {"annotations": {**REASON, "muster.dev/changed-by": ARGO.name}}}
        for more in ({}, named):
            await refused(change(argo, mine, start | more), "Muster starts this job")
        await remove(bob, mine)


async def test_the_actuator_resumes_with_its_fenced_patch(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        made = await alice.create(job(suspend=True))
        meta = made["metadata"]
        ref = Ref("RayJob", meta["namespace"], meta["name"], meta["uid"])
        workload = KINDS["RayJob"].read(json.dumps(made).encode())
        assert isinstance(workload, Workload)
        order = Outstanding(ref, 1, Intent(1, 7, 0), workload.basis, queued_at=1_000, at=2_000)
        transport = await connect(FromKubeconfig(str(plane.kubeconfig_for(ACTUATOR))))
        try:
            path = api.RAYJOBS.path(ref.namespace, ref.name)
            body = resume_patch(order, known_of(workload))
            answer = await transport.request("PATCH", path, body=body, content_type=JSON_PATCH)
            assert answer.ok, answer.body
        finally:
            await transport.close()
        found = await alice.get(RAY, "RayJob", ref.name, MANAGED)
        assert found["spec"]["suspend"] is False
        marks = set(found["metadata"]["annotations"]) - set(meta["annotations"])
        assert marks == {INTENT, QUEUED_AT, DEQUEUED_AT, ENQUEUE_STAMPS[0], DEQUEUE_STAMPS[0]}
        for mark in marks:
            for value in ("forged", None):
                await refused(change(alice, made, {"metadata": {"annotations": {mark: value}}}), "Muster")
        await refused(change(alice, made, {"metadata": {"annotations": None}}), "leave it as it is")
        await change(alice, made, {"metadata": {"annotations": {"mine": "1"}}})
        await remove(alice, made)


@pytest.mark.parametrize("mark", MARKS)
async def test_nobody_makes_up_what_muster_writes(plane: ControlPlane, mark: str) -> None:
    async with client(plane, ALICE) as alice:
        forged = job(suspend=True)
        forged["metadata"]["annotations"] |= {mark: "2020-01-01T00:00:00Z"}
        await refused(alice.create(forged), "written by Muster alone")
        made = await alice.create(job(suspend=True))
        await refused(change(alice, made, {"metadata": {"annotations": {mark: "1"}}}), "written by Muster alone")
        await remove(alice, made)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "RayJob"])
async def test_queued_jobs_of_every_kind_are_guarded(plane: ControlPlane, kind: str) -> None:
    version = KINDS[kind].resource.api_version
    home, _, field = KINDS[kind].suspend_path.removeprefix("/spec").strip("/").rpartition("/")

    def resumed(value: object) -> Object:
        return {"spec": {home: {field: value}} if home else {field: value}}

    async with client(plane, ALICE) as alice, client(plane, BOB) as bob:
        body = jobs.KINDS[kind].make("guarded", MANAGED)
        forged = copy.deepcopy(body)
        forged["metadata"]["annotations"] = {INTENT: "1-1-1"}
        await refused(alice.create(forged), "written by Muster alone")
        await alice.create(body)
        for value in (False, None):
            await refused(alice.patch(version, kind, "guarded", MANAGED, patch=resumed(value)), "it stays suspended")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x", "controller": True}
        disowned = {"metadata": {"ownerReferences": [owner]}, **resumed(False)}
        await refused(alice.patch(version, kind, "guarded", MANAGED, patch=disowned), "it stays suspended")
        await alice.patch(version, kind, "guarded", MANAGED, patch={"metadata": {"labels": {"team": "a"}}})
        reason = {"metadata": {"annotations": REASON}}
        await bob.patch(version, kind, "guarded", MANAGED, patch=resumed(False) | reason)
        await alice.delete(version, kind, "guarded", MANAGED)


async def test_the_annotation_of_older_operators_is_guarded_too(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        body = jobs.tfjob("marked", MANAGED)
        del body["spec"]["runPolicy"]
        body["metadata"]["annotations"] = {SUSPEND: "true"}
        await alice.create(body)
        for value in ("false", None):
            patch = {"metadata": {"annotations": {SUSPEND: value}}}
            await refused(alice.patch("kubeflow.org/v1", "TFJob", "marked", MANAGED, patch=patch), "it stays suspended")
        await alice.delete("kubeflow.org/v1", "TFJob", "marked", MANAGED)


async def test_every_account_can_do_its_part_and_no_other(plane: ControlPlane) -> None:
    secrets = ApiResource("", "v1", "secrets", "Secret")
    roles = ApiResource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
    allowed: dict[str, set[tuple[str, str]]] = {}
    for user in (WATCHER, ACTUATOR, SORTER):
        transport = await connect(FromKubeconfig(str(plane.kubeconfig_for(user))))
        try:
            asked = [(resource, verb) for resource in (api.RAYJOBS, api.PODS, secrets, roles) for verb in verbs]
            answers = await asyncio.gather(*(can_i(transport, verb, resource) for resource, verb in asked))
        finally:
            await transport.close()
        pairs = zip(asked, answers, strict=True)
        allowed[user.name] = {(resource.plural, verb) for (resource, verb), answer in pairs if answer.allowed}
    reads = {(plural, verb) for plural in ("rayjobs", "pods") for verb in ("get", "list", "watch")}
    assert allowed == {
        WATCHER.name: reads,
        ACTUATOR.name: {
            *(("pods", verb) for verb in ("delete", "get", "list", "patch")),
            *(("rayjobs", verb) for verb in ("get", "patch")),
        },
        SORTER.name: set(),
    }


async def breaks_the_glass(plane: ControlPlane, cluster: Cluster, nats_url: str, cell: str) -> None:
    """What is started around the queue stands in the log with a name and a reason, and is charged over the limit."""
    async with client(plane, ALICE) as alice, client(plane, DAVE) as dave:
        first = await alice.create(job(suspend=True))
        await cluster.until(lambda: cluster.running(first["metadata"]["name"]), what="the first job to run")
        second = await alice.create(job(suspend=True))
        marks = {"muster.dev/changed-by": "dave", "muster.dev/change-reason": "the demo is today"}
        await change(dave, second, {"spec": {"suspend": False}, "metadata": {"annotations": marks}})

        async def charged() -> bool:
            return (await cluster.tree_used()).get("root/algorithm/video", {}).get("cpu") == "24"

        await cluster.until(charged, what="both to be charged, over the limit of 14")
        uid = second["metadata"]["uid"]
        events = [event for each in await commits_of(nats_url, cell) for event in each.commit.events]
        seen = [e.workload.wishes for e in events if isinstance(e, WorkloadObserved) and e.workload.ref.uid == uid]
        assert (seen[-1].by, seen[-1].reason) == ("dave", "the demo is today")
        assert [e.request["cpu"] for e in events if isinstance(e, WorkloadAdopted) and e.ref.uid == uid] == [12_000]


async def test_muster_works_with_these_rights(plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    answers: list[tuple[str, str, str, int]] = []

    async def speaks(user: User) -> KubeTransport:
        def note(verb: str, resource: str, code: int, _seconds: float) -> None:
            answers.append((user.name, verb, resource, code))

        return await connect(FromKubeconfig(str(plane.kubeconfig_for(user))), on_request=note)

    config = Config(nats_url=nats_server.url, cell=new_cell(), log_create=True, log_max_bytes=64 << 20, health_port=-1)
    async with Cluster(plane) as cluster, contextlib.AsyncExitStack() as stack:
        await cluster.apply_tree()
        process = await open_process(config, "test", stack)
        for stage in DECIDERS.values():
            process.add_decider(stage)
        watching, acting = await speaks(WATCHER), await speaks(ACTUATOR)
        for transport in (watching, acting):
            stack.push_async_callback(transport.close)
        process.add_watchers(watching)
        process.add_actuator(acting)
        async with cluster.beside(process.run()), client(plane, ALICE) as alice:
            names = []
            for _ in range(2):
                made = await alice.create(job(suspend=True))
                names.append(made["metadata"]["name"])
            await cluster.complete(*names)
            await cluster.until(lambda: cluster.phase(names[0]), what="the unit of the first")
            await cluster.until(cluster.tree_used, what="the tree's status")
            # One of them waited for the other.
            assert [told for name in names for told in await cluster.told(name)]
            marks = (await cluster.job(names[0]))["metadata"]["annotations"]
            assert marks[INTENT]
            await breaks_the_glass(plane, cluster, nats_server.url, config.cell)
    assert [answer for answer in answers if answer[3] in (401, 403)] == []
    assert {name for name, _, _, _ in answers} == {WATCHER.name, ACTUATOR.name}
