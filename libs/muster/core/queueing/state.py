"""What the sorter knows: the queues, and what of them may have to change."""

from __future__ import annotations

from msgspec import field

from muster.core.queueing.circles import Circles
from muster.core.queueing.learned import Learned
from muster.core.queueing.lineup import Lineup
from muster.core.queueing.queues import Queues
from muster.core.stage import StageState
from muster.events.base import Cause


class SorterState(StageState):
    """The queues, and what only deciding needs."""

    queues: Queues = field(default_factory=Queues)
    causes: dict[str, Cause] = field(default_factory=dict)
    """workload uid -> the newest event that may be why its standing changes"""
    learned: Learned = field(default_factory=Learned)
    """How long jobs run, where the tree orders by that."""
    circles: Circles = field(default_factory=Circles)
    """Which jobs are tried again and again without a result, though nothing changes."""
    lineup: Lineup = field(default_factory=Lineup)
    due: dict[str, None] = field(default_factory=dict)
    """uids of workloads whose standing may have to change"""
