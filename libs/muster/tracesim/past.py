"""A trace made of a recorded log: the arriving jobs, their run times, and their quota."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from muster.core.objects.meta import is_preemptible
from muster.core.quota.demand import run_time_ms
from muster.core.stage import OLDEST
from muster.events.base import Event
from muster.events.decisions import QuotaTreeAccepted
from muster.events.envelope import Stored
from muster.events.facts import NodeGone, NodeObserved, QueueObserved, QuotaTreeObserved, WorkloadGone, WorkloadObserved
from muster.events.system import PlacementChosen, PlacementMode, RulesetActivated
from muster.model.language import say
from muster.model.quota import QuotaNode, QuotaTree
from muster.model.resources import Vector, add_into
from muster.tracesim.history import History, JobHistory, JobRun
from muster.tracesim.model import NodeGroup, Trace, TraceCluster, TraceError, TraceJob, TraceQueue


class Past(Struct):
    """The content of a log: trace, names of its jobs, and the number of jobs left out because no queue took them."""

    trace: Trace
    keys: dict[str, str]
    """job id -> ``namespace/name``"""
    left_out: int
    nodes: dict[str, Vector] = field(default_factory=dict)
    """Name of a node -> its amounts of the requested resources; none where no node was ever seen."""
    running: int = 0
    """How many of the jobs ran already when the window begins: they come first."""
    waiting: int = 0
    """How many waited already: they come next, in their order."""


Moment = Callable[[int, int], bool]
"""Whether a commit with this sequence and log time (ms since the epoch) lies at a moment, or after it."""


class PastReader:
    """Reads the jobs of a log, from its beginning, that can be run again.

    With ``begin`` the trace begins there: jobs running then run on, waiting jobs wait in their order, and later jobs
    come at their recorded times. With ``end`` no job comes later; run times are known from the rest of the log.
    """

    def __init__(self, begin: Moment | None = None, end: Moment | None = None) -> None:
        self._history = History()
        self._begin, self._end = begin, end
        self._from = 0 if begin is None else -1
        self._until = -1
        self._now = 0
        self._tree: QuotaTree | None = None
        self._rules: dict[str, dict[str, str]] = {}
        self._nodes: dict[str, tuple[str, Vector]] = {}
        self._members: dict[str, tuple[int, bool, int]] = {}
        self._placement: PlacementMode = "off"
        self._ruleset = OLDEST
        self._deleted: set[str] = set()
        self._stood: dict[str, tuple[str, int]] = {}
        """job id -> what it does as the window begins, and which of its runs that is"""
        self._queues: dict[str, QueueObserved] = {}
        self._cut: tuple[QuotaTree | None, dict[str, tuple[str, Vector]], dict[str, QueueObserved]] | None = None
        """Tree, nodes and queues as the window begins."""

    def feed(self, stored: Stored) -> None:
        """Take the next commit."""
        self._now = max(self._now, stored.commit.at)
        history = self._history
        before = history.end
        history.fold(stored)
        if self._from < 0 and self._begin is not None and self._begin(stored.seq, self._now):
            self._from = history.end
            self._stood = {job.id: _standing(job) for job in history.jobs.values()}
        if self._until < 0 and self._end is not None and self._end(stored.seq, self._now):
            self._until = before
        for event in stored.commit.events:
            self._note(event)
        if self._begin is not None and self._from >= 0 and self._cut is None and self._tree is not None:
            self._cut = (self._tree, dict(self._nodes), dict(self._queues))

    def _note(self, event: Event) -> None:
        match event:
            case QuotaTreeAccepted():
                self._tree = event.tree
            case QuotaTreeObserved():
                self._rules[event.ref.uid] = event.rules
            case QueueObserved():
                self._queues[event.path] = event
            case NodeObserved():
                usable = event.node.ready and event.node.schedulable
                name = event.node.ref.name
                self._nodes[event.node.ref.uid] = (name, event.node.allocatable if usable else {})
            case NodeGone():
                self._nodes.pop(event.ref.uid, None)
            case WorkloadObserved():
                workload = event.workload
                count = sum(pods.count for pods in workload.pod_sets) or 1
                self._members[workload.ref.uid] = (count, is_preemptible(workload.labels), run_time_ms(workload.labels))
            case RulesetActivated():
                self._ruleset = max(self._ruleset, event.number)
            case PlacementChosen():
                self._placement = "pack" if event.mode == "native" else event.mode
            case WorkloadGone():
                self._deleted.add(event.ref.uid)
            case _:
                pass

    def past(self) -> Past:
        """What was read. Raises TraceError when nothing of it can be run again."""
        history = self._history
        tree, seen, queues = self._cut or (self._tree, self._nodes, self._queues)
        if tree is None:
            raise TraceError(say("no quota tree was ever in force in this log, so there is nothing to run again"))
        if self._from < 0:
            raise TraceError(say("the log ends before the window begins"))
        taken = [job for job in history.jobs.values() if job.queue]
        asked = {name for job in taken for name in job.request}
        nodes = {name: {r: has.get(r, 0) for r in sorted(asked)} for name, has in seen.values()}
        policies = {path: queue.policy for path, queue in queues.items() if queue.policy}
        priorities = {path: queue.priority for path, queue in queues.items() if queue.priority}
        mode = self._placement if nodes else "off"
        groups = pooled(nodes) if mode == "off" else single(nodes)
        rules = self._rules.get(tree.ref.uid, {})
        root = queues_of(tree, priorities)
        cluster = TraceCluster(groups, root, rules, placement=mode, ruleset=self._ruleset, policies=policies)
        jobs: list[TraceJob] = []
        counts = {"runs": 0, "waits": 0, "comes": 0}
        came = sorted(taken, key=lambda job: job.submit)
        for order in ("runs", "waits", "comes"):
            for job in came:
                if job.queue in cluster.leaves and self._how(job) == order:
                    counts[order] += 1
                    jobs.append(self._job(job, order, len(jobs)))
        if not jobs:
            raise TraceError(
                say("no job was in a queue in this log, or in this window of it: there is nothing to run again")
            )
        left_out = sum(job.queue not in cluster.leaves or self._never_ran(job) for job in history.jobs.values())
        return Past(
            Trace(cluster, tuple(sorted(jobs, key=lambda job: job.submit))),
            {job.id: job.key for job in taken},
            left_out,
            nodes,
            counts["runs"],
            counts["waits"],
        )

    def _how(self, job: JobHistory) -> str:
        """The part of a job when the window begins: ``runs``, ``waits``, ``comes`` later; empty: outside of the
        window.
        """
        if self._never_ran(job):
            return ""
        if job.id in self._stood:
            return self._stood[job.id][0]
        return "comes" if self._until < 0 or job.submit <= self._until else ""

    def _never_ran(self, job: JobHistory) -> bool:
        """The job was deleted before it ran: its run time is not known, and the job must not run for ever."""
        return job.id in self._deleted and all(_began(run) < 0 for run in job.runs)

    def _job(self, past: JobHistory, how: str, number: int) -> TraceJob:
        """``number``: how many come before it."""
        run = past.runs[self._stood[past.id][1]] if how == "runs" else None
        ended = [run for run in past.runs if _began(run) >= 0 and run.outcome in ("finished", "gone")]
        duration = ended[-1].end - _began(ended[-1]) if ended else None
        if run is not None and run.outcome in ("finished", "gone") and _began(run) >= 0:
            duration = run.end - max(_began(run), self._from)
        members, preemptible, run_time = self._members[past.id]
        return TraceJob(
            id=past.id,
            queue=past.queue,
            request=past.request,
            # All that ran come at once, and those that waited after them, one by one, so that the order stays.
            submit={"runs": 0, "waits": 1 + number}.get(how, past.submit - self._from),
            duration=duration,
            priority=past.priority,
            members=members,
            preemptible=preemptible,
            run_time=run_time,
            adopted=past.adopted and how != "waits",
        )


def _began(run: JobRun) -> int:
    """The start of a run, -1 for never; the admission, if the job finished before it was seen running."""
    return run.admitted if run.start < 0 and run.outcome == "finished" else run.start


def _standing(job: JobHistory) -> tuple[str, int]:
    """What a job does now, and in which run."""
    run = job.open_run()
    if run is not None and run.admitted >= 0:
        return "runs", len(job.runs) - 1
    over = job.end >= 0 or any(run.outcome == "gone" and run.start >= 0 for run in job.runs)
    return ("" if over else "waits"), -1


def past_of(commits: Iterable[Stored]) -> Past:
    """The past a log tells. Raises TraceError when nothing in it can be run again."""
    reader = PastReader()
    for stored in commits:
        reader.feed(stored)
    return reader.past()


def pooled(nodes: Mapping[str, Vector]) -> tuple[NodeGroup, ...]:
    """What all nodes have together; empty, which is plenty, where no node was ever seen."""
    total: Vector = {}
    for node in nodes.values():
        add_into(total, node)
    return (NodeGroup(1, total),)


def single(nodes: Mapping[str, Vector]) -> tuple[NodeGroup, ...]:
    """Every node by itself."""
    return tuple(NodeGroup(1, node) for node in nodes.values())


def queues_of(tree: QuotaTree, priorities: Mapping[str, int]) -> TraceQueue:
    """A quota tree as queues of a simulation; ``priorities`` of Queue objects by path."""
    nodes = {node.path: node for node in tree.nodes}
    return _queue(tree.nodes[0], nodes, priorities, preempts=tree.rules.preempt_lower_priority)


def _queue(
    node: QuotaNode, nodes: Mapping[str, QuotaNode], priorities: Mapping[str, int], *, preempts: bool
) -> TraceQueue:
    """``preempts``: the value of the nodes above; the node has its own value only if the value differs."""
    return TraceQueue(
        name=node.name,
        path=node.path,
        min=node.guaranteed,
        max=node.limit,
        priority=priorities.get(node.path, 0),
        preempts=node.preempts if node.preempts != preempts else None,
        children=tuple(_queue(nodes[path], nodes, priorities, preempts=node.preempts) for path in node.children),
    )
