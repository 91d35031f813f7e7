"""The demand on a quota, and the limit that refuses the demand: the same values in the ledger, in states and in the
log.
"""

from __future__ import annotations

from typing import TypedDict

from msgspec import Struct, field

from muster.model.quota import Flavors
from muster.model.resources import Vector


class AskedFields(TypedDict):
    """The demand of a workload, as fields of a decision."""

    flavors: Flavors

    request: Vector
    pods: int
    preemptible: bool
    run_ms: int
    basis: str


class Demand(Struct, frozen=True, gc=False, omit_defaults=True):
    """The demand of a workload on its quota."""

    request: Vector
    pods: int = 0
    """Counted as machines, where the tree limits those."""
    preemptible: bool = True
    """What is not stays within the guarantee at every level."""
    jobs: int = 1
    """0 for a part of a job that is counted already."""
    run_ms: int = 0
    """How long it declares to run at most (ms); 0: it does not say."""
    basis: str = ""
    """Digest of all that a waiting workload asks for, of the nodes too, as it is in the fact about it; empty for a part
    of one, and for running work."""
    flavors: Flavors = field(default_factory=dict)
    """The flavors behind the amounts by flavor; empty where the tree tells none apart, and for parts."""

    @property
    def fields(self) -> AskedFields:
        """The demand as the fields of a decision; the decision returns the same value as its ``demand``."""
        return {
            "request": self.request,
            "pods": self.pods,
            "preemptible": self.preemptible,
            "run_ms": self.run_ms,
            "basis": self.basis,
            "flavors": self.flavors,
        }

    def alike(self, other: Demand) -> bool:
        """Whether both ask for the same, of the quota and of the nodes, however long they run."""
        mine = (self.request, self.pods, self.preemptible, self.jobs, self.basis)
        return mine == (other.request, other.pods, other.preemptible, other.jobs, other.basis)


class Shortfall(Struct, frozen=True, gc=False, omit_defaults=True):
    """The first limit that refuses a demand: leaf first, then upwards, resources in sorted order."""

    path: str
    resource: str
    asked: int
    used: int
    """What is charged there."""
    limit: int
    of_min: bool = False
    """``limit`` is the min, ``used`` what is not preemptible: such work stays within the guarantee."""
    held: int = 0
    """What is held there for claimants, beside ``used``,"""
    claimant: str = ""
    """and namespace/name of the first of them."""
    beside: tuple[str, ...] = ()
    """The other claimants: namespace/name of the first four."""
    kept: int = 0
    """What is kept there for the guarantees of other queues, beside ``used``."""
    of_runtime: bool = False
    """``limit`` is the share that may be used right now, by weight; it moves with the requests of others."""

    @property
    def missing(self) -> int:
        """How much more has to be released there."""
        return self.asked - (self.limit - self.used - self.held - self.kept)

    @property
    def hopeless(self) -> bool:
        """The demand alone is over the limit: no release can ever help."""
        return self.asked > self.limit and not self.of_runtime
