"""The quota model of all tree dialects: nodes with a guarantee, a limit and namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct, field

from muster.model.keys import Ref
from muster.model.placing import GPU, WHOLE, GpuAmounts, Taint, Toleration, part_of
from muster.model.problem import FieldProblem
from muster.model.resources import Vector

JOBS = "kube-queue/max-jobs"
"""In a ``max``: how many admitted workloads a subtree may have at once."""
MACHINES = "muster.dev/machines"
"""In ``min`` and ``max``: machines, counting each pod of a workload as one."""
COUNTED = frozenset((JOBS, MACHINES))
"""Not requested by users: counted from the workloads themselves."""


DEFAULT_QUEUE_PRIORITY = 100


def is_device(resource: str) -> bool:
    """Whether a resource is a device of a vendor: ``nvidia.com/gpu``. Its amounts by flavor are parts of it."""
    return "/" in resource and "@" not in resource and resource not in COUNTED


class Flavor(Struct, frozen=True, gc=False, omit_defaults=True):
    """A type of nodes that a tree tells apart: a name, what its nodes look like, and the resources counted by type."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    """Of its nodes."""
    taints: tuple[Taint, ...] = ()
    """Of its nodes: pods that do not tolerate these stay away."""
    tolerations: tuple[Toleration, ...] = ()
    """What an admission adds to the pods."""
    resources: tuple[str, ...] = (GPU,)
    """Flavors with the same resources are alternatives to each other."""


Flavors = dict[str, tuple[str, ...]]
"""{pod set: its flavor of each group of resources that it asks for}"""


class FlavorNodes(Struct, frozen=True, gc=False, omit_defaults=True):
    """What an admission adds to the pods of a set, so that they run on the nodes of their flavors."""

    labels: dict[str, str] = field(default_factory=dict)
    """Of the node selector."""
    tolerations: tuple[Toleration, ...] = ()


class OnFlavors(Struct, frozen=True, gc=False, omit_defaults=True):
    """An alternative of a job: the flavors of its pod sets, and what an admission adds to the pods."""

    flavors: Flavors
    nodes: dict[str, FlavorNodes] = field(default_factory=dict)
    turn: int = 0
    """Its place among the alternatives of the job; 0: the best."""


def flavors_text(flavors: Flavors) -> str:
    """``head=a100,main=h100``: the flavors of pod sets in one text; empty for none."""
    return ",".join([f"{name}={'+'.join(flavors[name])}" for name in sorted(flavors)]) if flavors else ""


def flavor_names(flavors: Flavors) -> tuple[str, ...]:
    """The flavors of all pod sets, each once."""
    return tuple(dict.fromkeys(name for names in flavors.values() for name in names))


def of_flavor(resource: str, flavor: str) -> str:
    """The name of the amounts of a resource on nodes of a flavor: ``nvidia.com/gpu@h100``."""
    return f"{resource}@{flavor}"


def flavor_of(name: str) -> str:
    """The flavor in the name of an amount by flavor."""
    return name.rpartition("@")[2]


class QuotaNode(Struct, frozen=True, gc=False, omit_defaults=True):
    """A node of an accepted tree.

    ``guaranteed``: amounts that this subtree can always claim back; absent means zero, EVERYTHING the whole capacity.
    ``limit``: the largest amounts; absent means unlimited for the resource.
    """

    path: str
    guaranteed: Vector = field(default_factory=dict)
    limit: Vector = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    """Full paths of the children, in the order the tree lists them."""
    kept: Vector = field(default_factory=dict)
    """What of the guarantee is not lent though unused: min - lend limit, where the tree sets one."""
    weight: Vector = field(default_factory=dict)
    """Shares between siblings in a tree with runtime quota; absent means the limit."""
    preempts: bool = False
    """Whether its waiting work takes quota back from its own running work of lower priority."""
    priority: int = DEFAULT_QUEUE_PRIORITY
    """Surplus goes to siblings of higher priority first, where the tree divides by it."""
    title: str = ""
    """What it is called in sentences; empty: its name."""
    created: int = 0
    """ms since the epoch: the older of two equals comes first."""
    uid: str = ""
    """Of the object it was compiled from, where each node has its own."""
    preempt_min_run_ms: int = 0
    """How long work runs at least before work of the same queue may take its place."""
    reclaim_min_run_ms: int = 0
    """How long it runs at least before another queue may reclaim it."""
    placement: str = ""
    """How pods of its work are laid out on nodes (``model.strategies``); empty: as above it."""
    flavors: tuple[str, ...] = ()
    """The flavors that its work may use, in order, its own or those of the node above; empty: all, as in the tree."""
    lowered: Vector = field(default_factory=dict)
    """What a claimant is owed, where nodes of the cluster cannot serve and less is left than is guaranteed; empty: the
    guarantee."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def owes(self) -> Vector:
        """The guarantee of a claimant. ``guaranteed`` protects what runs, whatever the nodes of the cluster are."""
        return self.lowered or self.guaranteed

    def of_any_flavor(self, resource: str, used: Mapping[str, int], guaranteed: Vector | None = None) -> int:
        """What is left of the guarantee of a resource beside its amounts by flavor, and may be used of any flavor.

        Use within an amount by flavor leaves this part alone; negative where the use is beyond the guarantee.
        ``guaranteed``: in place of its own, of a claimant.
        """
        guaranteed = self.guaranteed if guaranteed is None else guaranteed
        left = guaranteed.get(resource, 0) - used.get(resource, 0)
        prefix = f"{resource}@"
        for name, least in guaranteed.items():
            if "@" in name and name.startswith(prefix):
                left += min(used.get(name, 0), least) - least
        return left


WIDTHS_TO_AGE = 8
"""A job, or a gang of pods, has aged once later work of so many times its own width has passed it."""
WAIT_PART = 10
"""Quota and nodes may be idle for an aged job for one part in so many of the time that the job has waited."""


class Rules(Struct, frozen=True, gc=False, omit_defaults=True):
    """How a tree is applied: annotations ``muster.dev/...`` on the tree. Times in ms."""

    reclaim: Literal["", "enabled", "disabled"] = ""
    """Unset: enabled, unless jobs without an admission were running when the cluster was first seen."""
    paused: tuple[str, ...] = ()
    """What rests on all of the tree: ``admissions``, ``evictions``."""
    paused_by: str = ""
    paused_reason: str = ""
    min_run_ms: int = 0
    """How long a workload runs at least before it may be evicted."""
    reclaim_grace_ms: int = 0
    """How long a job that is owed quota waits before others are evicted for it; a job may ask for longer."""
    protect_ms: int = 0
    """How long one that has been evicted runs at least before the next time; twice as long after each further time,
    up to PROTECTED_TIMES as long."""
    ages: bool = True
    """Whether what is freed is held for a job that much later work has passed."""
    claim_ms: int = 600_000
    """How long what is freed is held for a claimant."""
    running_timeout_ms: int = 0
    """How long an admitted workload may take to run before it is suspended again; 0 for ever."""
    start_timeout_ms: int = 300_000
    """How long an admitted workload keeps quota without a pod; 0 for ever."""
    overuse_ms: int = 0
    """How long what was not admitted may run on while its quota is above its max; 0 for ever."""
    backoff_ms: int = 60_000
    """How long it then stays out of its queue."""
    runtime: Literal["", "weight"] = ""
    """``weight``: what a queue may use follows what all ask for, by weight; unset: up to its limit."""
    order: Literal["share", "time", "learned"] = "learned"
    """Which queue is served first beyond the guarantees: the one that uses least of its min, the one whose job waits
    longest, or that too with expected GPU time as a handicap."""
    least_attained_ms: tuple[int, ...] = ()
    """GPU time at which a job that keeps checkpoints reaches the next level, rising; empty: no levels."""
    unbound_queue: str = ""
    """Full path of the leaf that takes workloads no quota claims."""
    charge_pods: Literal["", "none", "all"] = ""
    """Which pods of no job are charged to the quota of their namespace while they run: those that name us, or all."""
    usage_window_ms: int = 0
    """How far back what a queue used makes its part of the surplus smaller; 0: nothing but the present counts."""
    usage_half_life_ms: int = 0
    """After how long what was used counts half; 0: all of the window counts alike."""
    usage_weight: int = 1000
    """How much that weighs against the weights of the queues, in thousandths."""
    capacity: Literal["", "nodes"] = ""
    """``nodes``: the min and max of the root are the sum of the nodes that exist; unset: as written."""
    preempt_lower_priority: bool = False
    """Whether queues preempt their own work of lower priority, where no node of the tree says otherwise."""

    def least_run_ms(self, evictions: int) -> int:
        """The least run time of a workload with so many evictions, before the next eviction."""
        if not evictions or not self.protect_ms:
            return self.min_run_ms
        return max(self.min_run_ms, self.protect_ms * min(1 << min(evictions - 1, 10), PROTECTED_TIMES))


PROTECTED_TIMES = 10
DEFAULT_RULES = Rules()


ROOT = "root"
"""Path of the node above all queues of an ElasticQuotaTree."""
KAI_ROOT = "kai"
"""Path of the node above all KAI queues: the cluster. An ElasticQuotaTree's is called otherwise."""
RuleProfile = Literal["elastic-quota", "kai"]


class Gpus(Struct, frozen=True, gc=False, omit_defaults=True):
    """The memory of the GPUs on the nodes, MiB."""

    largest: int = 0
    """0: unknown."""
    products: dict[str, int] = field(default_factory=dict)
    """{label nvidia.com/gpu.product: its largest}, where the GPUs differ"""

    def within(self, products: Iterable[str]) -> int:
        """The largest GPU of these products; of all where none of them is known."""
        return max((self.products.get(name, 0) for name in products), default=0) or self.largest

    def in_parts(self, request: Vector, amounts: GpuAmounts) -> Vector:
        """A request that counts these amounts of GPU memory as whole devices, in parts of the largest within reach."""
        less = self.less(amounts) if self.largest and GPU in request else 0
        return {**request, GPU: request[GPU] - less} if less else request

    def less(self, amounts: GpuAmounts) -> int:
        """How much these amounts are less than whole devices, thousandths."""
        less = 0
        for key, devices in amounts.items():
            mebibytes, _, products = key.partition(" ")
            less += (WHOLE - part_of(int(mebibytes), self.within(products.split(",")))) * devices
        return less


NO_GPUS = Gpus()


class QuotaTree(Struct, frozen=True, omit_defaults=True, dict=True):
    """A validated tree: every node once, parents before children, in the order of the object."""

    ref: Ref
    nodes: tuple[QuotaNode, ...]
    profile: str = "ack"
    """Which need of a workload is charged: ``ack`` (head + replicas x worker) or ``full`` (every container)."""
    rules: Rules = DEFAULT_RULES
    rule_profile: RuleProfile = "elastic-quota"
    """By which rules it is applied: of ElasticQuotaTrees (guarantees) or of KAI queues (quotas and fair shares)."""
    disabled: dict[str, FieldProblem] = field(default_factory=dict)
    """name of a queue that is not in force -> why; in a tree compiled from many objects"""
    shared: Vector | None = None
    """The part of the root's limit that nodes give now, where some of the nodes cannot serve: fair shares divide it,
    and claimants are owed no more; None: all of it."""
    gpu_memory: int = 0
    """MiB of the largest GPU on the nodes: an amount of memory without a device counts as its part; 0: as a device."""
    gpu_products: dict[str, int] = field(default_factory=dict)
    """{label nvidia.com/gpu.product: MiB of its largest GPU}, where the GPUs of the nodes differ."""
    flavors: tuple[Flavor, ...] = ()
    """The types of nodes that the tree tells apart, in order: amounts of ``resource@flavor`` beside the total."""

    @cached_property
    def flavored(self) -> dict[str, str]:
        """{resource by flavor: its total}"""
        return {of_flavor(name, flavor.name): name for flavor in self.flavors for name in flavor.resources}

    @cached_property
    def demands(self) -> dict[tuple[object, ...], Any]:
        """What readers have worked out from this tree, kept with it: no part of its value, and never stored."""
        return {}

    @cached_property
    def flavor_groups(self) -> dict[tuple[str, ...], dict[str, Flavor]]:
        """{resources: {name: flavor}} of the flavors that are alternatives to each other, in order."""
        groups: dict[tuple[str, ...], dict[str, Flavor]] = {}
        for flavor in self.flavors:
            groups.setdefault(flavor.resources, {})[flavor.name] = flavor
        return groups

    @property
    def gpus(self) -> Gpus:
        """The GPUs by which amounts of memory are counted."""
        return Gpus(self.gpu_memory, self.gpu_products)

    @property
    def by_shares(self) -> bool:
        """Whether fair shares order queues and choose victims of reclaim, and priorities those of preemption."""
        return self.rule_profile == "kai"

    def divides(self, name: str) -> int:
        """The amount of a limited resource that fair shares divide."""
        return self.nodes[0].limit[name] if self.shared is None else self.shared.get(name, 0)

    @property
    def root(self) -> str:
        """Path of the root: no two trees in force have the same."""
        return self.nodes[0].path
