"""What is idle for claims for age: counted while one is in force, and bounded.

No job is suspended for such a claim, so with long jobs it may take days until enough is released. What was released
before is idle meanwhile, though others ask for it. A fiftieth of a day's capacity may be idle for one claim: then it
ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.quota.claims import Claim
from muster.core.quota.ledger.quotaledger import Ledger
from muster.model.resources import Vector, add_into

DAY_MS = 24 * 3_600_000
BUDGET_MS = DAY_MS // 50
"""So long the whole limit of the node at which it is held may be idle for one claim, or a part of it for longer."""

_NOTHING: Mapping[str, int] = {}


def time_passed(ledger: Ledger, now: int) -> None:
    """The ledger has been as it is until ``now``, log time (ms)."""
    for claim in ledger.claims.for_age():
        add_into(claim.idle, idle_now(ledger, claim), now - claim.idle_until)
        claim.idle_until = now


def idle_now(ledger: Ledger, claim: Claim) -> Vector:
    """The amounts that are free and held where a claim for age is, as far as others ask for them."""
    node, found = ledger.nodes.get(claim.top), Vector()
    used = ledger.used.get(claim.top, _NOTHING)
    for name, asked in claim.held_at(claim.top).items() if node is not None else ():
        limit = ledger.limit(node, name) if node is not None else None
        free = min(asked, limit - used.get(name, 0)) if limit is not None else 0
        if free > 0 and (idle := min(free, _asked_beside(ledger, claim, name, free))):
            found[name] = idle
    return found


def spent_at(ledger: Ledger, claim: Claim) -> int | None:
    """Log time (ms) at which as much has been idle for a claim for age as may be; None for never, as things are."""
    now = idle_now(ledger, claim)
    times = []
    for name, idle in {**dict.fromkeys(now, 0), **claim.idle}.items():
        left = budget(ledger, claim.top, name) - idle
        if left <= 0 or now.get(name):
            times.append(claim.idle_until + (-(-left // now[name]) if left > 0 else 0))
    return min(times, default=None)


def budget(ledger: Ledger, path: str, name: str) -> int:
    """How much of a resource may be idle for one claim that is held at a node, times ms."""
    return limit_of(ledger, path, name) * BUDGET_MS


def paid_back_ms(ledger: Ledger, path: str, idle: Vector, times: int) -> int:
    """So many times as long as the whole limit of a node would have been idle for the same amounts."""
    limits = {name: limit_of(ledger, path, name) for name in idle}
    return max((idle[name] * times // limit for name, limit in limits.items() if limit), default=0)


def limit_of(ledger: Ledger, path: str, name: str) -> int:
    """The limit of a node; 0 where it has none."""
    node = ledger.nodes.get(path)
    return (ledger.limit(node, name) or 0) if node is not None else 0


def _asked_beside(ledger: Ledger, claim: Claim, name: str, enough: int) -> int:
    """How much of a resource other jobs wait for below the node at which a claim is held; ``enough``: or more."""
    below, own = f"{claim.top}/", ledger.asks.get(claim.uid)
    found = -own.request.get(name, 0) if own is not None and claim.uid not in ledger.charges else 0
    for leaf, asked in ledger.waiting.items():
        if leaf.startswith(below) or leaf == claim.top:
            found += asked.get(name, 0)
            if found >= enough:
                break
    return max(found, 0)
