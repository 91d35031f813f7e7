"""Backfill beside claims for age, by declared run times (EASY): by when a claimant is promised to start, and which
jobs are admitted because they declare to have left by then.

Only what jobs declare counts, nothing that was learned. A promise is made once, when the claim is opened, and never
moved: it ends when a job that it counts on is late, and with it ends backfill beside that claim.
"""

from __future__ import annotations

from muster.core.quota.claim import Claim
from muster.core.quota.demand import Scratch, chain_of, counted
from muster.core.quota.ledger.ledger import Ledger
from muster.core.quota.state import AccountantState
from muster.model.demand import Demand


def promised_at(state: AccountantState, claim: Claim) -> int:
    """Log time (ms) by which enough has left for a claim that is about to be opened; 0 where it is not declared.

    A job that leaves for others already, is late, or does not declare its run time is not counted on. Nor is any where
    limits move with the usage of others: lend limits, and shares by weight.
    """
    ledger, amounts = state.ledger, counted(claim.demand)
    if ledger.lends or ledger.shares.names:
        return 0
    held, own = ledger.claims.total.extra, ledger.claims.by_uid.get(claim.uid)
    ends = sorted(
        (charge.until, uid)
        for uid, charge in ledger.charges.items()
        if charge.until > state.now and not state.entries[uid].leaving
    )
    latest = 0
    for path in claim.paths():
        node = ledger.nodes.get(path)
        mine = own.held_at(path) if own is not None and path in own.paths() else {}
        for name in sorted(amounts) if node is not None else ():
            limit = ledger.limit(node, name) if node is not None else None
            if limit is None or not amounts[name]:
                continue
            taken = ledger.used.get(path, {}).get(name, 0) + held.get(path, {}).get(name, 0)
            asked = amounts[name] - mine.get(name, 0)  # What is held for it already is its own.
            until = _enough(ledger, ends, path, name, taken + asked - limit)
            if until is None:
                return 0
            latest = max(latest, until)
    return latest


def _enough(ledger: Ledger, ends: list[tuple[int, str]], path: str, name: str, lacking: int) -> int | None:
    """Log time (ms) by which so much has left at a node; 0 where nothing is lacking, None where too little leaves."""
    if lacking <= 0:
        return 0
    for until, uid in ends:
        charge = ledger.charges[uid]
        if path in chain_of(charge.queue):
            lacking -= counted(charge.demand).get(name, 0)
            if lacking <= 0:
                return until
    return None


def passed(ledger: Ledger, queue: str, demand: Demand, scratch: Scratch, now: int) -> Claim | None:
    """The claim that a job passes at ``now`` by its declared run time; None where it fits without that.

    Of several the one that is promised first: a job that has left by then has left before the others are served.
    """
    if not demand.run_ms or not ledger.claims.by_uid or ledger.shortfall(queue, demand, scratch) is None:
        return None
    chain = chain_of(queue)
    found = ledger.claims.passed(queue, demand, now)
    mine = (claim for claim in found if any(path in chain for path in claim.paths()))
    return min(mine, key=lambda claim: claim.promised, default=None)
