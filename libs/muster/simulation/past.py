"""A trace made of a recorded log: the jobs that came, how long they ran, and the quota they came under."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from muster.core.objects.labels import is_preemptible
from muster.events.decisions import QuotaTreeAccepted
from muster.events.envelope import Stored
from muster.events.facts import NodeGone, NodeObserved, QuotaTreeObserved, WorkloadObserved
from muster.model.quota import QuotaNode, QuotaTree
from muster.model.resources import Vector, add_into
from muster.simulation.history import History, JobHistory
from muster.simulation.model import Cluster, Job, NodeGroup, Queue, Trace, TraceError


class Past(Struct):
    """What a log tells: the trace, names of its jobs, and how many had to be left out because no queue took them."""

    trace: Trace
    keys: dict[str, str]
    """job id -> ``namespace/name``"""
    left_out: int


def past_of(commits: Iterable[Stored]) -> Past:
    """The past a log tells. Raises TraceError when nothing in it can be run again."""
    history = History()
    tree: QuotaTree | None = None
    rules: dict[str, dict[str, str]] = {}
    nodes: dict[str, Vector] = {}
    members: dict[str, tuple[int, bool]] = {}
    for stored in commits:
        history.fold(stored)
        for event in stored.commit.events:
            match event:
                case QuotaTreeAccepted():
                    tree = event.tree
                case QuotaTreeObserved():
                    rules[event.ref.uid] = event.rules
                case NodeObserved():
                    usable = event.node.ready and event.node.schedulable
                    nodes[event.node.ref.uid] = event.node.allocatable if usable else {}
                case NodeGone():
                    nodes.pop(event.ref.uid, None)
                case WorkloadObserved():
                    workload = event.workload
                    count = sum(pods.count for pods in workload.pod_sets) or 1
                    members[workload.ref.uid] = (count, is_preemptible(workload.labels))
                case _:
                    pass
    if tree is None:
        raise TraceError("no quota tree was ever in force in this log, so there is nothing to run again")
    taken = [job for job in history.jobs.values() if job.queue]
    asked = {name for job in taken for name in job.request}
    groups = (NodeGroup(1, _together(nodes.values(), asked)),)
    cluster = Cluster(groups, queues_of(tree), rules.get(tree.ref.uid, {}))
    jobs = [_job(job, *members[job.id]) for job in taken if job.queue in cluster.leaves]
    if not jobs:
        raise TraceError("no job ever entered a queue in this log, so there is nothing to run again")
    trace = Trace(cluster, tuple(sorted(jobs, key=lambda job: job.submit)))
    return Past(trace, {job.id: job.key for job in taken}, len(history.jobs) - len(jobs))


def _together(nodes: Iterable[Vector], asked: set[str]) -> Vector:
    """What all nodes have of what anybody asks for; empty, which is plenty, where no node was ever seen."""
    total: Vector = {}
    for node in nodes:
        add_into(total, {name: amount for name, amount in node.items() if name in asked})
    return total


def _job(past: JobHistory, members: int, preemptible: bool) -> Job:
    ended = [run for run in past.runs if run.start >= 0 and run.outcome in ("finished", "gone")]
    return Job(
        id=past.id,
        queue=past.queue,
        request=past.request,
        submit=past.submit,
        duration=ended[-1].end - ended[-1].start if ended else None,
        priority=past.priority,
        members=members,
        preemptible=preemptible,
    )


def queues_of(tree: QuotaTree) -> Queue:
    """A quota tree as queues of a simulation."""
    nodes = {node.path: node for node in tree.nodes}
    return _queue(tree.nodes[0], nodes)


def _queue(node: QuotaNode, nodes: Mapping[str, QuotaNode]) -> Queue:
    return Queue(
        name=node.name,
        path=node.path,
        min=node.guaranteed,
        max=node.limit,
        children=tuple(_queue(nodes[path], nodes) for path in node.children),
    )


def under(past: Past, tree: QuotaTree, namespaces: Mapping[str, str], rules: dict[str, str]) -> Past:
    """The same past under another tree; jobs stay in their queue, else go where ``namespaces`` sends them."""
    cluster = Cluster(past.trace.cluster.groups, queues_of(tree), rules)
    jobs = []
    for job in past.trace.jobs:
        leaf = job.queue if job.queue in cluster.leaves else namespaces.get(past.keys[job.id].partition("/")[0])
        if leaf is not None:
            jobs.append(replace(job, queue=leaf))
    return Past(Trace(cluster, tuple(jobs)), past.keys, past.left_out + len(past.trace.jobs) - len(jobs))


def prioritised(past: Past, wanted: Mapping[str, int]) -> Past:
    """The same past with other priorities: ``namespace/name`` -> priority. Raises TraceError for a job there is not."""
    known = set(past.keys.values())
    for key in wanted:
        if key not in known:
            raise TraceError(f"there is no job {key} in this log")
    jobs = tuple(replace(job, priority=wanted.get(past.keys[job.id], job.priority)) for job in past.trace.jobs)
    return Past(Trace(past.trace.cluster, jobs), past.keys, past.left_out)
