"""The doctor is never green when red: each breakage of a cluster or a log is named, with a command that mends it.

One real API server with everything of deploy/ and one real nats-server. Every breakage is made, named, and mended;
before and after all of them a healthy install has nothing to mend.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from kit import nodes
from kit.controlplane import ControlPlane
from kit.guarded import client
from kit.kubeclient import KubeClient, Object
from kit.nats import SMALL
from kit.scenes import Scene, beginning
from kit.standings import SCENES, held_up
from kit.story import quota_tree
from kit.waiting import until
from kit.words import odd
from muster.bus.cell import open_stores
from muster.bus.connection import connect
from muster.bus.importing import import_log
from muster.bus.jetstream import JetStream
from muster.bus.lease import JetStreamLease
from muster.bus.log import Body
from muster.bus.server import EmbeddedServer
from muster.core.reading.registry import WATCHED
from muster.core.wording.events import ref_of
from muster.events import subjects
from muster.events.envelope import Stored, encode_commit
from muster.events.facts import ObjectUnreadable, SyncStarted
from muster.kube.config import connect as connect_api
from muster.kube.sources import Explicit, FromKubeconfig
from muster.model.keys import Ref
from muster.ports import ApiTransport
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config
from muster.runtime.pairing import record_cluster
from muster_cli.api import Api, mismatch
from muster_cli.buschecks import bus_findings
from muster_cli.clusterchecks import cluster_findings
from muster_cli.findings import Finding
from muster_cli.reading import LogPlace, opened
from muster_cli.rolechecks import role_findings
from muster_cli.state import SEATS
from muster_cli.treechecks import tree_findings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

ADMISSION, RBAC = "admissionregistration.k8s.io/v1", "rbac.authorization.k8s.io/v1"
TREES, CRDS = "scheduling.sigs.k8s.io/v1beta1", "apiextensions.k8s.io/v1"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
SYSTEM, TREE_AT = "muster-system", "kube-system"
GONE = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "deletionTimestamp", "selfLink")

Break = Callable[[KubeClient], AbstractAsyncContextManager[Any]]


# --- how things of a cluster are broken, and mended ----------------------------------------------------------------


def bare(found: Object) -> Object:
    meta = {key: value for key, value in found["metadata"].items() if key not in GONE}
    return {**{key: value for key, value in found.items() if key != "status"}, "metadata": meta}


def without(version: str, kind: str, name: str, namespace: str | None = None) -> Break:
    """The object is deleted."""

    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        found = await kube.get(version, kind, name, namespace)
        await kube.delete(version, kind, name, namespace)
        await until(lambda: gone(kube, version, kind, name, namespace), 30.0)
        yield
        await kube.create(bare(found))

    return made


async def gone(kube: KubeClient, *which: Any) -> bool:
    return await kube.find(*which) is None


def with_(body: Object, status: Object | None = None) -> Break:
    """An object is there that should not be."""

    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        meta = body["metadata"]
        await kube.create(body)
        if status is not None:
            which = (body["apiVersion"], body["kind"], meta["name"], meta.get("namespace"))
            await kube.patch(*which, patch={"status": status}, subresource="status")
        yield
        await kube.delete(body["apiVersion"], body["kind"], meta["name"], meta.get("namespace"))

    return made


def changed(version: str, kind: str, name: str, namespace: str | None = None, **patch: Any) -> Break:
    """The object says something else."""

    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        found = await kube.get(version, kind, name, namespace)
        await kube.patch(version, kind, name, namespace, patch=patch)
        yield
        await kube.delete(version, kind, name, namespace)
        await until(lambda: gone(kube, version, kind, name, namespace), 30.0)
        await kube.create(bare(found))

    return made


def relabelled(name: str, value: str | None) -> Break:
    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        for text in (value, "true"):
            await kube.patch("v1", "Namespace", name, patch={"metadata": {"labels": {"muster.dev/managed": text}}})
            if text == value:
                yield

    return made


def namespaced(name: str, inner: Break) -> Break:
    """In a namespace of its own, which may stay."""

    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        if await kube.find("v1", "Namespace", name) is None:
            await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        async with inner(kube):
            yield

    return made


def lease(name: str, namespace: str, holder: str) -> Break:
    renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
    meta = {"name": name, "namespace": namespace}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
    return namespaced(namespace, with_(body))


def deployment(name: str, namespace: str, **labels: str) -> Break:
    pods = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": pods}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
    return namespaced(namespace, with_(body, {"replicas": 1, "availableReplicas": 1, "readyReplicas": 1}))


def policy(name: str) -> tuple[str, str, str]:
    return ADMISSION, POLICY, name


def binding(name: str) -> tuple[str, str, str]:
    return ADMISSION, BINDING, name


TREE = (TREES, "ElasticQuotaTree", "elasticquotatree", TREE_AT)
LIMITLESS = {"root": {"name": "root", "min": {"cpu": "9"}, "max": {"cpu": "1"}, "children": []}}
UNREADABLE = {"root": {"name": "root", "min": {"cpu": "much"}, "max": {"cpu": "1"}, "children": []}}
LOST = {"root": {"name": "root", "max": {"cpu": "1"}, "children": [{"name": "x", "namespaces": ["nowhere"]}]}}


def second_tree(namespace: str) -> Object:
    return quota_tree(None, namespace=namespace) | {"metadata": {"name": "second", "namespace": namespace}}


ELSEWHERE = {"namespaceSelector": {"matchLabels": {"a": "b"}}}
ROLES_FIX = "kubectl apply -k deploy/rbac"
APPLY, EDIT = "kubectl apply -f deploy/policies", "edit configmap muster-controllers"
POLICIES: dict[str, tuple[Break, str, str]] = {
    "a policy is missing": (without(*policy("muster-jobs")), "muster-jobs missing: anybody may start", APPLY),
    "another policy is missing": (without(*policy("muster-claims")), "muster-claims missing", APPLY),
    "a policy is not bound": (without(*binding("muster-pods")), f"{BINDING} muster-pods missing", APPLY),
    "what limits us is missing": (without(*policy("muster-own-jobs")), "actuator change anything", APPLY),
    "what limits us is not bound": (without(*binding("muster-own-pods")), "actuator change anything", APPLY),
    "a binding only warns": (
        changed(*binding("muster-jobs"), spec={"validationActions": ["Warn"]}), "refuses nothing: validation", APPLY
    ),
    "a binding holds elsewhere": (
        changed(*binding("muster-jobs"), spec={"matchResources": ELSEWHERE}),
        "holds only in namespaces with a=b", APPLY,
    ),
    "a binding trusts others": (
        changed(*binding("muster-jobs"), spec={"paramRef": {"name": "mine", "namespace": "default"}}),
        "takes its accounts from ConfigMap default/mine", APPLY,
    ),
    "a policy lets through what fails": (
        changed(*policy("muster-jobs"), spec={"failurePolicy": "Ignore"}), "has failurePolicy Ignore", APPLY
    ),
    "a policy has no rule": (
        changed(*policy("muster-tokens"), spec={"validations": None, "auditAnnotations": [
            {"key": "x", "valueExpression": "'y'"}]}),
        "muster-tokens has no rule", APPLY,
    ),
    "a policy is for some namespaces": (
        changed(*policy("muster-status"), spec={"matchConstraints": ELSEWHERE}),
        "holds in some namespaces only", APPLY,
    ),
    "nobody is trusted": (
        without("v1", "ConfigMap", "muster-controllers", SYSTEM), "muster-controllers missing", "controllers.yaml"
    ),
    "no operator is named": (
        changed("v1", "ConfigMap", "muster-controllers", SYSTEM, data={"rayjobs.ray.io": ""}), "names no account", EDIT
    ),
}  # fmt: skip
QUOTA: dict[str, tuple[Break, str, str]] = {
    "no tree": (without(*TREE), "there is no ElasticQuotaTree", "kubectl apply -f TREE.yaml"),
    "two trees": (with_(second_tree(TREE_AT)), "only the oldest of", "delete elasticquotatrees"),
    "a tree elsewhere": (
        with_(second_tree("default")),
        "ignored, because a tree counts only",
        "kubectl -n default delete",
    ),
    "a refused tree": (changed(*TREE, spec=LIMITLESS), "it is refused as a whole", "kubectl -n kube-system edit"),
    "an unreadable tree": (changed(*TREE, spec=UNREADABLE), "quota tree kube-system/", "kubectl -n kube-system edit"),
    "a namespace that is not": (changed(*TREE, spec=LOST), "do not exist: nowhere", "kubectl create namespace nowhere"),
    "an unguarded namespace": (relabelled("video", None), "video without the label", "kubectl label namespace video"),
    "a namespace let go": (relabelled("text", "no"), "text without the label", "kubectl label namespace text"),
}
ROLES: dict[str, tuple[Break, str, str]] = {
    "the watcher may nothing": (
        changed(RBAC, "ClusterRole", "muster-watcher", rules=[]), "muster-watcher may not", ROLES_FIX
    ),
    "the actuator may nothing": (
        changed(RBAC, "ClusterRole", "muster-actuator", rules=[]), "muster-actuator may not", ROLES_FIX
    ),
    "the watcher is not bound": (
        without(RBAC, "ClusterRoleBinding", "muster-watcher"), "muster-watcher may not", ROLES_FIX
    ),
    "the actuator is not bound": (
        without(RBAC, "ClusterRoleBinding", "muster-actuator"), "muster-actuator may not", ROLES_FIX
    ),
    "the gateway may not ask": (
        without(RBAC, "ClusterRoleBinding", "muster-gateway"), "muster-gateway may not", ROLES_FIX
    ),
}  # fmt: skip
CLUSTER: dict[str, tuple[Break, str, str]] = {
    "kube-queue holds a lease": (lease("kube-queue-x", "kube-queue", "q-0"), "other owner kube-queue", "stop it"),
    "Kueue runs": (deployment("kueue-controller-manager", "kueue-system"), "other owner Kueue", "stop it"),
    "koord-queue runs": (deployment("koord-queue", "koord-queue"), "other owner koord-queue", "stop it"),
    "KAI binds pods": (deployment("kai-scheduler-default", "kai-scheduler"), "other owner KAI", "scale the"),
    "another Muster runs": (
        deployment("muster-x", "default", **{"app.kubernetes.io/part-of": "muster"}), "other owner Muster", "scale it"
    ),
    "another Muster acts": (lease("muster", SYSTEM, "main/else"), "cell/log main/else acts here", "scale its actuator"),
    "no QueueUnits": (
        without(CRDS, "CustomResourceDefinition", "queueunits.scheduling.x-k8s.io"),
        "definition QueueUnit", "from deploy/crds",
    ),
    "no Queues": (
        without(CRDS, "CustomResourceDefinition", "queues.scheduling.x-k8s.io"), "definition Queue", "from deploy/crds"
    ),
    "no operator": (
        without(CRDS, "CustomResourceDefinition", "tfjobs.kubeflow.org"), "kinds TFJob", "training operator"
    ),
}  # fmt: skip
FOR_CLUSTER: tuple[tuple[dict[str, tuple[Break, str, str]], str], ...] = (
    (POLICIES, "cluster"), (QUOTA, "trees"), (ROLES, "roles"), (CLUSTER, "cluster"),
)  # fmt: skip


async def asked(transport: ApiTransport, part: str = "") -> list[Finding]:
    """What the doctor says of a cluster; ``part``: of this alone."""
    found: list[Finding] = []
    if part in ("", "cluster"):
        found += await cluster_findings(transport, acting=True)
    if part in ("", "roles"):
        found += await role_findings(transport)
    if part in ("", "trees"):
        found += await tree_findings(transport)
    return found


def named(findings: list[Finding], words: str, fix: str) -> bool:
    return any(
        each.grade != "ok" and words in f"{each.title}: {each.detail}" and fix in each.fix and each.fix
        for each in findings
    )


def bad(findings: list[Finding]) -> list[Finding]:
    return [each for each in findings if each.grade == "bad"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kube(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """Everything of deploy/ is installed, and a tree whose namespaces are managed."""
    async with client(plane, plane.admin) as kube:
        tree = quota_tree()
        await kube.create(tree)
        for name in sorted(claimed(tree["spec"]["root"])):
            if await kube.find("v1", "Namespace", name) is None:
                await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            await kube.patch("v1", "Namespace", name, patch={"metadata": {"labels": {"muster.dev/managed": "true"}}})
        yield kube


def claimed(node: Object) -> set[str]:
    return {*node.get("namespaces", ()), *(name for each in node.get("children", ()) for name in claimed(each))}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def transport(plane: ControlPlane) -> AsyncIterator[ApiTransport]:
    found = await connect_api(FromKubeconfig(str(plane.kubeconfig)))
    yield found
    await found.close()


async def test_each_breakage_of_a_cluster_is_named_with_what_mends_it(
    kube: KubeClient, transport: ApiTransport
) -> None:
    assert bad(await asked(transport)) == []
    missed: dict[str, list[Finding]] = {}
    for table, part in FOR_CLUSTER:
        for name, (breaks, words, fix) in table.items():
            async with breaks(kube):
                found: list[Finding] = []

                async def sees(
                    part: str = part, words: str = words, fix: str = fix, found: list[Finding] = found
                ) -> bool:
                    found[:] = await asked(transport, part)
                    return named(found, words, fix)

                try:  # An authorizer and discovery hear of a change a moment later.
                    await until(sees, 10.0, 0.2)
                except AssertionError:
                    missed[name] = [each for each in found if each.grade != "ok"]
    assert not missed
    await until(lambda: healthy(transport), 30.0, what="a healthy cluster again")


async def healthy(transport: ApiTransport) -> bool:
    return bad(await asked(transport)) == []


async def test_an_api_server_that_cannot_be_asked_is_named(plane: ControlPlane) -> None:
    for source in (
        Explicit("https://127.0.0.1:1", token="x"),
        Explicit(plane.url, token="nobody", ca_file=str(plane.ca_file)),
        FromKubeconfig(str(plane.kubeconfig), "other"),
    ):
        with pytest.raises(Exception, match=r"127\.0\.0\.1|other"):
            await connect_api(source, check=True)


# --- the log --------------------------------------------------------------------------------------------------------


def scene(*lines: str) -> Callable[[], Scene]:
    return lambda: beginning(*lines)


def standing(name: str) -> Callable[[], Scene]:
    return lambda: SCENES[name]()[0]


def resynced() -> Scene:
    made = beginning("job one")
    made.do(SyncStarted(kinds=("RayJob", "Pod")))
    return made


def unready() -> Scene:
    made = beginning()
    made.do(nodes.node("n", ready=False))
    return made


def illegible() -> Scene:
    made = beginning()
    ref = Ref("RayJob", "video", "odd", "uid-odd-one")
    made.do(ObjectUnreadable(ref=ref, rv=99_999_999, problem=odd("spec.x: missing")))
    return made


BY_THE_LOG: dict[str, tuple[Callable[[], Scene], str, str]] = {
    "an object that cannot be read": (illegible, "unreadable RayJob video/odd", "kubectl -n video edit rayjob odd"),
    "a kind that is not listed": (resynced, "the cluster is not fully listed", "logs deploy/muster-watcher"),
    "no tree in force": (standing("NoQuotaTree"), "no valid quota tree is in force", "kubectl apply -f TREE.yaml"),
    "a sorter that is silent": (standing("Seen"), "queue-sorter has not answered", "logs deploy/muster-queue-sorter"),
    "an accountant that is silent": (standing("BeingTried"), "quota-accountant has not", "logs deploy/muster-quota"),
    "an admitter that is silent": (standing("Reserved"), "gang-admitter has not", "logs deploy/muster-gang-admitter"),
    "an actuator that is silent": (standing("Admitted"), "actuator has not", "logs deploy/muster-actuator"),
    "an operator that does nothing": (scene("job one", "resumed one"), "nothing of it exists", "does the operator"),
    "a write that is refused": (standing("ResumeFailed"), "the API server refuses to resume", "muster why video/one"),
    "a paused queue": (standing("Paused"), "paused", "muster resume admissions"),
    "jobs that are refused": (standing("CannotSuspend"), "1 job not queued", "muster ls --state refused"),
    "a pod without a node": (lambda: held_up("Unschedulable")[0], "Unschedulable at 1 job", "muster why video/one"),
    "an image that is missing": (lambda: held_up("ImagePullBackOff")[0], "ImagePullBackOff", "muster why video/one"),
    "a queue over its max": (standing("Running, beyond its grant"), "uses more than its max", "muster ls --queue"),
    "no node is ready": (unready, "none of 1 node is ready", "kubectl get nodes"),
}  # fmt: skip
_cells = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer()
    await server.start()
    yield server
    await server.stop()


class Cell:
    """A log with the commits of a scene, whose stages all have a leader."""

    def __init__(self, url: str, js: JetStream, name: str) -> None:
        self.js, self.name = js, name
        self.place = LogPlace(Config(nats_url=url, cell=name))

    async def findings(self, *, clock: Any = None) -> list[Finding]:
        return await bus_findings(self.place, clock or SystemClock())


def seated(stored: Stored) -> Body:
    """A commit as a log has it: facts of the tests come from no shard that there is."""
    commit, subject = stored.commit, stored.subject
    if commit.stage == "watcher":
        ref = ref_of(commit.events[0])
        shard = next((name for name, row in WATCHED.items() if ref is not None and row.kind == ref.kind), "pods")
        commit, subject = replace(commit, shard=shard), subject.replace("watcher.0", f"watcher.{shard}")
    return Body(stored.seq, encode_commit(commit), "", subject, stored.stored_at)


@asynccontextmanager
async def cell_of(broker: EmbeddedServer, made: Scene, without: str = "") -> AsyncIterator[Cell]:
    """``without``: the stage that no process leads."""
    connection = await connect(broker.url, name="test")
    js, name = JetStream(connection), f"doctor-{next(_cells)}"
    try:
        bodies = [seated(each) for each in made.bench.log]
        found = await import_log(js, name, bodies, limits=SMALL)
        await open_stores(js, name, create=True, limits=SMALL)
        leases = [JetStreamLease(js, found.identity, *seat, "test") for seat in SEATS if seat[0] != without]
        assert all(await asyncio.gather(*(each.acquire() for each in leases)))
        yield Cell(broker.url, js, name)
        for each in await js.names(">"):
            if name in each:
                await js.delete(each)
    finally:
        await connection.close()


QUIET = ("job one", "resumed one", "cluster one", "pod one 0", "runs one")


async def test_each_breakage_that_the_log_knows_is_named(broker: EmbeddedServer) -> None:
    missed: dict[str, list[Finding]] = {}
    async with cell_of(broker, beginning(*QUIET)) as quiet:
        assert bad(await quiet.findings()) == []
    for name, (made, words, fix) in BY_THE_LOG.items():
        async with cell_of(broker, made()) as broken:
            found = await broken.findings(clock=Ahead())
            if not named(found, words, fix):
                missed[name] = [each for each in found if each.grade != "ok"]
    assert not missed


class Behind(SystemClock):
    def now(self) -> int:
        return super().now() - 60_000


class Ahead(SystemClock):
    """Later, so that what is owed an answer has waited."""

    def now(self) -> int:
        return super().now() + 400_000


Spoil = Callable[[Cell], Awaitable[Any]]


async def _smaller(cell: Cell) -> None:
    stream = subjects.log_stream(cell.name, 1)
    info = await cell.js.info(stream)
    assert info is not None
    await cell.js.ask(f"STREAM.UPDATE.{stream}", {**info.config, "max_bytes": info.state.bytes + 10})


async def _opened_up(cell: Cell) -> None:
    stream = subjects.log_stream(cell.name, 1)
    info = await cell.js.info(stream)
    assert info is not None
    await cell.js.ask(f"STREAM.UPDATE.{stream}", {**info.config, "discard": "old"})


def _gone(stream: Callable[[str], str]) -> Spoil:
    return lambda cell: cell.js.delete(stream(cell.name))


STREAMS: dict[str, tuple[Spoil, str, str]] = {
    "the log is gone": (_gone(lambda cell: subjects.log_stream(cell, 1)), "is gone", "muster log recover"),
    "the pointer is gone": (_gone(lambda cell: f"KV_{subjects.state_bucket(cell)}"), "has no log", "muster log init"),
    "leases are gone": (_gone(lambda cell: f"KV_{subjects.lease_bucket(cell)}"), "no stream KV_", "muster log init"),
    "snapshots are gone": (_gone(lambda cell: f"OBJ_{subjects.snapshot_bucket(cell)}"), "no stream OBJ_", "log init"),
    "the log is full": (_smaller, "used (9", "muster log roll"),
    "the log is configured otherwise": (_opened_up, "discard", "muster log init"),
}  # fmt: skip


async def test_each_breakage_of_nats_is_named(broker: EmbeddedServer, transport: ApiTransport) -> None:
    missed: dict[str, list[Finding]] = {}
    for name, (spoil, words, fix) in STREAMS.items():
        async with cell_of(broker, beginning(*QUIET)) as cell:
            await spoil(cell)
            found = await cell.findings()
            if not named(found, words, fix):
                missed[name] = [each for each in found if each.grade != "ok"]
    for stage in ("watcher", "queue_sorter", "quota_accountant", "gang_admitter", "actuator", "preemptor", "publisher"):
        async with cell_of(broker, beginning(*QUIET), without=stage) as cell:
            found = await cell.findings()
            if not named(found, f"no process leads {stage}", "kubectl -n muster-system rollout status deploy/muster-"):
                missed[f"no {stage}"] = bad(found)
    async with cell_of(broker, beginning(*QUIET)) as cell:
        if not named(found := await cell.findings(clock=Behind()), "behind the broker's", "set the clock"):
            missed["a clock"] = found
        async with opened(cell.place) as reading:
            identity = reading.log.identity
            await record_cluster(cell.js, identity, transport, "https://here")
            assert not await mismatch(reading, Api(transport, "here", simulated=False))  # type: ignore[arg-type]
            assert "is about another cluster" in await mismatch(reading, Api(Elsewhere(), "there", simulated=False))  # type: ignore[arg-type]
    nowhere = LogPlace(Config(nats_url="nats://127.0.0.1:1"))
    if not named(found := await bus_findings(nowhere, SystemClock()), "NATS", "get pods"):
        missed["no NATS"] = found
    assert not missed


class Elsewhere:
    """Another cluster."""

    async def request(self, *_: Any, **__: Any) -> Any:
        class Answer:
            ok, status, body = True, 200, b'{"metadata": {"uid": "another"}}'

        return Answer()


async def test_there_are_many() -> None:
    tables = [table for table, _ in FOR_CLUSTER]
    count = sum(map(len, tables)) + len(BY_THE_LOG) + len(STREAMS)
    assert count >= 50
