"""Quota idle for age claims: counted while a claim is in force, and bounded.

No job is suspended for an age claim, so with long jobs the release of enough quota may take days. Meanwhile earlier
released quota is idle, though other jobs ask for it. The amounts of a claimant may be idle for a tenth of the time that
it had waited; then the claim ends. After each claim its node rests: no more is held there for age for two hundred times
as long as the claimant's amounts were idle.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.quota.claims import Claim
from muster.core.quota.demand import chain_of, counted
from muster.core.quota.ledger.quotaledger import Ledger
from muster.model.resources import Vector, add_into

_NOTHING: Mapping[str, int] = {}


def time_passed(ledger: Ledger, now: int) -> None:
    """Count the idle time of the unchanged ledger until ``now``, log time (ms)."""
    for claim in ledger.claims.for_age():
        add_into(claim.idle, idle_now(ledger, claim), now - claim.idle_until)
        claim.idle_until = now


def idle_now(ledger: Ledger, claim: Claim) -> Vector:
    """The amounts free and held at the node of an age claim, as far as other jobs ask for them."""
    node, amounts = ledger.nodes.get(claim.top), Vector()
    used = ledger.used.get(claim.top, _NOTHING)
    for name, asked in claim.held_at(claim.top).items() if node is not None else ():
        limit = ledger.limit(node, name) if node is not None else None
        free = min(asked, limit - used.get(name, 0)) if limit is not None else 0
        if free > 0 and (idle := min(free, _asked_beside(ledger, claim, name, free))):
            amounts[name] = idle
    return amounts


def spent_at(ledger: Ledger, claim: Claim) -> int | None:
    """Log time (ms) at which the idle budget of an age claim is spent; None for never, in the current state."""
    now = idle_now(ledger, claim)
    times = []
    for name, idle in {**dict.fromkeys(now, 0), **claim.idle}.items():
        left = budget(claim, name) - idle
        if left <= 0 or now.get(name):
            times.append(claim.idle_until + (-(-left // now[name]) if left > 0 else 0))
    return min(times, default=None)


def budget(claim: Claim, name: str) -> int:
    """The amount of a resource, times ms, that may be idle for a claim."""
    return counted(claim.demand).get(name, 0) * claim.idles_ms


def rests_until(ledger: Ledger, queue: str) -> int:
    """Log time (ms) until which no quota is held for age at some node of a queue; 0 without a rest."""
    rests = ledger.claims.rests
    return max((rests[path] for path in chain_of(queue) if path in rests), default=0)


def limit_of(ledger: Ledger, path: str, name: str) -> int:
    """The limit of a node; 0 without a limit."""
    node = ledger.nodes.get(path)
    return (ledger.limit(node, name) or 0) if node is not None else 0


def _asked_beside(ledger: Ledger, claim: Claim, name: str, enough: int) -> int:
    """The amount of a resource that other jobs wait for below the claim's node; ``enough``: the count may stop
    there.
    """
    below, own = f"{claim.top}/", ledger.asks.get(claim.uid)
    total = -own.request.get(name, 0) if own is not None and claim.uid not in ledger.charges else 0
    for leaf, asked in ledger.waiting.items():
        if leaf.startswith(below) or leaf == claim.top:
            total += asked.get(name, 0)
            if total >= enough:
                break
    return max(total, 0)
