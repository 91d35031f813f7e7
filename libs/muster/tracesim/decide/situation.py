"""What a state file means: nodes, quota and jobs in the terms of the stages. Amounts are base units, times ms."""

from __future__ import annotations

from msgspec import Struct, field

from muster.events.facts import KaiQueueObserved, QuotaTreeObserved
from muster.model.placing import ANYWHERE, PodRules, Topology
from muster.model.resources import Vector
from muster.model.workload import NodeState


class StateFileError(Exception):
    """A state file cannot be asked about; the message names the object, the value and the way out."""


class SituationPod(Struct, frozen=True):
    """One pod of a job."""

    name: str
    request: Vector
    """What it takes of a node; shares of devices are in ``rules``."""
    need: Vector
    """What its queue is charged with: shares of devices count as parts of a GPU."""
    rules: PodRules = ANYWHERE
    subgroup: str = ""
    node: str = ""
    """Where it runs; empty while it is pending."""
    devices: tuple[int, ...] = ()
    """The shared devices it has there."""
    started: int = 0


class SituationUnit(Struct, frozen=True):
    """Pods that start together, and are evicted together: the minimum of a job, or one pod beyond the minimum."""

    uid: str
    job: str
    pods: tuple[SituationPod, ...]
    core: bool
    """Without it no other unit of the job runs."""
    created: int

    @property
    def running(self) -> bool:
        return bool(self.pods[0].node)

    @property
    def started(self) -> int:
        return max(pod.started for pod in self.pods)


class SituationJob(Struct, frozen=True):
    """One job and its units, the core first."""

    name: str
    queue: str
    namespace: str
    labels: dict[str, str]
    """What leads it to its queue where its namespace does not, and whether it may be preempted."""
    priority: int
    units: tuple[SituationUnit, ...]
    topology: Topology = Topology()


class Situation(Struct, frozen=True):
    """Everything that is there."""

    now: int
    placement: str
    nodes: tuple[NodeState, ...]
    queues: tuple[QuotaTreeObserved | KaiQueueObserved, ...]
    """KAI queues, or one ElasticQuotaTree."""
    jobs: tuple[SituationJob, ...] = field(default_factory=tuple)
    gpus: dict[str, int] = field(default_factory=dict)
    """Node -> how many devices it has."""
