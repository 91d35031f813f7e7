"""Which jobs give, and what that costs, where they ask for more than one resource."""

from __future__ import annotations

import pytest

from muster.core.quota.candidates import Candidates, Giver, Run, basis, search
from muster.core.quota.demand import Charge
from muster.core.quota.evictionrules import may_go, rules
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.victimsearch.prices import Prices
from muster.model.demand import Demand
from muster.model.keys import Ref
from muster.model.placing import GPU
from muster.model.quota import QuotaNode, QuotaTree

HOUR_MS = 3_600_000
OWED = Demand({"cpu": 1000, "memory": 2**30, GPU: 1000})


def full(**charges: tuple[str, dict[str, int]]) -> Ledger:
    """A quota of 4 GPUs and 16 CPUs; ``a`` and ``b`` are guaranteed a half each. uid -> (leaf, what it is charged)"""
    half, total = {"cpu": 8000, GPU: 2000}, {"cpu": 16000, GPU: 4000}
    leaves = [QuotaNode(f"root/{name}", half, total, ()) for name in ("a", "b")]
    ledger = Ledger()
    root = QuotaNode("root", total, total, (), tuple(each.path for each in leaves))
    ledger.install(QuotaTree(Ref("ElasticQuotaTree", "kube-system", "tree", "tree"), (root, *leaves)))
    for uid, (leaf, request) in charges.items():
        ledger.charge(uid, Charge("any", leaf, request))
    return ledger


@pytest.mark.parametrize("beyond", [0, 1])
def test_what_has_nothing_of_what_quota_lacks_leaves_for_a_place_only_as_a_loan(beyond: int) -> None:
    """The nodes may lack CPU where the quota lacks GPUs: a job that leaves for it is above the guarantee of its queue
    in the CPU that it gives.
    """
    ledger = full(gpus=("root/a", {GPU: 4000, "cpu": 7000 + beyond}), plain=("root/a", {"cpu": 1000}))
    found = search(basis(ledger), "root/b", OWED, places=True)
    assert found.names == {GPU}
    assert may_go(Giver("root/a", Demand({"cpu": 1000})), "plain", found, "root/b") is (beyond > 0)


def lost(ledger: Ledger, now: int = 10 * HOUR_MS, **since: int) -> dict[str, int]:
    """uid -> what its eviction throws away; ``since``: when each started."""
    runs = {"root/a": sorted(Run(0, -at, 0, uid, uid) for uid, at in since.items())}
    begun = search(basis(ledger), "root/b", OWED, places=True)
    prices = Prices(begun, rules(begun.basis, "root/b", OWED), Candidates(runs, now=now))
    return {uid: prices.lost(uid) for uid in since}


def test_memory_does_not_outweigh_gpus() -> None:
    """Of two jobs of one GPU the one that has run for longer loses more, however much memory they have."""
    request = {GPU: 1000, "cpu": 1000}
    ledger = full(
        old=("root/a", {**request, "memory": 2**30}),
        young=("root/a", {**request, "memory": 64 * 2**30}),
    )
    found = lost(ledger, old=0, young=9 * HOUR_MS)
    assert 9 * found["young"] < found["old"]


def test_work_on_gpus_is_worth_more_than_work_without() -> None:
    """Where a claimant lacks CPU: a GPU counts for more than the CPU beside it."""
    ledger = full(gpus=("root/a", {GPU: 4000, "cpu": 1000}), plain=("root/a", {"cpu": 9000}))
    found = lost(ledger, gpus=5 * HOUR_MS, plain=0)
    assert 0 < found["plain"] < found["gpus"]
