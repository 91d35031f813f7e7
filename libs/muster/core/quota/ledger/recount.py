"""Sums of the ledger counted again from their parts, for audits to compare with."""

from __future__ import annotations

from msgspec import structs

from muster.core.quota.demand import Scratch, counted, spread
from muster.core.quota.ledger.fairshares import divided
from muster.core.quota.ledger.kaishares import requests
from muster.core.quota.ledger.ledger import Ledger
from muster.model.resources import Vector, add_into


def used(ledger: Ledger) -> dict[str, Vector]:
    """What is used at each node, from the charges."""
    total: dict[str, Vector] = {}
    for charge in ledger.charges.values():
        spread(total, charge.queue, counted(charge), 1)
    return total


def leaving(ledger: Ledger) -> Scratch:
    """The amounts released by the workloads that leave for a claim or for room on the nodes."""
    gone = Scratch()
    for uid in ledger.claims.leaving:
        if uid in ledger.charges:
            gone.add(ledger.charges[uid].queue, ledger.charges[uid].demand, -1)
    for uid, part in ledger.claims.cuts.items():
        if uid in ledger.charges and uid not in ledger.claims.leaving:
            gone.add(ledger.charges[uid].queue, part.demand, -1)
    return gone


def held(ledger: Ledger) -> dict[str, Vector]:
    """What claims hold at each node."""
    found: dict[str, Vector] = {}
    for claim in ledger.claims.by_uid.values():
        fresh = structs.replace(claim, lacking=ledger.lacking(claim))
        for path in claim.paths():
            add_into(found.setdefault(path, {}), fresh.held_at(path))
    return {path: amounts for path, amounts in found.items() if amounts}


def waiting(ledger: Ledger) -> dict[str, Vector]:
    """The waiting amounts of every leaf, from the requests."""
    found: dict[str, Vector] = {}
    for uid, ask in ledger.asks.items():
        if uid not in ledger.charges:
            add_into(found.setdefault(ask.queue, {}), ask.request)
    for uid, claim in ledger.claims.by_uid.items():
        if uid not in ledger.charges and uid not in ledger.asks:
            add_into(found.setdefault(claim.queue, {}), claim.demand.request)
    return {queue: total for queue, total in found.items() if total}


def other_shares(ledger: Ledger) -> list[str]:
    """The queues whose fair shares are not those that all requests make."""
    trees = [tree for tree in ledger.trees.values() if tree.by_shares]
    fresh = [divided(tree, requests(ledger, tree), ledger.usage) for tree in trees] if ledger.fair.settled else []
    return [path for found in fresh for path, mine in found.items() if mine != ledger.fair.shares[path]]
