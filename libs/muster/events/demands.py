"""The common part of decisions about the quota of a workload: the fields of the demand."""

from __future__ import annotations

from msgspec import field

from muster.events.base import Decision
from muster.events.elastic import GrowthOption
from muster.model.demand import Demand
from muster.model.keys import Ref
from muster.model.quota import Flavors
from muster.model.resources import Vector


class DemandDecision(Decision, frozen=True, kw_only=True):
    """The common part of every decision about the quota of a workload, with the fields of the Demand."""

    ref: Ref
    attempt: int
    queue: str
    request: Vector
    pods: int = 0
    preemptible: bool = True
    run_ms: int = 0
    """The declared longest run time (ms); 0 for a workload that declares none."""
    basis: str = ""
    """Digest of the whole request, copied from the fact about the workload: equal requests have equal digests."""
    flavors: Flavors = field(default_factory=dict)
    """{pod set: its flavors}, where the tree tells types of nodes apart; the request has the amounts by flavor."""

    @property
    def demand(self) -> Demand:
        return Demand(
            self.request,
            self.pods,
            self.preemptible,
            run_ms=self.run_ms,
            basis=self.basis,
            flavors=self.flavors,
        )


class ClaimantDecision(DemandDecision, frozen=True, kw_only=True):
    """A decision for a claimant: a waiting job, or a running job that asks for more."""

    growth: GrowthOption | None = None
    """The replicas that a Ray cluster asks for beyond its grant; None: the job waits."""

    @property
    def demand(self) -> Demand:
        jobs = 1 if self.growth is None else 0
        return Demand(self.request, self.pods, self.preemptible, jobs, self.run_ms, self.basis, self.flavors)
