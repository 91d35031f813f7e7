"""The deciders' knowledge of a workload: identity, need, and phase."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, Struct, UnsetType, defstruct, field
from msgspec.structs import fields

from muster.model.elastic import RAY_KINDS, Counts, Elastic
from muster.model.keys import Ref
from muster.model.placing import ANYWHERE, GpuAmounts, PodRules, Taint, Topology, amount_of
from muster.model.podtrouble import PodTrouble
from muster.model.problem import FieldProblem
from muster.model.resources import Vector

Phase = Literal["waiting", "suspending", "starting", "running", "finished"]
"""The phase of a workload, in words every kind shares:

waiting     suspended and at rest: nothing of it runs
suspending  asked to stop; its pods may still run
starting    asked to run (or to retry); its pods may run
running     running
finished    over for good, succeeded, failed or invalid; what it left may still hold pods
"""

Outcome = Literal["", "succeeded", "failed", "invalid"]


class PodSet(Struct, frozen=True, gc=False, omit_defaults=True):
    """Pods of one shape: ``count`` pods, each asking for ``request`` (base units)."""

    name: str
    count: int
    request: Vector = field(default_factory=dict)
    rules: PodRules = ANYWHERE
    """Where its pods may run."""
    minimum: int | None = None
    """How many of them the gang needs to start; None: all."""
    takes: Vector | None = None
    """What one pod takes of a node where its controller adds to the request; None: the request."""
    later: bool = False
    """They are made once other pods of the workload run."""


def least(pod_sets: Iterable[PodSet]) -> int:
    """The number of pods needed for the start of a gang of these sets."""
    return sum(
        pod_set.count if pod_set.minimum is None else min(pod_set.minimum, pod_set.count) for pod_set in pod_sets
    )


def together(pod_sets: Iterable[PodSet]) -> int:
    """How many pods of a gang of these sets are there at once, and can start together."""
    return least(pod_set for pod_set in pod_sets if not pod_set.later)


def at_once(pod_sets: Iterable[PodSet]) -> int:
    """How many pods of these sets the controller is to make without waiting for others."""
    return sum(pod_set.count for pod_set in pod_sets if not pod_set.later)


def gpu_amounts(pod_sets: Iterable[PodSet]) -> GpuAmounts:
    """The amounts of GPU memory that the requests of these sets count as whole devices."""
    amounts: GpuAmounts = {}
    for pods in pod_sets:
        if pods.rules.gpu_memory and pods.count:
            key = amount_of(pods.rules)
            amounts[key] = amounts.get(key, 0) + pods.count * pods.rules.devices
    return amounts


class Wishes(Struct, frozen=True, gc=False, omit_defaults=True):
    """The wishes of people for a workload, by annotations on the object, with author and reason."""

    priority: int | None = None
    """Beats the priority of the pod template."""
    hold: bool = False
    """Keep it out of its queue until it is released."""
    by: str = ""
    reason: str = ""


NO_WISHES = Wishes()


class Template(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where the pods of a workload are described, as far as a patch can steer them to us."""

    at: str
    """JSON pointer of the description: that of a pod, or a kind's own words for one."""
    flat: bool = False
    """It is in a kind's own words: schedulerName and annotations are in it, not in its spec and its metadata."""
    named: bool = False
    """It names one of our schedulers already."""
    fixed: bool = False
    """Its spec cannot be changed, only its annotations."""
    sealed: bool = False
    """Nothing of it can be changed any more."""
    elsewhere: bool = False
    """Another scheduler places the pods: only the nodes of their flavors are written."""
    group: str = ""
    """The PodGroup of Kubernetes itself that it names."""
    noted: bool = False
    """It carries the annotation that names one."""
    marked: bool = False
    """It carries the mark of the gang already."""
    metadata: bool = False
    annotations: bool = False
    """Whether it has these: what is not there is added as a whole."""
    pods: str = ""
    """The pod set that it describes."""
    selects: tuple[str, ...] = ()
    """Labels in the author's node selector."""
    written: dict[str, str] = field(default_factory=dict)
    """Labels of a flavor that Muster wrote into the node selector."""
    tolerates: int = 0
    """The number of its tolerations."""
    given: tuple[int, ...] = ()
    """Those of them that Muster wrote, by their index."""


class SwitchField(Struct, frozen=True, gc=False, omit_defaults=True):
    """The field that suspends objects of a kind that a ConfigMap defines: no reader of the log needs the definition."""

    group: str
    version: str
    plural: str
    at: str
    """JSON pointer."""
    value: bool | str = True
    resumed: bool | str = False


class Switch(Struct, frozen=True, gc=False, omit_defaults=True):
    """The facts about an object that a patch needs to suspend or resume the object."""

    suspend_parent_missing: bool = False
    """The object that the field belongs to is not there: it can only be set together with it."""
    annotation: bool = False
    """The annotation of older operators is there (scheduling.x-k8s.io/suspend): it is set along with the field."""
    templates: tuple[Template, ...] = ()
    """Descriptions of its pods; none where Muster does not choose the scheduler."""
    field: SwitchField | None = None
    """None: the field of a kind that Muster knows by itself."""


DIRECT = Switch()


class Origin(Struct, frozen=True, gc=False, omit_defaults=True):
    """The owner of a job, its image and its command, for readers: no decision depends on these."""

    owner: str = ""
    """A user or a team, as label or annotation muster.dev/owner says."""
    image: str = ""
    """Of the first container of its first pod set."""
    entrypoint: str = ""
    """Digest of the command that it runs: jobs with the same one run the same program with the same arguments."""


UNKNOWN_ORIGIN = Origin()


class Workload(Struct, frozen=True, gc=False, omit_defaults=True):
    """The observed state of a workload object: only the parts needed for a decision or a display.

    ``need`` maps a profile (``ack``, ``full``) to the whole request in base units. ``refusal``: the reason why this
    object cannot be queued; None when the object can be queued.
    """

    ref: Ref
    api_version: str
    rv: int
    """resourceVersion as an integer; a lower one is older."""
    generation: int
    created: int
    """creationTimestamp, ms since the epoch (the API server keeps whole seconds)."""
    phase: Phase
    suspended: bool
    """What the object asks for (``spec.suspend``), not what has happened yet."""
    need: dict[str, Vector]
    topology: Topology = Topology()
    """Within which domain all of its pods are to be."""
    runs: Vector | None = None
    """What its pods ask for once its controller has made all that the spec wants; None: what ``need`` says in full."""
    pod_sets: tuple[PodSet, ...] = ()
    auxiliary: tuple[PodSet, ...] = ()
    """Pods outside the gang that its controller makes and that need a place as well (a submitter)."""
    priority_class: str = ""
    priority: int | None = None
    """A priority given as a number in the pod template; beats the class."""
    outcome: Outcome = ""
    detail: str = ""
    """The kind's own word for its phase, e.g. ``Initializing``."""
    settled: bool = False
    """The status that its controller wrote last says that nothing of it runs, whatever the spec asks for.

    One that was resumed is settled until its controller has acted on that; suspended again before, it may get no
    status at all. So this proves an end only where it was not so at some time since the resume.
    """
    child: str = ""
    """Name of the object this one runs through (the RayCluster of a RayJob), once its controller names it."""
    outgoing: str = ""
    """Name of another one beside it that ends once ``child`` serves (of a RayService that is upgraded)."""
    deleting: bool = False
    guarded: bool = False
    """It has the finalizer of its controller: once deleted, it goes when its controller has seen that."""
    busy: bool = False
    """Its controller cannot suspend it in the state it is in (a RayJob that waits or retries)."""
    wishes: Wishes = NO_WISHES
    switch: Switch = DIRECT
    refusal: FieldProblem | None = None
    labels: dict[str, str] = field(default_factory=dict)
    """Only the labels that queueing knows."""
    annotated: bool = False
    """Whether the object has any annotations (a JSON patch must know)."""
    basis: str = ""
    """Digest of the input of decisions about it: its need, its pod sets, whether it can be suspended.

    An edit that leaves it as it is (a controller writes a default) changes nothing for a stage that has decided.
    """
    intent: str = ""
    """Value of the annotation muster.dev/intent."""
    queued_at: int = 0
    """When it was queued as stored on the object, ms since the epoch; 0 when not stored."""
    dequeued_at: int = 0
    checkpointed_at: int = 0
    """When it saved its work last, as it says itself, ms since the epoch; 0 where it does not."""
    elastic: Elastic | None = None
    """The worker groups of a Ray cluster that scales itself; None for everything else."""
    origin: Origin = UNKNOWN_ORIGIN
    suspended_by: str = ""
    """The field manager that suspended it, where it was admitted before."""

    @property
    def ends(self) -> bool:
        """Whether its controller makes no more pods for it: it has ended, or the object is deleted, whatever its
        finalizers.
        """
        return self.phase == "finished" or self.deleting

    @property
    def waits(self) -> bool:
        """Whether the workload is suspended, asks to run, and is not on hold."""
        held = self.refusal is not None or self.wishes.hold or self.deleting
        return self.suspended and self.phase in ("waiting", "suspending") and not held

    @property
    def fixed_pods(self) -> Counts:
        """{worker group: pods} of a Ray cluster with a fixed size; empty for everything else."""
        fixed = self.elastic is None and self.ref.kind in RAY_KINDS
        return {pod_set.name: pod_set.count for pod_set in self.pod_sets} if fixed else {}

    @property
    def gpu_memory(self) -> GpuAmounts:
        """The amounts of GPU memory that the needs count as whole devices."""
        return gpu_amounts(self.pod_sets)

    @property
    def asks(self) -> Vector:
        """The request of all pods of the spec, whatever the profile of a tree counts."""
        return self.need.get("full", {}) if self.runs is None else self.runs


if TYPE_CHECKING:

    class WorkloadPart(Workload, frozen=True):
        """Some fields of a workload."""

else:
    WorkloadPart = defstruct(
        "WorkloadPart",
        [(field.name, field.type | UnsetType, UNSET) for field in fields(Workload)],
        module=__name__,
        namespace={"__doc__": "Some fields of a workload; the others are unset."},
        frozen=True,
        gc=False,
        omit_defaults=True,
    )


SCHEDULERS = ("muster", "kai-scheduler")
"""Values of spec.schedulerName that are ours; the second one so that KubeRay's integration works unchanged."""

DEFAULT_SCHEDULER = "default-scheduler"

SPARK_ROLE = "spark-role"
"""The label that tells a Spark driver, which owns the pods of its executors."""


class PodState(Struct, frozen=True, gc=False, omit_defaults=True):
    """A pod as far as quota, places and readers care."""

    ref: Ref
    rv: int
    owner_uid: str = ""
    node: str = ""
    over: bool = False
    """Succeeded or Failed: holds nothing any more."""
    running: bool = False
    request: Vector = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    rules: PodRules = ANYWHERE
    """Where it may run, and what it keeps others from."""
    scheduler: str = ""
    """spec.schedulerName, where it is one of ours or the pod means a gang; what follows is about those; of workers of
    Ray clusters ``created`` and ``deleting`` are known, too."""
    priority: int | None = None
    created: int = 0
    succeeded: bool = False
    deleting: bool = False
    gated: bool = False
    """A scheduling gate keeps it from being bound."""
    marks: dict[str, str] = field(default_factory=dict)
    """Annotations that say something about its gang."""
    group: str = ""
    """spec.schedulingGroup: name of the PodGroup of Kubernetes itself that it belongs to."""
    devices: tuple[int, ...] = ()
    """The shared GPU devices that it was given, as its annotation says."""
    groups: tuple[str, ...] = ()
    """The group that shares each of these devices, in the same order."""
    trouble: PodTrouble | None = None
    """Why it does not run, or failed, where it says so."""
    keeps: str = ""
    """It does nothing but keep a GPU from the device plugin, for this group."""

    @property
    def ours(self) -> bool:
        """Whether Muster binds the pod."""
        return self.scheduler in SCHEDULERS


class ChildState(Struct, frozen=True, gc=False, omit_defaults=True):
    """An object a workload runs through: the RayCluster of a RayJob, the launcher Job of an MPIJob."""

    ref: Ref
    rv: int
    owner_uid: str = ""
    owner_kind: str = ""
    asks: Vector = field(default_factory=dict)
    """What its pods ask for once its controller has made all that its spec wants (a RayCluster's, as scaled now)."""
    gpu_memory: GpuAmounts = field(default_factory=dict)
    """The amounts of GPU memory that ``asks`` counts as whole devices."""
    over: bool = False
    """It has ended or is suspended: it may stay for long and holds nothing but the pods that are left of it."""
    elastic: Elastic | None = None
    """The worker groups of a Ray cluster that scales itself; None for everything else."""
    fixed: dict[str, int] = field(default_factory=dict)
    """The pods by worker group of a Ray cluster with a fixed size, as scaled now; empty for everything else."""
    held: bool = False
    """Its own field suspends it: its controller makes no pods before the field is lifted."""


class NodeState(Struct, frozen=True, gc=False, omit_defaults=True):
    """A cluster node: its resources for pods, and whether the node takes pods."""

    ref: Ref
    rv: int
    allocatable: Vector = field(default_factory=dict)
    schedulable: bool = True
    ready: bool = True
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
