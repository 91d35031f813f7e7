"""Elastic workloads: a Ray cluster whose autoscaler adds and removes workers, up to its grant."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from muster.model.placing import GpuAmounts
from muster.model.quota import QuotaTree
from muster.model.resources import Vector, format_quantity

UNLIMITED = 2**31 - 1
"""What KubeRay takes for maxReplicas where nothing is said."""

SIGNAL = "muster.dev/quota"
"""Name of our entry in ``scaleStrategy.scaleGate`` of a worker group: quota refuses it more replicas."""

Counts = dict[str, int]
"""{worker group: replicas}; and {its ``grown`` name: pods of it that may be grown in place by so much}"""


class ScaledGroup(Struct, frozen=True, gc=False, omit_defaults=True):
    """A worker group of the spec. A replica is ``hosts`` pods."""

    name: str
    replicas: int = 0
    """How many its operator makes: what is asked for, between the least and the most."""
    asked: int = 0
    """``replicas`` as written, whatever the least and the most are."""
    least: int = 0
    most: int = UNLIMITED
    hosts: int = 1
    request: Vector = field(default_factory=dict)
    """What the pods of one replica ask for, as profile ``ack`` counts them."""
    takes: Vector | None = None
    """The same with the containers that the operator adds to each pod, as profile ``full`` counts; None: no more than
    the request.
    """
    gpu_memory: GpuAmounts = field(default_factory=dict)
    """The amounts of GPU memory that both count as whole devices."""
    offers: dict[str, int] = field(default_factory=dict)
    """{Ray's resource: ten-thousandths that one host offers to tasks and actors}"""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of its nodes, by which tasks and actors choose."""
    priority: int = 0
    """Which of two groups that would do as well Ray takes: the one with the higher."""
    leaving: tuple[str, ...] = ()
    """Pods it names to be deleted."""
    grows: Vector = field(default_factory=dict)
    """What one pod asks for on top once it is grown in place as far as its owner allows; empty: it is not grown."""
    grows_to: dict[str, int] = field(default_factory=dict)
    """What it offers to Ray then, as ``offers``."""
    idle_s: int = 0
    """After how many seconds without work its autoscaler removes a worker."""
    signalled: bool = False
    """Its scaleStrategy.scaleGate has our entry, ``SIGNAL``."""

    @property
    def cost(self) -> ReplicaCost:
        """The charge of a replica."""
        return ReplicaCost(self.request, self.takes, self.hosts, self.gpu_memory)


class ReplicaCost(Struct, frozen=True, gc=False, omit_defaults=True):
    """The charge of a replica of a worker group."""

    request: Vector
    """As profile ``ack`` counts."""
    takes: Vector | None = None
    """As ``full`` counts; None: the same."""
    hosts: int = 1
    gpu_memory: GpuAmounts = field(default_factory=dict)
    """The amounts of GPU memory that both count as whole devices."""

    def counted(self, tree: QuotaTree | None) -> Vector:
        """The charge in a tree; None: by profile ``ack``."""
        if tree is None:
            return self.request
        return tree.gpus.in_parts(self.request, self.gpu_memory) if tree.profile == "ack" else self.runs(tree)

    def runs(self, tree: QuotaTree | None) -> Vector:
        """What runs, whatever the profile of the tree leaves out."""
        whole = self.takes or self.request
        return whole if tree is None else tree.gpus.in_parts(whole, self.gpu_memory)


def grown(group: ScaledGroup) -> str:
    """The name that counts the pods of a group that may be grown in place: ``small/cpu+3/memory+3Gi``."""
    return f"{group.name}/" + "/".join(f"{name}+{format_quantity(more, name)}" for name, more in group.grows.items())


class HeadService(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where the head of a RayCluster is served, where that is not ``CLUSTER-head-svc`` with Ray's own ports."""

    name: str = ""
    """Of the service; empty: ``CLUSTER-head-svc``."""
    gcs: int = 6379
    dashboard: int = 8265
    """0: it serves none."""
    tls: bool = False
    """Its gRPC wants a certificate."""


class Elastic(Struct, frozen=True, gc=False, omit_defaults=True):
    """A Ray cluster that scales itself: the worker groups in the order of the spec, and Muster's own writes."""

    groups: tuple[ScaledGroup, ...] = ()
    granted: Counts = field(default_factory=dict)
    """Annotation muster.dev/granted: what our last write made ``maxReplicas``."""
    ceilings: Counts = field(default_factory=dict)
    """Annotation muster.dev/max-replicas: the most that its owner wants."""
    mark: str = ""
    """Annotation muster.dev/gate: the intent of our last write."""
    head: dict[str, int] = field(default_factory=dict)
    """{Ray's resource: ten-thousandths that the head offers}"""
    slow: bool = False
    """upscalingMode is Conservative: at a time it grows by no more than its present size."""
    annotated: bool = False
    """Whether the object has any annotations (a JSON patch must know)."""
    driven: bool = False
    """It has no autoscaler, and its owner wants us to write ``replicas``."""
    raised: bool = False
    """Its owner wants us to raise ``replicas`` with each grant, beside an autoscaler that would at its next tick."""
    growing: tuple[str, ...] = ()
    """Annotation muster.dev/resize: worker groups whose pods may be grown in place now."""
    beside: Vector = field(default_factory=dict)
    """What its autoscaler asks for beside the head."""
    ungated: bool = False
    """Annotation ray.io/ippr is as its owner wrote it: its autoscaler tries sizes that were not granted."""
    drain: str = ""
    """Annotation muster.dev/drain: how long workers that are taken back may finish what they do."""
    node_wait: str = ""
    """Annotation muster.dev/node-wait: how long its workers may be without a node before another group is tried."""
    served: HeadService | None = None
    """None: as KubeRay serves a head where nothing else is said."""

    def group(self, name: str) -> ScaledGroup | None:
        return next((group for group in self.groups if group.name == name), None)

    @property
    def full(self) -> tuple[str, ...]:
        """Worker groups whose autoscaler has asked for everything up to ``maxReplicas``."""
        return () if self.driven else tuple(group.name for group in self.groups if group.asked >= group.most)

    @property
    def signalled(self) -> tuple[str, ...]:
        """Worker groups with our entry in their scaleGate."""
        return tuple(group.name for group in self.groups if group.signalled)

    @property
    def sizes(self) -> Counts:
        """How many replicas its operator makes."""
        return {group.name: group.replicas for group in self.groups}

    def ceiling(self, group: ScaledGroup) -> int:
        """The most that the owner wants: the written value, unless Muster wrote the value; then the owner's value
        before.
        """
        ours = self.granted.get(group.name)
        return self.ceilings.get(group.name, group.most) if ours == group.most else group.most


RAY_KINDS = ("RayCluster", "RayJob", "RayService")
"""Kinds whose clusters may scale themselves, from the start or later."""


AUTOSCALER = "head/autoscaler"
"""How the autoscaler is named where it was not admitted with the rest; no worker group has such a name."""


PENDING = "cluster/pending"
"""How the new cluster of a RayService's upgrade is named in a request for growth; no worker group has such a name."""


def workers_in(counts: Counts) -> int:
    """The number of replicas in these counts; other counts of pods are left out."""
    return sum(count for name, count in counts.items() if "/" not in name)


def granted_before(pods: Counts, elastic: Elastic) -> Counts:
    """Replicas granted to a cluster of a fixed size. ``pods``: the admitted pods, by group."""
    return {group.name: pods.get(group.name, 0) // group.hosts for group in elastic.groups}


def running_through(clusters: Mapping[str, str], named: str) -> str:
    """The cluster of an owner that counts: the cluster named in the owner's status, else the newest cluster.

    ``clusters``: {uid: name}, at least one, in the order of first observation. A RayService has two during an upgrade.
    """
    return next((uid for uid, name in clusters.items() if name == named), next(reversed([*clusters])))


def counts_text(counts: Counts) -> str:
    """``big=0,small=2``: the form of the annotations, which a policy can read too."""
    return ",".join(f"{name}={count}" for name, count in sorted(counts.items()))


def read_counts(text: str) -> Counts:
    """The counts of a text by ``counts_text``; any other text counts as nothing."""
    counts: Counts = {}
    for part in text.split(",") if text else ():
        name, _, count = part.partition("=")
        if not (name and count.isascii() and count.isdigit() and len(count) < 11):
            return {}
        counts[name] = int(count)
    return dict(sorted(counts.items()))
