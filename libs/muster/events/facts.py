"""Facts: observations of the watcher. Full observed state, never deltas, so a relist repairs anything.

A fact folded twice, or an older fact folded late, changes nothing: per uid the resourceVersion only grows.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.events.base import Event
from muster.model.gang import PodGroup
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.pools import NodePool
from muster.model.problem import FieldProblem
from muster.model.workload import ChildState, NodeState, Outcome, PodState, Workload, WorkloadPart


class ObjectGone(Event, frozen=True, kw_only=True):
    """The common part of the ``..._gone`` facts: an object is no longer of its kind, as a rule because the object was
    deleted.

    The object may return, under a version newer than ``rv``; 0: under none.
    """

    ref: Ref
    rv: int = 0
    unwatched: bool = False
    """The kind of the object was turned off: the object is no longer watched, and may come back unchanged."""


class SyncStarted(Event, frozen=True, kw_only=True):
    """A watch epoch opens: until every kind is synced, stages fold and release but neither admit, grant nor evict."""

    kinds: tuple[str, ...]


class Synced(Event, frozen=True, kw_only=True):
    """Every existing object of a kind has been reported; ``absent``: the cluster does not serve the kind.

    ``rv``: the resourceVersion of the list, 0 where unknown: an object from before that the list lacks is gone.
    """

    kind: str
    objects: int = 0
    absent: bool = False
    rv: int = 0


class KindsConfigured(Event, frozen=True, kw_only=True):
    """The workload kinds enabled from now on, and the kinds that must be listed before any admission."""

    kinds: tuple[str, ...]
    required: tuple[str, ...]
    definitions: dict[str, str] = field(default_factory=dict)
    """{kind: definition as JSON} of the kinds that a ConfigMap defines."""


class WorkloadObserved(Event, frozen=True, kw_only=True):
    """A workload exists and looks like this."""

    workload: Workload


class WorkloadAbridged(Event, frozen=True, kw_only=True):
    """A workload exists and equals an earlier report of this shard, but for these fields.

    The form of a :class:`WorkloadObserved` in the log; each reader restores the full event (``core.abridging``).
    """

    like: str
    """uid of the workload whose newest observation is completed by ``but``: this workload, or a similar workload."""
    but: WorkloadPart


class WorkloadStarted(Event, frozen=True, kw_only=True):
    """The status of a workload says that the workload runs now."""

    ref: Ref
    detail: str = ""
    """The state in the words of the workload's kind."""


class WorkloadFinished(Event, frozen=True, kw_only=True):
    """A workload is over for good."""

    ref: Ref
    outcome: Outcome
    detail: str = ""


class WorkloadGone(ObjectGone, frozen=True, kw_only=True):
    """A workload object no longer exists."""


class ChildObserved(Event, frozen=True, kw_only=True):
    """The child through which a workload runs exists, for example the RayCluster of a RayJob."""

    child: ChildState


class ChildGone(ObjectGone, frozen=True, kw_only=True):
    """An object a workload ran through no longer exists."""


class PodObserved(Event, frozen=True, kw_only=True):
    """A pod exists and looks like this."""

    pod: PodState


class PodGone(ObjectGone, frozen=True, kw_only=True):
    """A pod object no longer exists."""


class PodGroupObserved(Event, frozen=True, kw_only=True):
    """A PodGroup exists, of either API group, and looks like this."""

    pod_group: PodGroup


class PodGroupGone(ObjectGone, frozen=True, kw_only=True):
    """A PodGroup no longer exists."""


class NodeObserved(Event, frozen=True, kw_only=True):
    """A node exists and looks like this."""

    node: NodeState


class NodeGone(ObjectGone, frozen=True, kw_only=True):
    """A node no longer exists."""


class TreeNodeSpec(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One node of an ElasticQuotaTree as written, quantities as texts: nothing is judged here."""

    name: str
    min: dict[str, str] = field(default_factory=dict)
    max: dict[str, str] = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)
    children: tuple[TreeNodeSpec, ...] = ()


class QuotaTreeObserved(Event, frozen=True, kw_only=True):
    """An ElasticQuotaTree exists in the namespace that counts, with this content."""

    ref: Ref
    rv: int
    created: int
    root: TreeNodeSpec
    profile: str = ""
    rules: dict[str, str] = field(default_factory=dict)
    """Annotations that say how the tree is applied, without their prefix: nothing is judged here."""


class QuotaTreeGone(ObjectGone, frozen=True, kw_only=True):
    """An ElasticQuotaTree no longer exists."""


class KaiQueueObserved(Event, frozen=True, kw_only=True):
    """A queue of KAI Scheduler (scheduling.run.ai) exists and says this."""

    queue: KaiQueue


class KaiQueueGone(ObjectGone, frozen=True, kw_only=True):
    """A queue of KAI Scheduler no longer exists."""


class QueueObserved(Event, frozen=True, kw_only=True):
    """A Queue object kept by Muster exists: quota path and content."""

    ref: Ref
    rv: int
    path: str
    policy: str = ""
    priority: int = 0
    shown: str = ""
    """Digest of the status shown by the object, to tell whether the status is up to date."""
    paused: tuple[str, ...] = ()
    """The paused actions of this queue: ``admissions``, ``evictions``."""
    paused_by: str = ""
    paused_reason: str = ""
    backoff_ms: tuple[int, ...] = ()
    """The first and the longest pause between tries, in a queue with visible backoff; otherwise empty."""


class QueueGone(ObjectGone, frozen=True, kw_only=True):
    """A Queue object no longer exists."""


class QueueUnitObserved(Event, frozen=True, kw_only=True):
    """A QueueUnit exists: job and content."""

    ref: Ref
    rv: int
    owner_uid: str = ""
    priority: int | None = None
    phase: str = ""
    shown: str = ""
    """Digest of the status shown by the object."""


class QueueUnitGone(ObjectGone, frozen=True, kw_only=True):
    """A QueueUnit no longer exists."""


class PriorityClassObserved(Event, frozen=True, kw_only=True):
    """A PriorityClass exists with this value."""

    ref: Ref
    rv: int
    value: int
    is_default: bool = False


class PriorityClassGone(ObjectGone, frozen=True, kw_only=True):
    """A PriorityClass no longer exists."""


class NodePoolsObserved(Event, frozen=True, kw_only=True):
    """Node pools are declared: nodes that may be added to the existing nodes."""

    ref: Ref
    rv: int
    pools: tuple[NodePool, ...] = ()
    """By name; one that cannot be used says why."""


class NodePoolsGone(ObjectGone, frozen=True, kw_only=True):
    """No node pool is declared any more."""


class NodesRequestObserved(Event, frozen=True, kw_only=True):
    """A ProvisioningRequest made by Muster exists, with the autoscaler's progress."""

    ref: Ref
    rv: int
    phase: Literal["", "accepted", "provisioned", "failed", "lapsed"] = ""
    message: str = ""
    """The autoscaler's own."""
    templates: tuple[str, ...] = ()
    """The PodTemplates of the request."""


class NodesRequestGone(ObjectGone, frozen=True, kw_only=True):
    """A ProvisioningRequest of ours no longer exists."""


class ObjectUnreadable(Event, frozen=True, kw_only=True):
    """An object was refused as input: the report is on the object and stops nothing else.

    The last readable content is void: the object counts as gone for queueing, but its running pods stay charged until
    they are seen to be over.
    """

    ref: Ref
    rv: int
    problem: FieldProblem


Fact = (
    SyncStarted
    | Synced
    | KindsConfigured
    | WorkloadObserved
    | WorkloadAbridged
    | WorkloadStarted
    | WorkloadFinished
    | WorkloadGone
    | ChildObserved
    | ChildGone
    | PodObserved
    | PodGone
    | PodGroupObserved
    | PodGroupGone
    | NodeObserved
    | NodeGone
    | QuotaTreeObserved
    | QuotaTreeGone
    | KaiQueueObserved
    | KaiQueueGone
    | QueueObserved
    | QueueGone
    | QueueUnitObserved
    | QueueUnitGone
    | PriorityClassObserved
    | PriorityClassGone
    | NodePoolsObserved
    | NodePoolsGone
    | NodesRequestObserved
    | NodesRequestGone
    | ObjectUnreadable
)
