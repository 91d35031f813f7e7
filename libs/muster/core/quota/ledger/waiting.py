"""Whether a workload still waits as it was queued: one rule for the stage that proposes and the one that answers.

What is decided at one sequence takes effect at a later one. Because both sides ask the same question of the same
facts, a proposal that is void when it is answered is not made again before something has changed.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.core.quota.demand import demand_of
from muster.core.quota.ledger.ledger import Ledger, leaf_of
from muster.model.demand import Demand
from muster.model.workload import Workload


def waits(workload: Workload | None) -> bool:
    """Whether it is suspended, asks to run, and is not on hold."""
    return workload is not None and workload.waits


def still_waits(ledger: Ledger, workload: Workload | None, queue: str, demand: Demand) -> bool:
    """Whether it waits at this leaf, for this demand, with all that is in its digest."""
    return (
        workload is not None
        and waits(workload)
        and leaf_of(ledger, workload) == queue
        and _demands(ledger, workload, queue) == _by_rules(ledger, queue, demand)
    )


def _demands(ledger: Ledger, workload: Workload, queue: str) -> Demand:
    return _by_rules(ledger, queue, demand_of(ledger.tree_of(queue), workload))


def _by_rules(ledger: Ledger, queue: str, demand: Demand) -> Demand:
    """Without what follows from PriorityClasses in a KAI queue: only the sorter knows their values."""
    return replace(demand, preemptible=True) if ledger.by_shares(queue) else demand
