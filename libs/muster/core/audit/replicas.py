"""The growth of Ray clusters as the audit counts it: what is asked for, and what a grant leaves of a claim."""

from __future__ import annotations

from muster.events.elastic import GrowthOption, GrowthRequested
from muster.model.elastic import Counts


def asks_for(asked: GrowthRequested, growth: GrowthOption, attempt: int) -> bool:
    """Whether a cluster still asks for such replicas, at least once."""
    vectors = [each for unit in asked.units for each in (unit.groups, *(other.groups for other in unit.otherwise))]
    return asked.attempt == attempt and growth.groups in vectors


def less(growth: GrowthOption, added: Counts) -> GrowthOption | None:
    """What is left to hold once these replicas are granted; None for nothing."""
    times = growth.times - min(added.get(name, 0) // count for name, count in growth.groups.items())
    return GrowthOption(growth.groups, times) if times > 0 else None
