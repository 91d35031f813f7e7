"""What a watcher would report of a simulated cluster: the quota tree, the queues, the nodes, and every job's life."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from muster.core.objects.meta import RUN_TIME
from muster.core.quota.trees.treesource import PREEMPTS
from muster.core.stage import REQUIRED_KINDS
from muster.core.workloads.common import basis_of
from muster.events.base import Event
from muster.events.facts import (
    NodeGone,
    NodeObserved,
    QueueObserved,
    QuotaTreeObserved,
    Synced,
    SyncStarted,
    TreeNodeSpec,
    WorkloadFinished,
    WorkloadGone,
    WorkloadObserved,
    WorkloadStarted,
)
from muster.model.keys import Ref
from muster.model.resources import texts
from muster.model.workload import NodeState, PodSet, Workload
from muster.tracesim.model import CPU, GPU, MEMORY, NodeGroup, TraceCluster, TraceJob, TraceQueue

EPOCH_MS = 1_736_467_200_000
"""Log time at which a trace begins: 2025-01-10T00:00:00Z."""
PODLESS = {"start-timeout": "0"}
"""The simulation tells of jobs alone: that no pod of a job is seen means nothing."""

KIND = "RayJob"
AMPLE = {CPU: 10**9, MEMORY: 2**50}
"""What a node has of cpu and memory when its file does not say."""
PODS = {"pods": 10**9}
"""The same of room for pods, where they are placed."""


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Facts:
    """Builds the facts of one simulation; ``rv`` counts up like the resourceVersion of an API server."""

    def __init__(self, cluster: TraceCluster) -> None:
        self.cluster = cluster
        self.namespaces = _namespaces(cluster)
        self.paths = {namespace: path for path, namespace in self.namespaces.items()}
        self._rv = 1000
        self.nodes = dict(_named_nodes(cluster))
        self._pod_size = max((group.capacity.get(GPU, 0) for group in cluster.groups), default=0)

    def next_rv(self) -> int:
        self._rv += 1
        return self._rv

    def beginning(self, begun: Sequence[Event] = ()) -> list[Event]:
        """All objects at the beginning, with the jobs ``found`` running, and the end of every first list."""
        events: list[Event] = [SyncStarted(kinds=REQUIRED_KINDS), self.tree(self.cluster.root)]
        for path, queue in self.cluster.queues.items():
            policy = self.cluster.policies.get(path, "")
            if queue.priority or policy:
                ref = Ref("Queue", "kube-queue", path.replace("/", "-"), f"queue-{path}")
                observed = QueueObserved(ref=ref, rv=self.next_rv(), path=path, priority=queue.priority, policy=policy)
                events.append(observed)
        events += [self.node(name) for name in self.nodes]
        return [*events, *begun] + [Synced(kind=kind) for kind in REQUIRED_KINDS]

    def tree(self, root: TraceQueue) -> QuotaTreeObserved:
        """The quota tree as an object of the cluster."""
        ref = Ref("ElasticQuotaTree", "kube-system", "simulation", "tree-simulation")
        return QuotaTreeObserved(
            ref=ref,
            rv=self.next_rv(),
            created=EPOCH_MS,
            root=self._spec(root),
            rules={**PODLESS, **self.cluster.rules},
        )

    def _spec(self, queue: TraceQueue) -> TreeNodeSpec:
        return TreeNodeSpec(
            name=queue.name,
            min=texts(queue.min),
            max=texts(queue.max),
            namespaces=() if queue.children else (self.namespaces[queue.path],),
            attributes={} if queue.preempts is None else {PREEMPTS: str(queue.preempts).lower()},
            children=tuple(self._spec(child) for child in queue.children),
        )

    def node(self, name: str, *, ready: bool = True) -> NodeObserved:
        ref = Ref("Node", "", name, f"node-{name}")
        ample = AMPLE if self.cluster.placement == "off" else AMPLE | PODS
        allocatable = dict(sorted({**ample, **self.nodes[name].capacity}.items()))
        return NodeObserved(node=NodeState(ref=ref, rv=self.next_rv(), allocatable=allocatable, ready=ready))

    def node_gone(self, name: str) -> NodeGone:
        return NodeGone(ref=Ref("Node", "", name, f"node-{name}"), rv=self.next_rv())

    # --- jobs -------------------------------------------------------------------------------------------------

    def submitted(self, job: TraceJob) -> Workload:
        """A job as it is created: suspended."""
        namespace = self.namespaces[job.queue]
        need, pod_sets = {"ack": job.request, "full": job.request}, self.pods(job)
        return Workload(
            ref=Ref(KIND, namespace, job.id, job.id),
            api_version="ray.io/v1",
            rv=self.next_rv(),
            generation=1,
            created=EPOCH_MS + job.submit,
            phase="waiting",
            suspended=True,
            need=need,
            pod_sets=pod_sets,
            basis=basis_of(need, pod_sets),
            priority=job.priority or None,
            settled=True,
            labels=_labels(job),
        )

    def running_already(self, job: TraceJob) -> Workload:
        """A job that starts without an admission, and is adopted."""
        return replace(self.submitted(job), phase="starting", suspended=False, settled=False)

    def pods(self, job: TraceJob) -> tuple[PodSet, ...]:
        """The members of a gang: as many as the trace says, else as few as the largest node allows."""
        count = job.members
        gpus = job.gpus
        if count == 1 and gpus > self._pod_size > 0:
            count = gpus // self._pod_size if gpus % self._pod_size == 0 else max(1, gpus // 1000)
        exact = all(amount % count == 0 for amount in job.request.values())
        one = {name: amount // count for name, amount in job.request.items()} if exact else job.request
        return (PodSet("workers", count if exact else 1, one),)

    def starting(self, workload: Workload, intent: str, queued_at: int) -> Workload:
        """Resumed, and not running yet."""
        return replace(
            workload,
            rv=self.next_rv(),
            generation=workload.generation + 1,
            phase="starting",
            suspended=False,
            settled=False,
            annotated=True,
            intent=intent,
            queued_at=queued_at,
        )

    def running(self, workload: Workload) -> tuple[Workload, list[Event]]:
        now = replace(workload, rv=self.next_rv(), phase="running", detail="Running")
        return now, [WorkloadObserved(workload=now), WorkloadStarted(ref=now.ref, detail="Running")]

    def finished(self, workload: Workload) -> tuple[Workload, list[Event]]:
        now = replace(workload, rv=self.next_rv(), phase="finished", outcome="succeeded", detail="Complete")
        return now, [
            WorkloadObserved(workload=now),
            WorkloadFinished(ref=now.ref, outcome="succeeded", detail="Complete"),
        ]

    def suspended(self, workload: Workload, intent: str = "", queued_at: int = 0) -> Workload:
        """Stopped by an eviction: its pods are gone, and it asks to be queued again."""
        return replace(
            workload,
            rv=self.next_rv(),
            generation=workload.generation + 1,
            phase="waiting",
            suspended=True,
            settled=True,
            detail="Suspended",
            intent=intent or workload.intent,
            queued_at=queued_at or workload.queued_at,
        )

    def stopping(self, workload: Workload, intent: str, queued_at: int) -> Workload:
        """Evicted, and not stopped yet."""
        told = self.suspended(workload, intent, queued_at)
        return replace(told, phase="suspending", settled=False, detail="Suspending")

    def rests(self, workload: Workload) -> Workload:
        """It has stopped."""
        return replace(workload, rv=self.next_rv(), phase="waiting", settled=True, detail="Suspended")

    def checkpointed(self, workload: Workload, at: int) -> Workload:
        """The job notes the time of its last checkpoint."""
        return replace(workload, rv=self.next_rv(), checkpointed_at=EPOCH_MS + at)

    def lost(self, workload: Workload) -> Workload:
        """The job's nodes are gone: the controller starts the job again in free room."""
        return replace(workload, rv=self.next_rv(), phase="starting", detail="Retrying")

    def gone(self, workload: Workload) -> WorkloadGone:
        return WorkloadGone(ref=workload.ref, rv=self.next_rv())


def _labels(job: TraceJob) -> dict[str, str]:
    annotations = {} if job.preemptible else {"quota.scheduling.alibabacloud.com/preemptible": "false"}
    hours, seconds = divmod(-(-job.run_time // 1000), 3600)
    return {**annotations, RUN_TIME: f"{hours}h{seconds}s"} if job.run_time else annotations


def _namespaces(cluster: TraceCluster) -> dict[str, str]:
    """Path of a leaf -> namespace: the queue's own name if allowed."""
    labels: dict[str, str] = {}
    taken: set[str] = set()
    for index, (path, queue) in enumerate(cluster.leaves.items()):
        name = queue.name.lower()
        if not _NAMESPACE.fullmatch(name) or name in taken:
            name = f"queue-{index}"
        while name in taken:
            name += "x"
        taken.add(name)
        labels[path] = name
    return labels


def _named_nodes(cluster: TraceCluster) -> list[tuple[str, NodeGroup]]:
    groups = [group for group in cluster.groups for _ in range(group.count)]
    return [(f"node-{index:04}", group) for index, group in enumerate(groups)]
