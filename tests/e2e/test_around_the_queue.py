"""What an ordinary tenant tries to get around the queue, on a real API server with what deploy/ ships: all refused, and
each refusal names the object, the value and the way out. What a tenant may do stays easy.
"""

import contextlib
import re
from collections.abc import AsyncIterator

import pytest

from kit import jobs
from kit.cluster import RAY, SCHEDULING, TREES
from kit.compose import REPOSITORY
from kit.controlplane import ControlPlane
from kit.guarded import (
    ALICE,
    ANOTHER,
    ARGO,
    CAROL,
    DAVE,
    KEPT,
    LEAF,
    MANAGED,
    NO_SUBMIT,
    OPERATOR,
    change,
    client,
    cron_job,
    gang_pod,
    job,
    mutates,
    queue_unit,
    refused,
    remove,
)
from kit.kubeclient import ApiError, KubeClient, Object
from kit.waiting import until
from muster.core.objects.meta import (
    CHECKPOINTED_AT,
    DRAIN,
    DRIVE,
    FLAVOR_WAIT,
    FLAVORS,
    INTENT,
    NODE_WAIT,
    ON_FLAVORS,
    QUEUED_AT,
    RECLAIM_GRACE,
    RUN_TIME,
    START,
)
from muster.core.workloads.registry import KINDS

QUOTA = "quota.scheduling.alibabacloud.com/name"
PRIORITY, HOLD, BY, WHY = (f"muster.dev/{key}" for key in ("priority", "hold", "changed-by", "change-reason"))
OTHERS = [kind for kind in KINDS if kind != "RayJob"]
REASON = {"metadata": {"annotations": {BY: "dave", WHY: "the demo is today"}}}


@contextlib.asynccontextmanager
async def running(plane: ControlPlane, made: Object) -> AsyncIterator[tuple[KubeClient, Object]]:
    """A job of Alice's that the administrator has let go; gone at the end."""
    meta, version = made["metadata"], made["apiVersion"]
    home, _, field = KINDS[made["kind"]].suspend_path.removeprefix("/spec").strip("/").rpartition("/")
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        found = await alice.create(made)
        meta = found["metadata"]
        start = {"spec": {home: {field: False}} if home else {field: False}}
        note = {"metadata": {"annotations": {"muster.dev/intent": "1-7-0"}}}
        found = await admin.patch(version, made["kind"], meta["name"], meta["namespace"], patch=start | note)
        yield alice, found
        await admin.delete(version, made["kind"], meta["name"], meta["namespace"])


async def patched(kube: KubeClient, found: Object, patch: Object) -> Object:
    meta = found["metadata"]
    return await kube.patch(found["apiVersion"], found["kind"], meta["name"], meta["namespace"], patch=patch)


def controlled(made: Object, kind: str, version: str, name: str, uid: str) -> Object:
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return made


def annotated(**marks: str | None) -> Object:
    return {"metadata": {"annotations": {f"muster.dev/{key.replace('_', '-')}": value for key, value in marks.items()}}}


# --- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OTHERS)
async def test_no_kind_is_created_running(plane: ControlPlane, kind: str) -> None:
    version, path = KINDS[kind].resource.api_version, KINDS[kind].suspend_path.split("/")[2:]
    body = jobs.KINDS[kind].make("bold", MANAGED)
    inner = body["spec"] if len(path) == 1 else body["spec"].setdefault(path[0], {})
    inner[path[-1]] = False
    async with client(plane, ALICE) as alice:
        if not mutates(plane):
            await refused(alice.create(body), "must be true")
            return
        made = await alice.create(body)
        for part in path:
            made = made.get(part, made.get("spec", {}).get(part))
        assert made is True
        await alice.delete(version, kind, "bold", MANAGED)


async def test_a_rayjob_that_drops_its_cluster_selector_does_not_start(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        chosen = job(suspend=False, clusterSelector={"ray.io/cluster": "shared"})
        made = await alice.create(chosen)
        await refused(change(alice, made, {"spec": {"clusterSelector": None}}), "it stays suspended: Muster starts")
        await change(alice, made, {"spec": {"clusterSelector": None, "suspend": True}})
        await remove(alice, made)


async def test_the_jobs_of_a_cron_job_wait_as_those_of_people(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        if mutates(plane):
            made = await alice.create(cron_job("nightly", suspend=False))
            assert made["spec"]["jobTemplate"]["spec"]["suspend"] is True
        else:
            await refused(alice.create(cron_job("nightly", suspend=False)), "spec.jobTemplate.spec.suspend must be")
            made = await alice.create(cron_job("nightly"))
        forged = cron_job("elsewhere")
        forged["spec"]["jobTemplate"]["metadata"] = {"labels": {QUOTA: NO_SUBMIT}}
        await refused(alice.create(forged), f"you may not submit to quota {NO_SUBMIT} from namespace {MANAGED}")
        urgent = cron_job("urgent")
        urgent["spec"]["jobTemplate"]["spec"]["template"]["spec"]["priorityClassName"] = "high"
        await refused(alice.create(urgent), "you may not set a priority (class high)")
        body = jobs.job("nightly-1", MANAGED, suspend=False)
        controlled(body, "CronJob", "batch/v1", "nightly", made["metadata"]["uid"])
        if mutates(plane):
            assert (await alice.create(body))["spec"]["suspend"] is True
            await admin.delete("batch/v1", "Job", "nightly-1", MANAGED)
        await alice.delete("batch/v1", "CronJob", "nightly", MANAGED)


# --- controllers that made nothing ------------------------------------------------------------------------------------


async def test_a_rayjob_made_to_control_a_big_cluster_is_found_out(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice, client(plane, OPERATOR) as operator:
        tiny = await alice.create(job(suspend=True))
        named = ("RayJob", RAY, tiny["metadata"]["name"], tiny["metadata"]["uid"])
        big = controlled(jobs.raycluster("big", MANAGED, replicas=5_000, suspend=False), *named)
        words = f"names RayJob {named[2]} as its controller, but only the controller of"
        await refused(alice.create(big), words if mutates(plane) else "spec.suspend must be true")
        big = controlled(jobs.raycluster("big", MANAGED, suspend=True), *named)
        await refused(alice.create(big), "leave the reference out, and it is queued by itself")
        own = await alice.create(jobs.raycluster("big", MANAGED, suspend=True))
        reference = {"metadata": controlled({"metadata": {}}, *named)["metadata"]}
        await refused(patched(alice, own, reference), "but only the controller of RayJobs may make that so")
        await alice.delete(RAY, "RayCluster", "big", MANAGED)
        # What its operator makes runs at once.
        real = controlled(jobs.raycluster("real", MANAGED, suspend=False), *named)
        assert not (await operator.create(real))["spec"].get("suspend")
        submitter = controlled(jobs.job(named[2], MANAGED, parallelism=1, suspend=False), *named)
        assert not (await operator.create(submitter))["spec"].get("suspend")
        for version, kind, name in ((RAY, "RayCluster", "real"), ("batch/v1", "Job", named[2])):
            await operator.delete(version, kind, name, MANAGED)
        await remove(alice, tiny)


@pytest.mark.parametrize("kind", OTHERS)
async def test_a_config_map_controls_nothing(plane: ControlPlane, kind: str) -> None:
    version = KINDS[kind].resource.api_version
    path = KINDS[kind].suspend_path.split("/")[2:]
    async with client(plane, ALICE) as alice:
        boss = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "boss", "namespace": MANAGED}}
        uid = (await alice.create(boss))["metadata"]["uid"]
        body = controlled(jobs.KINDS[kind].make("owned", MANAGED), "ConfigMap", "v1", "boss", uid)
        made = await alice.create(body)
        resumed: Object = {path[-1]: False} if len(path) == 1 else {path[0]: {path[1]: False}}
        await refused(patched(alice, made, {"spec": resumed}), "Muster starts this job when it is its turn")
        for mark in (annotated(priority="9"), annotated(queued_at="2020-01-01T00:00:00Z")):
            await refused(patched(alice, made, mark), f"{kind} owned: ")
        await alice.delete(version, kind, "owned", MANAGED)
        await alice.delete("v1", "ConfigMap", "boss", MANAGED)


# --- quota, priority, size --------------------------------------------------------------------------------------------


async def test_the_leaf_of_another_team_takes_the_right_to_submit(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        foreign = job(suspend=True)
        foreign["metadata"]["labels"] = {QUOTA: NO_SUBMIT}
        await refused(alice.create(foreign), f"ask for verb submit on queues.queues.muster.dev named {NO_SUBMIT}")
        own = job(suspend=True)
        own["metadata"]["labels"] = {QUOTA: LEAF}
        made = await alice.create(own)
        move = {"metadata": {"labels": {QUOTA: NO_SUBMIT}}}
        await refused(change(alice, made, move), f"you may not submit to quota {NO_SUBMIT}")
        for key in ("quota.scheduling.koordinator.sh/name", "kai.scheduler/queue"):
            await refused(change(alice, made, {"metadata": {"labels": {key: NO_SUBMIT}}}), "you may not submit")
        await change(alice, made, {"metadata": {"labels": {QUOTA: None}}})
        await remove(alice, made)
    async with running(plane, job(suspend=True)) as (alice, made):
        await refused(change(alice, made, {"metadata": {"labels": {QUOTA: LEAF}}}), "it runs, and is charged to")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_priority_takes_the_right_to_set_it(plane: ControlPlane, kind: str) -> None:
    def pods(body: Object) -> list[Object]:
        found = [jobs.at(body, pointer) for pointer in jobs.KINDS[kind].templates]
        return [template.get("spec", template) for template in found]

    def fresh() -> Object:
        return job(suspend=True) if kind == "RayJob" else jobs.KINDS[kind].make("vain", MANAGED)

    async with client(plane, ALICE) as alice, client(plane, CAROL) as carol:
        for index in range(len(pods(fresh()))):
            body = fresh()
            pods(body)[index]["priorityClassName"] = "high"
            await refused(alice.create(body), "you may not use priority class high in namespace video; leave it out")
            if kind != "SparkApplication":
                body = fresh()
                pods(body)[index]["priority"] = 2_000_000
                await refused(alice.create(body), "you may not set priority 2000000 in a pod template")
        body = fresh()
        for spec in pods(body):
            spec["priorityClassName"] = "low"
        made = await alice.create(body)
        await alice.delete(made["apiVersion"], kind, made["metadata"]["name"], MANAGED)
        for spec in pods(body):
            spec["priorityClassName"] = "high"
        made = await carol.create(body)
        await patched(alice, made, {"metadata": {"labels": {"mine": "still"}}})
        await alice.delete(made["apiVersion"], kind, made["metadata"]["name"], MANAGED)


async def test_the_priority_of_a_job_and_of_its_unit_are_given_by_right(plane: ControlPlane) -> None:
    unit = queue_unit("unit")
    async with client(plane, ALICE) as alice, client(plane, CAROL) as carol, client(plane, plane.admin) as admin:
        made = await alice.create(job(suspend=True))
        await refused(change(alice, made, annotated(priority="9")), 'you may not set muster.dev/priority to "9"; ask')
        await change(carol, made, annotated(priority="9", changed_by="carol"))
        await refused(change(alice, made, annotated(priority=None)), 'you may not set muster.dev/priority to ""')
        await refused(change(alice, made, annotated(changed_by="carol2")), "you are alice: set it to your own name")
        await refused(alice.create(unit), "QueueUnits and their status are written by Muster alone")
        shown = await admin.create(unit)
        await refused(patched(alice, shown, {"spec": {"priority": 7}}), "you may not set spec.priority to 7; ask")
        await patched(carol, shown, {"spec": {"priority": 7}})
        await admin.delete(SCHEDULING, "QueueUnit", "unit", MANAGED)
        await remove(alice, made)


async def test_what_runs_keeps_the_size_that_was_admitted(plane: ControlPlane) -> None:
    async with running(plane, job(suspend=True)) as (alice, made):
        groups = [{**made["spec"]["rayClusterSpec"]["workerGroupSpecs"][0], "replicas": 50, "maxReplicas": 50}]
        bigger = {"spec": {"rayClusterSpec": {"workerGroupSpecs": groups}}}
        await refused(change(alice, made, bigger), "it runs with the size that was admitted")
        await change(alice, made, {"metadata": {"labels": {"team": "a"}}})
    async with running(plane, jobs.job("grows", MANAGED)) as (alice, made):
        await refused(patched(alice, made, {"spec": {"parallelism": 500}}), "Job grows: it runs with the size that")
        await patched(alice, made, {"spec": {"parallelism": 1}})
    async with running(plane, jobs.rayservice("grows", MANAGED)) as (alice, made):
        config = made["spec"]["rayClusterConfig"]
        [group], head = config["workerGroupSpecs"], config["headGroupSpec"]
        wider = {"spec": {"rayClusterConfig": {"workerGroupSpecs": [{**group, "replicas": 50}]}}}
        await refused(patched(alice, made, wider), "RayService grows: it runs with the size that was admitted")
        [ray] = head["template"]["spec"]["containers"]
        heavier = {**ray, "resources": {"requests": {"cpu": "64", "memory": "1Gi"}}}
        larger = {"spec": {"rayClusterConfig": {"headGroupSpec": {"template": {"spec": {"containers": [heavier]}}}}}}
        await refused(patched(alice, made, larger), "RayService grows: it runs with the size that was admitted")
        newer = {"template": {"spec": {"containers": [{**ray, "image": "ray:new"}]}}}
        await patched(alice, made, {"spec": {"rayClusterConfig": {"headGroupSpec": newer}}})
    for kind, types in (("TFJob", "tfReplicaSpecs"), ("PyTorchJob", "pytorchReplicaSpecs")):
        async with running(plane, jobs.KINDS[kind].make("grows", MANAGED)) as (alice, made):
            more = {"spec": {types: {"Worker": {"replicas": 500}}}}
            await refused(patched(alice, made, more), f"{kind} grows: it runs with the size that was admitted")


# --- pods -------------------------------------------------------------------------------------------------------------


async def test_pods_belong_to_a_job_or_name_muster(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        await refused(alice.create(gang_pod(name="bare")), "create a Job, which is queued")
        made = await alice.create(gang_pod(spec={"schedulerName": "muster"}, name="named"))
        await alice.delete("v1", "Pod", made["metadata"]["name"], MANAGED)
        pinned = gang_pod(spec={"schedulerName": "muster", "nodeName": "node-0"}, name="pinned")
        await refused(alice.create(pinned), "spec.nodeName is node-0, which passes by every scheduler")
        cluster = await alice.create(jobs.raycluster("mine", MANAGED, suspend=True))
        pod = gang_pod(spec={"schedulerName": "muster"}, name="smuggled", labels={"ray.io/cluster": "mine"})
        controlled(pod, "RayCluster", RAY, "mine", cluster["metadata"]["uid"])
        await refused(alice.create(pod), "names RayCluster mine as its controller, but only that controller")
        async with client(plane, OPERATOR) as operator:
            await operator.create(controlled(pod, "RayCluster", RAY, "mine", cluster["metadata"]["uid"]))
            await operator.delete("v1", "Pod", "smuggled", MANAGED)
        await alice.delete(RAY, "RayCluster", "mine", MANAGED)


# --- what stays easy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_manifest_that_is_applied_again_does_not_stop_the_job(plane: ControlPlane, kind: str) -> None:
    def manifest(namespace: str) -> Object:
        made = job(namespace, suspend=True) if kind == "RayJob" else jobs.KINDS[kind].make("gitops", namespace)
        made["metadata"] = {"name": "gitops", "namespace": namespace}
        return made

    home, _, field = KINDS[kind].suspend_path.removeprefix("/spec").strip("/").rpartition("/")
    async with running(plane, manifest(MANAGED)) as (alice, _):
        again = alice.apply(manifest(MANAGED), field_manager="argocd")
        await refused(again, "would stop this running job, and it would start again from nothing; leave suspend out")
        held = manifest(MANAGED)
        held["metadata"]["annotations"] = {HOLD: "true", BY: "alice"}
        await alice.apply(held, field_manager="argocd")
    if mutates(plane):
        async with running(plane, manifest(KEPT)) as (alice, _):
            changed = manifest(KEPT)
            changed["metadata"]["labels"] = {"team": "a"}
            found = await alice.apply(changed, field_manager="argocd")
            spec = found["spec"][home] if home else found["spec"]
            assert (spec[field], found["metadata"]["labels"]["team"]) == (False, "a")


@pytest.mark.parametrize(
    ("where", "says", "kept"),
    [
        ("the tree", ("keep-running", None, None), True),
        ("nothing", (None, None, None), False),
        ("a node above", (None, "keep-running", None), True),
        ("the leaf", ("refuse", None, "keep-running"), True),
        ("the leaf, otherwise than what is above", ("keep-running", "keep-running", "refuse"), False),
    ],
)
async def test_a_job_runs_on_where_the_tree_says_so(
    plane: ControlPlane, where: str, says: tuple[str | None, str | None, str | None], kept: bool
) -> None:
    if not mutates(plane):
        return
    key = "muster.dev/reapplied"
    marks: list[Object] = [{key: each} if each is not None else {} for each in says]
    leaf = {"name": "text", "namespaces": [ANOTHER], "attributes": marks[2]}
    root = {"name": "root", "children": [{"name": "above", "attributes": marks[1], "children": [leaf]}]}
    meta = {"name": "says", "namespace": "kube-system", "annotations": marks[0]}
    tree = {"apiVersion": TREES, "kind": "ElasticQuotaTree", "metadata": meta, "spec": {"root": root}}

    def manifest(kind: str, **labels: str) -> Object:
        made = job(ANOTHER, suspend=True) if kind == "RayJob" else jobs.KINDS[kind].make("tended", ANOTHER)
        made["metadata"] = {"name": "tended", "namespace": ANOTHER, "labels": labels}
        return made

    async with client(plane, plane.admin) as admin:
        await admin.create(tree)
        try:
            for kind in ("RayJob", "PyTorchJob"):
                async with running(plane, manifest(kind)) as (alice, _):
                    told = 0

                    # The server hears of a tree a moment later.
                    async def applied(kind: str = kind, alice: KubeClient = alice) -> bool:
                        nonlocal told
                        told += 1
                        try:
                            found = await alice.apply(manifest(kind, attempt=str(told)), field_manager="argocd")
                        except ApiError as err:
                            assert "would stop this running job" in str(err), err
                            return not kept
                        spec = found["spec"] if kind == "RayJob" else found["spec"]["runPolicy"]
                        assert (spec["suspend"], found["metadata"]["labels"]["attempt"]) == (False, str(told))
                        return kept

                    await until(applied, what=f"{where} to count")
        finally:
            await admin.delete(TREES, "ElasticQuotaTree", "says", "kube-system")


async def test_a_tenant_replaces_holds_releases_stops_and_deletes_its_own_jobs(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        made = await alice.create(job(suspend=True))
        groups = [{**made["spec"]["rayClusterSpec"]["workerGroupSpecs"][0], "replicas": 3}]
        await change(alice, made, {"spec": {"rayClusterSpec": {"workerGroupSpecs": groups}}})
        await change(alice, made, annotated(hold="true", changed_by="alice", change_reason="not yet"))
        await change(alice, made, annotated(hold=None, changed_by="alice", change_reason=None))
        found = await alice.get(RAY, "RayJob", made["metadata"]["name"], MANAGED)
        await alice.replace(found)
        await remove(alice, made)


async def test_a_tenant_writes_the_annotations_that_are_for_people_and_no_others(plane: ControlPlane) -> None:
    page = (REPOSITORY / "docs" / "reference" / "annotations.md").read_text().partition("## On a job")[2]
    told = set(re.findall(r"muster\.dev/[a-z-]+", "".join(re.findall(r"^\| annot.*?\|", page, re.M))))
    people = {
        PRIORITY,
        HOLD,
        BY,
        WHY,
        CHECKPOINTED_AT,
        RECLAIM_GRACE,
        RUN_TIME,
        DRIVE,
        START,
        DRAIN,
        NODE_WAIT,
        FLAVORS,
        FLAVOR_WAIT,
    }
    assert told == {*people, ON_FLAVORS}
    for_people = {HOLD: "true", BY: "alice", WHY: "x", CHECKPOINTED_AT: "2026-01-01T00:00:00Z", RECLAIM_GRACE: "10m"}
    for_people |= {
        DRIVE: "true",
        RUN_TIME: "2h",
        DRAIN: "1m",
        NODE_WAIT: "5m",
        START: "minimum",
        FLAVORS: "h100,a100",
        FLAVOR_WAIT: "30m",
    }
    async with client(plane, ALICE) as alice:
        body = job(suspend=True)
        body["metadata"]["annotations"] |= for_people
        made = await alice.create(body)
        for key in for_people:
            await change(alice, made, {"metadata": {"annotations": {key: None, BY: "alice"}}})
        for key in ("muster.dev/anything", INTENT, QUEUED_AT, ON_FLAVORS, "muster.dev/gang", "muster.dev/made-for"):
            await refused(change(alice, made, {"metadata": {"annotations": {key: "1"}}}), "is written by Muster alone")
        await remove(alice, made)


async def test_a_job_that_somebody_else_holds_stays_held(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice, client(plane, CAROL) as carol:
        made = await alice.create(job(suspend=True))
        await change(carol, made, annotated(hold="true", changed_by="carol"))
        await refused(change(alice, made, annotated(hold=None)), "it is held by carol: ask them, or for verb hold")
        await refused(change(alice, made, annotated(changed_by="alice")), "muster.dev/changed-by is alice but you are")
        await change(carol, made, annotated(hold=None, changed_by="carol"))
        await remove(alice, made)


async def test_a_restore_by_cluster_admin_starts_nothing(plane: ControlPlane) -> None:
    """What ran when the backup was made, with the annotations of Muster and without: suspended, or refused."""
    marks = {INTENT: "1-7-0", QUEUED_AT: "2026-01-01T00:00:00Z"}
    async with client(plane, ARGO) as velero:
        for kind, row in KINDS.items():
            for noted in (True, False):
                body = job(ANOTHER) if kind == "RayJob" else jobs.KINDS[kind].make("restored", ANOTHER)
                body["metadata"] |= {"name": "restored", "annotations": marks if noted else {}}
                *above, last = row.suspend_path.split("/")[1:]
                inner = body
                for part in above:
                    inner = inner.setdefault(part, {})
                inner[last] = False
                try:
                    made = await velero.create(body)
                except ApiError as err:
                    assert err.status in (403, 422) and (noted or not mutates(plane)), (kind, err)
                    continue
                for part in above:
                    made = made[part]
                assert made[last] is True and not noted, (kind, "starts by itself")
                await velero.delete(row.resource.api_version, kind, "restored", ANOTHER)


# --- break-glass ------------------------------------------------------------------------------------------------------


async def test_breaking_the_glass_takes_a_name_and_a_reason(plane: ControlPlane) -> None:
    async with client(plane, DAVE) as dave, client(plane, plane.admin) as admin:
        made = await dave.create(job(ANOTHER, suspend=True))
        start: Object = {"spec": {"suspend": False}}
        for who, name in ((dave, "dave"), (admin, plane.admin.name)):
            await refused(change(who, made, start), f"set annotation muster.dev/changed-by to {name}")
        await refused(change(dave, made, start | annotated(changed_by="bob", change_reason="x")), "it is recorded")
        assert not (await change(dave, made, start | REASON))["spec"]["suspend"]
        await remove(dave, made)
    async with client(plane, ARGO) as argo:
        made = await argo.create(job(ANOTHER, suspend=True))
        mine = annotated(changed_by=ARGO.name, change_reason="x")
        await refused(change(argo, made, start | mine), "Muster starts")
        await refused(change(argo, made, annotated(intent="1-7-0")), "is written by Muster alone")
        # What an administrator has to say to start it all the same.
        async with client(plane, ARGO, acts_as=("rita", "muster:break-glass")) as rita:
            await refused(change(rita, made, start), "set annotation muster.dev/changed-by to rita")
            named = annotated(changed_by="rita", change_reason="the demo is today")
            assert not (await change(rita, made, start | named))["spec"]["suspend"]
        await remove(argo, made)
