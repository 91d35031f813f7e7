"""What the read model keeps: the queues as every stage keeps them, and what every reader asks of jobs and gangs.

Plain data without a sentence in it: codes, numbers, names, and texts that others wrote.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.core.codes.happenings import Happening, Release, Taker
from muster.core.codes.values import Leaving, NodesKept, Phase, Pools
from muster.core.learned.pace import Pace
from muster.core.observed.presence import Presence
from muster.core.promising.promises import Promises
from muster.core.queueing.queues import Job, Queues
from muster.core.readmodel.gangs import GangsShown
from muster.core.readmodel.nodesshown import NodesShown
from muster.core.readmodel.podsshown import PodsShown
from muster.core.readmodel.records import Record
from muster.core.stage import StageState
from muster.core.workloads.registry import KINDS
from muster.events.raydemand import RayDemandObserved
from muster.events.refusals import Refusal, RefusalReason
from muster.model.elastic import Elastic
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.places import Shortage
from muster.model.problem import FieldProblem


class Shown(Struct, frozen=True):
    """An object we keep, as it was observed last."""

    ref: Ref
    rv: int
    shown: str
    policy: str = ""
    """Of a Queue: how it orders its jobs, as written there."""


class Scaled(Struct, frozen=True):
    """A Ray cluster that scales itself, as it was observed last, and what its head said last."""

    ref: Ref
    owner: str
    """uid of the charged object."""
    elastic: Elastic
    heard: RayDemandObserved | None = None

    @property
    def told(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What tells its autoscaler to wait: worker groups whose limit is reached, and those with our scaleGate."""
        return self.elastic.full, self.elastic.signalled


TroubleCode = Literal[RefusalReason, "tree_rejected", "pools_refused"]


class Trouble(Struct, frozen=True):
    """What is wrong with an object, and is shown on it."""

    ref: Ref
    code: TroubleCode
    found: tuple[FieldProblem, ...] = ()
    more: int = 0
    """How many findings there are beyond those."""
    refusal: Refusal | None = None
    """Instead of findings: why a workload is not in a queue."""

    @property
    def first(self) -> FieldProblem | None:
        """The only finding there is, of all but trees and node pools."""
        return self.found[0] if self.found else None


class Illegal(Struct, frozen=True):
    """A step from one phase to another that is not allowed, with the newest event: ``SEQ WHAT``."""

    seq: int
    ref: Ref
    before: Phase
    after: Phase
    story: tuple[str, ...]


class GangRecord(Struct):
    """What happened to a gang of pods, or to a pod that is in none."""

    name: str
    """namespace/name"""
    happenings: list[Happening] = field(default_factory=list)


class ReadState(StageState):
    """The queues, and what is noted of them."""

    queues: Queues = field(default_factory=Queues)
    presence: Presence = field(default_factory=Presence)
    """What is left of every workload in the cluster."""
    units: dict[str, Shown] = field(default_factory=dict)
    """workload uid -> its QueueUnit"""
    unit_owner: dict[str, str] = field(default_factory=dict)
    """QueueUnit uid -> workload uid"""
    queue_objects: dict[str, Shown] = field(default_factory=dict)
    """Queue object uid -> the object"""
    kai_queues: dict[str, KaiQueue] = field(default_factory=dict)
    """uid of a KAI queue -> as it was observed last"""
    records: dict[str, Record] = field(default_factory=dict)
    """workload uid -> what became of it"""
    gone: dict[str, None] = field(default_factory=dict)
    """uids of jobs that are gone and remembered, in the order in which they went"""
    over: dict[str, None] = field(default_factory=dict)
    """uids of jobs that are over and hold no quota, whose objects exist and whose happenings are kept, oldest first"""
    suspended_outside: dict[str, None] = field(default_factory=dict)
    write_failures: dict[str, FieldProblem | None] = field(default_factory=dict)
    """workload uid -> why the API server refused to resume it last"""
    shortages: dict[str, Shortage] = field(default_factory=dict)
    """workload uid -> why its gang has no place"""
    pools: dict[str, Pools] = field(default_factory=dict)
    """workload uid -> what node pools could give it, where any is declared"""
    tried: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time (ms) at which its gang found no place last"""
    nodes_kept: dict[str, NodesKept] = field(default_factory=dict)
    """uid of a job, or key of a gang of pods -> the nodes that it has claimed"""
    leaving: dict[str, Leaving] = field(default_factory=dict)
    """workload uid -> why it was suspended; until it is admitted again"""
    placement: str = ""
    """How the configuration wants pods laid out on nodes (``model.strategies``); empty: gangs are not placed."""
    gangs: GangsShown = field(default_factory=GangsShown)
    nodes: NodesShown = field(default_factory=NodesShown)
    pods: PodsShown = field(default_factory=PodsShown)
    """Pods that do not run, or have failed."""
    troubles: dict[str, Trouble] = field(default_factory=dict)
    """object uid -> what is to be shown on it"""
    releases: dict[str, Release] = field(default_factory=dict)
    """``SEQ-ITEM`` of the newest events that made others worth trying -> what they were"""
    gang_records: dict[str, GangRecord] = field(default_factory=dict)
    """key of a gang, or uid of a pod in none -> what happened to it; also of those that are gone, the newest"""
    gangs_gone: dict[str, int] = field(default_factory=dict)
    """key of a gang none of whose pods exists -> log time (ms) at which the last went, in that order"""
    pace: Pace = field(default_factory=Pace)
    """How fast the queues move."""
    promises: Promises = field(default_factory=Promises)
    """How long jobs run and wait, and what was promised to waiting jobs."""
    illegal: list[Illegal] = field(default_factory=list)
    """Steps of jobs that may not be: the newest."""
    parked_at: dict[str, int] = field(default_factory=dict)
    """key of a refused shape -> log time (ms) of the refusal"""
    scaled: dict[str, Scaled] = field(default_factory=dict)
    """uid of a Ray cluster that scales itself -> what is on it"""
    takers: list[Taker] = field(default_factory=list)
    """The newest reservations, oldest first."""


def record_of(state: ReadState, ref: Ref) -> Record:
    """The record of a job, made when there is none."""
    record = state.records.get(ref.uid)
    if record is None:
        record = Record(ref, since=state.now)
        if ref.kind in KINDS:  # Pods of no job are charged too, and not listed.
            state.records[ref.uid] = record
    return record


def waits_since(state: ReadState, job: Job) -> int:
    """From when on a job waits: since it was queued first, or since it released the quota of an earlier run."""
    record = state.records.get(job.ref.uid)
    return max(job.queued_at, record.released_at if record is not None else 0)
