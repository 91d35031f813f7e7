"""A real cluster as its users know it, with the simulated KubeRay operator on it: what they create and what they read.

The control plane has everything a cluster of the documents has: definitions, namespaces, nodes (KWOK), controllers.
Tests take one after the other what is on it: `Cluster` begins and ends with nothing of ours on it.
"""

import asyncio
import contextlib
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Literal, Self, TypeVar

import aiohttp

from kit.beside import beside, still_running
from kit.controlplane import ControlPlane
from kit.crds import install_crds
from kit.documents import manifest
from kit.doubles.asyncdriver import AsyncDriver
from kit.follow import Follow
from kit.kubeclient import ApiError, KubeClient, Object, condition
from kit.story import quota_tree
from kit.waiting import until
from muster.core.reading.kubequeue import QUEUE_NAMESPACE, QUOTA_FULLNAME
from muster.core.workloads.registry import KINDS
from muster.events.facts import TreeNodeSpec
from muster.fakecluster.controllers import Controller
from muster.fakecluster.kuberay import RUNTIME, KubeRayOperator, OperatorSettings
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.kube.transport import KubeTransport
from muster.model.api import LEASES
from muster.runtime.clusterlease import NAMESPACE, PATH
from muster.runtime.witness import name_of

T = TypeVar("T")

#: The namespaces of the tree T0, and some that no quota claims.
NAMESPACES = ("video", "text", "intern-text", "intern-video", "devops", "infra-devops", "nobody", "other")
NODES = 3
NODE = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8", "pods": "110"}
RUN_FOR = "kit.muster.dev/run-for"
"""Annotation of a pod: KWOK lets it succeed after so long; it may be changed while the pod runs."""
RAY, SCHEDULING, TREES = "ray.io/v1", "scheduling.x-k8s.io/v1alpha1", "scheduling.sigs.k8s.io/v1beta1"
#: What a test leaves behind, in the order it is removed in: (path, whether each object has to be looked after).
REMAINS = (
    "/apis/scheduling.sigs.k8s.io/v1beta1/elasticquotatrees",
    *(row.resource.path() for row in KINDS.values()),
    "/apis/scheduling.run.ai/v2/queues",
    "/apis/scheduling.x-k8s.io/v1alpha1/queueunits",
    "/apis/scheduling.x-k8s.io/v1alpha1/queues",
    "/api/v1/pods",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
    "/api/v1/events",
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def furnish(plane: ControlPlane) -> None:
    """Put on a new control plane what every test expects there, before its controllers start."""
    transport = await connect(FromKubeconfig(str(plane.kubeconfig)))
    try:
        await install_crds(transport)
    finally:
        await transport.close()
    async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
        for name in (*NAMESPACES, QUEUE_NAMESPACE):
            await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def add_nodes(plane: ControlPlane) -> None:
    """Add the nodes of the documents' cluster, once its controllers run; they take pods by the time this returns."""
    async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
        for index in range(NODES):
            node = {"metadata": {"name": f"node-{index}"}, "status": {"capacity": NODE, "allocatable": NODE}}
            await kube.create({"apiVersion": "v1", "kind": "Node", **node})
        for index in range(NODES):
            await until(lambda index=index: takes_pods(kube, f"node-{index}"), 60.0, what="the nodes to be ready")


async def takes_pods(kube: KubeClient, name: str) -> bool:
    """Whether a node does: a new one is not ready at first, and says so by a taint."""
    node = await kube.get("v1", "Node", name)
    return condition(node, "Ready").get("status") == "True" and not node["spec"].get("taints")


class Cluster:
    """`async with Cluster(plane) as cluster`: the operator runs, and nothing else is there.

    `pods`: whether RayClusters have pods, which then are scheduled and run. Without they are ready after `ready_ms`,
    which is all that most tests need. `remains`: what tests leave behind besides what all do.
    """

    SWEPT_S = 60.0
    """How long it may take until nothing of a test is left."""

    def __init__(
        self,
        plane: ControlPlane,
        *,
        pods: bool = False,
        ready_ms: int = 300,
        batch_scheduler: Literal["", "kai-scheduler"] = "",
        remains: tuple[str, ...] = (),
    ) -> None:
        self.plane = plane
        self._remains = (*REMAINS, *remains)
        self.kube = KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file)
        self.transport: KubeTransport
        self._kuberay = contextlib.AsyncExitStack()
        self._settings = OperatorSettings(
            pods=pods,
            submitter_pods=pods,
            # KubeRay fails a job whose end it could not see for so long, as when the API server is away for a while.
            submitter_grace_ms=300_000,
            ready_ms=ready_ms,
            run_for=RUN_FOR,
            fail_after="kit.muster.dev/fail-after",
            batch_scheduler=batch_scheduler,
        )
        self._stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[Any]] = []
        self._guards: list[Callable[[], None]] = []
        """Asked during every wait: they raise when something has ended that must not."""

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.kube)
        self.transport = await connect(FromKubeconfig(str(self.plane.kubeconfig)))
        self._stack.push_async_callback(self.transport.close)
        await self._run_kuberay()
        self._stack.push_async_callback(self._kuberay.aclose)
        await self.sweep()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._guard()
            await self.sweep()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._stack.aclose()

    def keep(self, running: Coroutine[Any, Any, object]) -> None:
        """Run something beside the test until its end; the test fails when it ends before."""
        task = asyncio.get_running_loop().create_task(running)
        self._tasks.append(task)
        self._guards.append(lambda: still_running(task))

    async def follow(self, *watches: Follow) -> None:
        """Have these run beside the test; they have heard of everything that exists when this returns."""
        for watch in watches:
            self.keep(watch.run())
        await self.until(lambda: all(watch.ready.is_set() for watch in watches), what="the watches to have begun")

    def operate(self, *operators: Controller) -> None:
        """Have operators run on the cluster until the end."""
        self.keep(self.driver(*operators).run())

    @contextlib.asynccontextmanager
    async def without_kuberay(self) -> AsyncIterator[None]:
        """While this lasts the operator is stopped."""
        await self._kuberay.aclose()
        try:
            yield
        finally:
            await self._run_kuberay()

    async def _run_kuberay(self) -> None:
        await self._kuberay.enter_async_context(self.beside(self.driver(KubeRayOperator(self._settings)).run()))

    def driver(self, *operators: Controller) -> AsyncDriver:
        """Has operators act on this cluster, while it runs."""
        return AsyncDriver(self.transport, operators, lambda: time.time_ns() // 1_000_000)

    @contextlib.asynccontextmanager
    async def beside(self, running: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
        """Run something for as long as the block lasts; the test fails when it ends before."""
        async with beside(running) as guard:
            self._guards.append(guard)
            try:
                yield
            finally:
                self._guards.remove(guard)

    def _guard(self) -> None:
        for guard in self._guards:
            guard()

    async def sweep(self) -> None:
        """Remove what tests make, and return when it is gone."""

        async def gone() -> bool:
            left = 0
            for path in self._remains:
                items = (await self.kube.request("GET", path))["items"]
                left += 0 if path.endswith("/events") else len(items)
                for namespace in {item["metadata"].get("namespace", "") for item in items}:
                    head, _, plural = path.rpartition("/")
                    options = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
                    within = f"/namespaces/{namespace}" if namespace else ""
                    await self.kube.request("DELETE", f"{head}{within}/{plural}", body=options)
            return not left

        await until(gone, self.SWEPT_S, 0.1)
        # A Muster that was killed holds the first for a while; the second is the record of its log. The next test has
        # another log.
        for path in (PATH, LEASES.path(NAMESPACE, name_of("main"))):
            with contextlib.suppress(ApiError):
                await self.kube.request("DELETE", path)

    async def until(
        self, asked: Callable[[], T | Awaitable[T]], timeout_s: float = 30.0, what: str = "", *, every_s: float = 0.03
    ) -> T:
        """The first answer that is true; fails at once when something beside the test has ended."""

        async def guarded() -> T:
            self._guard()
            answer = asked()
            return await answer if isinstance(answer, Awaitable) else answer

        return await until(guarded, timeout_s, every_s, what=what or getattr(asked, "__name__", "the condition"))

    # --- what users do ----------------------------------------------------------------------------------------

    async def apply_tree(self, root: TreeNodeSpec | None = None, **where: str) -> Object:
        """Create the tree, or replace what it says; T0 unless said."""
        wanted = quota_tree(root, **where)
        meta = wanted["metadata"]
        found = await self.kube.find(TREES, "ElasticQuotaTree", meta["name"], meta["namespace"])
        if found is None:
            return await self.kube.create(wanted)
        return await self.kube.patch(
            TREES,
            "ElasticQuotaTree",
            meta["name"],
            meta["namespace"],
            patch=[{"op": "replace", "path": "/spec", "value": wanted["spec"]}],
        )

    async def submit(self, job: Object) -> str:
        """`kubectl create -f`; returns the name."""
        return str((await self.kube.create(job))["metadata"]["name"])

    async def patch_job(self, name: str, patch: Any) -> Object:
        return await self.kube.patch(RAY, "RayJob", name, "video", patch=patch)

    async def let_end(self, name: str) -> None:
        """What a RayJob in namespace video runs comes to its end now, however long it was to run.

        The operator reads that when a run begins, and when it is started: so it is started again. Where pods run, the
        submitter's ends after that: one that ends before Ray has heard of the job fails it.
        A short job may be over in Ray before the first look.
        """
        if self._settings.submitter_pods:
            await self.until(lambda: self._is_in_ray(name, "RUNNING", "SUCCEEDED"), what=f"Ray to hear of {name}")
        async with self.without_kuberay():
            await self.patch_job(name, {"metadata": {"annotations": {RUNTIME: "0s"}}})
        if self._settings.submitter_pods:
            await self.until(lambda: self._is_in_ray(name, "SUCCEEDED"), what=f"Ray to be done with {name}")
            await self.end_pods(f"batch.kubernetes.io/job-name={name}", 1)

    async def _is_in_ray(self, name: str, *statuses: str) -> bool:
        return ((await self.job(name)).get("status") or {}).get("jobStatus") in statuses

    async def end_pods(self, labels: str, number: int, namespace: str = "video") -> None:
        """So many pods with these labels succeed now, however long they were to run."""

        async def all_run() -> list[str] | None:
            found = await self.kube.list_objects("v1", "Pod", namespace, labels=labels)
            names = [pod["metadata"]["name"] for pod in found if pod["status"]["phase"] == "Running"]
            return names if len(names) == number else None

        for name in await self.until(all_run, 60.0, f"{number} pods with {labels} to run") or ():
            await self.kube.patch("v1", "Pod", name, namespace, patch={"metadata": {"annotations": {RUN_FOR: "0s"}}})

    async def delete_job(self, name: str, namespace: str = "video") -> None:
        await self.kube.delete(RAY, "RayJob", name, namespace)

    # --- what users read --------------------------------------------------------------------------------------

    async def job(self, name: str, namespace: str = "video") -> Object:
        return await self.kube.get(RAY, "RayJob", name, namespace)

    async def state(self, name: str, namespace: str = "video") -> str:
        """The deployment status of a RayJob; empty before it has one, `gone` after its end."""
        found = await self.kube.find(RAY, "RayJob", name, namespace)
        return "gone" if found is None else str((found.get("status") or {}).get("jobDeploymentStatus", ""))

    async def annotations(self, name: str, namespace: str = "video") -> dict[str, str]:
        return dict((await self.job(name, namespace))["metadata"].get("annotations") or {})

    async def unit(self, name: str, namespace: str = "video") -> Object | None:
        return await self.kube.find(SCHEDULING, "QueueUnit", f"{name}-ray-qu", namespace)

    async def phase(self, name: str, namespace: str = "video") -> str:
        """The phase of a job's QueueUnit; empty when there is none."""
        unit = await self.unit(name, namespace)
        return str((unit or {}).get("status", {}).get("phase", ""))

    async def message(self, name: str, namespace: str = "video") -> str:
        unit = await self.unit(name, namespace)
        return str((unit or {}).get("status", {}).get("message", ""))

    async def queues(self) -> dict[str, Object]:
        """{quota path: its Queue object}"""
        found = await self.kube.list_objects(SCHEDULING, "Queue", QUEUE_NAMESPACE)
        return {queue["metadata"]["annotations"][QUOTA_FULLNAME]: queue for queue in found}

    async def line(self, path: str = "root/algorithm/video") -> Object:
        """queueItemDetails of a queue."""
        queue = (await self.queues()).get(path) or {}
        return dict((queue.get("status") or {}).get("queueItemDetails") or {})

    async def tree_used(self) -> dict[str, dict[str, str]]:
        """{quota path: used} as the tree's status says."""
        tree = await self.kube.get(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system")
        found: dict[str, dict[str, str]] = {}

        def read(node: Object, above: str) -> None:
            path = f"{above}/{node['name']}" if above else "root"
            found[path] = node["used"]
            for child in node.get("children", ()):
                read(child, path)

        if tree.get("status"):
            read(tree["status"]["root"], "")
        return found

    async def events(self, uid: str) -> list[Object]:
        """What `kubectl describe` shows of an object under Events."""
        return [*await self.kube.list_objects("v1", "Event", fields=f"involvedObject.uid={uid}")]

    async def told(self, name: str, namespace: str = "video") -> list[tuple[str, str]]:
        """(reason, message) of our Events on a RayJob, the oldest first."""
        uid = (await self.job(name, namespace))["metadata"]["uid"]
        ours = [event for event in await self.events(uid) if event["reportingComponent"] == "muster"]
        ours.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["reason"], event["message"]) for event in ours]

    async def pods(self, namespace: str = "video") -> dict[str, str]:
        """{name: phase}"""
        found = await self.kube.list_objects("v1", "Pod", namespace)
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in found}

    async def nodes(self, namespace: str = "video") -> dict[str, str]:
        """{name of a pod: its node, "" where it has none}"""
        found = await self.kube.list_objects("v1", "Pod", namespace)
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}

    async def kubectl(self, *arguments: str) -> str:
        """What the real kubectl prints to an administrator."""
        command = (
            "kubectl",
            "--kubeconfig",
            str(self.plane.kubeconfig),
            "--cache-dir",
            str(self.plane.folder / "kubectl"),
        )
        piped = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, *arguments, stdout=piped, stderr=asyncio.subprocess.STDOUT
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        assert process.returncode == 0, f"kubectl {' '.join(arguments)} ends with {process.returncode}:\n{out.decode()}"
        return out.decode()

    async def table(self, path: str) -> list[dict[str, str]]:
        """What `kubectl get` prints: a row each, {COLUMN: cell}."""
        headers = {"Authorization": f"Bearer {self.plane.admin.token}", "Accept": TABLE}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(self.plane.url + path, ssl=False) as answer,
        ):
            found = await answer.json()
        shown = [
            (at, column["name"].upper())
            for at, column in enumerate(found["columnDefinitions"])
            if not column["priority"]
        ]
        return [{name: str(row["cells"][at] or "") for at, name in shown} for row in found["rows"]]

    async def running(self, name: str, namespace: str = "video") -> bool:
        return await self.state(name, namespace) == "Running"

    async def began(self, name: str, namespace: str = "video") -> bool:
        """Whether a RayJob runs, or has run: on a busy machine a short job may be over between two looks."""
        return await self.state(name, namespace) in ("Running", "Complete")

    async def complete(self, *names: str, namespace: str = "video", timeout_s: float = 60.0) -> None:
        """Return once all of these RayJobs are Complete."""

        async def all_complete() -> bool:
            return all([await self.state(name, namespace) == "Complete" for name in names])

        await self.until(all_complete, timeout_s, f"{names} to complete")

    async def quiet(self) -> None:
        """Return once no RayCluster exists and every job is over or suspended."""

        async def still() -> bool:
            clusters = await self.kube.list_objects(RAY, "RayCluster")
            return not clusters

        await self.until(still, 60.0, "every RayCluster to be gone")


def document_job(namespace: str = "video", *, runtime: str = "2s", ttl_s: int | None = None, **metadata: Any) -> Object:
    """The document's RayJob; only how long its script runs is added, and what the test gives."""
    job = copy.deepcopy(manifest("rayjob-video"))
    job["metadata"] |= {"namespace": namespace, **metadata}
    job["metadata"]["annotations"] = {**job["metadata"].get("annotations", {}), RUNTIME: runtime}
    if ttl_s is not None:
        job["spec"]["ttlSecondsAfterFinished"] = ttl_s
    return job
