"""How long work of a KAI queue runs before it may be suspended: ``preemptMinRuntime`` and ``reclaimMinRuntime``.
And how long a job wants to wait before others are.

For a claimant of its own queue what the queue says counts, else what the nearest queue above it says. For one of
another queue it is the queue just under the one they share, on the side of the work, else the nearest above that.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.objects.labels import RECLAIM_GRACE
from muster.core.quota.demand import chain_of
from muster.core.quota.ledger.ledger import Ledger
from muster.core.quota.trees.rules import span_or


def protected_ms(ledger: Ledger, leaf: str, claimant: str) -> int:
    """For work of ``leaf`` against a claimant of the queue ``claimant``, ms; 0 where no queue sets it.

    A queue that writes 0 says nothing, as one that leaves the field out.
    """
    if not ledger.by_shares(leaf):
        return 0
    same = leaf == claimant
    above = chain_of(leaf) if same else _from_side(leaf, claimant)
    nodes = (ledger.nodes[path] for path in above if path in ledger.nodes)
    times = (node.preempt_min_run_ms if same else node.reclaim_min_run_ms for node in nodes)
    return next((each for each in times if each), 0)


def reclaim_grace_ms(labels: Mapping[str, str]) -> int:
    """How long a job itself wants to wait before others are evicted for it; 0 unless it says a time."""
    return span_or(labels.get(RECLAIM_GRACE, ""), 0)


def _from_side(leaf: str, claimant: str) -> list[str]:
    """The chain of a leaf upwards, from the child of the lowest node that both have in common."""
    shared = {*chain_of(claimant)}
    chain = [*chain_of(leaf)]
    first = next((at for at, path in enumerate(chain) if path in shared), len(chain))
    return chain[max(first - 1, 0) :]
