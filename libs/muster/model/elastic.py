"""What scales itself: a Ray cluster whose autoscaler adds and removes workers, up to what is granted."""

from __future__ import annotations

from msgspec import Struct, field

from muster.model.resources import Vector

UNLIMITED = 2**31 - 1
"""What KubeRay takes for maxReplicas where nothing is said."""

Counts = dict[str, int]
"""{worker group: replicas}"""


class ScaledGroup(Struct, frozen=True, gc=False, omit_defaults=True):
    """One worker group as the spec says it. A replica is ``hosts`` pods."""

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
    """The same with what the operator adds to each pod, as profile ``full`` counts; None: no more than the request."""
    offers: dict[str, int] = field(default_factory=dict)
    """{Ray's resource: ten-thousandths that one host offers to tasks and actors}"""
    leaving: tuple[str, ...] = ()
    """Pods it names to be deleted."""
    idle_s: int = 0
    """After how many seconds without work a worker is removed, where the group says; else 0."""

    def cost(self, profile: str) -> Vector:
        """What one replica is charged under a profile."""
        return self.request if profile == "ack" or self.takes is None else self.takes


class Elastic(Struct, frozen=True, gc=False, omit_defaults=True):
    """A Ray cluster that scales itself: its worker groups, in the order of the spec, and what we wrote on it."""

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
    """upscalingMode is Conservative: it grows by no more than what it has at a time."""
    annotated: bool = False
    """Whether the object has any annotations (a JSON patch must know)."""

    def group(self, name: str) -> ScaledGroup | None:
        return next((each for each in self.groups if each.name == name), None)

    @property
    def sizes(self) -> Counts:
        """How many replicas its operator makes."""
        return {each.name: each.replicas for each in self.groups}

    def ceiling(self, group: ScaledGroup) -> int:
        """The most its owner wants: what is written, unless we wrote that; then what it was before."""
        ours = self.granted.get(group.name)
        return self.ceilings.get(group.name, group.most) if ours == group.most else group.most


def counts_text(counts: Counts) -> str:
    """``big=0,small=2``: the form of the annotations, which a policy can read too."""
    return ",".join(f"{name}={count}" for name, count in sorted(counts.items()))


def read_counts(text: str) -> Counts:
    """What ``counts_text`` wrote; what is not of that form counts as nothing."""
    found: Counts = {}
    for part in text.split(",") if text else ():
        name, _, count = part.partition("=")
        if not (name and count.isascii() and count.isdigit() and len(count) < 11):
            return {}
        found[name] = int(count)
    return dict(sorted(found.items()))
