"""What waits and what leaves, as the ledger keeps it step by step, is the sum of who waits and who leaves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.quota.claims import Claim, Leaver
from muster.core.quota.demand import Charge, QueuedRequest
from muster.core.quota.ledger import quotaledger
from muster.core.quota.ledger.quotaledger import Ledger
from muster.model.demand import Demand
from muster.model.keys import Ref
from muster.model.quota import QuotaNode, QuotaTree

Step = tuple[int, int, int, int, int]
SMALL = st.integers(0, 3)
WHAT = st.sampled_from((0, 0, 1, 2, 2, 2, 3, 4, 5, 6, 6, 6, 7, 8, 8))
STEPS = st.lists(st.tuples(WHAT, st.integers(0, 3), st.integers(0, 2), SMALL, SMALL), min_size=12, max_size=40)


def tree(leaves: int) -> QuotaTree:
    paths = tuple(f"root/q{index}" for index in range(leaves))
    nodes = (
        QuotaNode(path, {"cpu": index * 1000}, {"cpu": 3000}, (f"ns-{index}",)) for index, path in enumerate(paths)
    )
    return QuotaTree(Ref("ElasticQuotaTree", "", "tree", "tree"), (QuotaNode("root", {}, {}, (), paths), *nodes))


def apply(ledger: Ledger, number: int, step: Step) -> None:
    """One change of the kind that the first number of the step says."""
    what, who, leaf, one, other = step
    uid, queue = f"u{who}", f"root/q{leaf}"
    demand = Demand({"cpu": one * 1000}, one, preemptible=other != 1)
    match what:
        case 0:
            ledger.queued(uid, QueuedRequest(number, queue, demand.request))
        case 1:
            ledger.dequeued(uid, number)
        case 2:
            ledger.charge(uid, Charge(f"ns-{leaf}", queue, demand.request, demand.pods, demand.preemptible))
        case 3:
            ledger.release(uid, number if other else 0, number)
        case 4:
            ledger.move(uid, queue, "")
        case 5:
            ledger.recharge(uid, {"cpu": other * 1000}, other, {})
        case 6:
            victims = {f"u{victim}": Leaver(1) for victim in (one, other) if victim != who}
            ref = Ref("Job", f"ns-{leaf}", uid, uid)
            before = ledger.claims.by_uid.get(uid)
            if other == 2 and (before is None or not before.firm):
                ledger.open_claim(Claim(ref, 1, queue, demand, "age", number, "root"))
            else:
                ledger.open_claim(Claim(ref, 1, queue, demand, "guarantee", number, victims=victims))
        case 7:
            ledger.end_claim(uid)
        case _ if one:
            ledger.victim_stays(uid, 1, number)
        case _:
            ledger.install(tree(1 + other % 3))


@settings(max_examples=200)
@given(STEPS)
def test_sums_follow_whatever_happens_in_any_order(steps: list[Step]) -> None:
    ledger = Ledger()
    ledger.install(tree(3))
    for number, step in enumerate(steps):
        apply(ledger, number, step)
        assert ledger.waiting == quotaledger.recounted_waiting(ledger)
        assert ledger.leaving == quotaledger.recounted_leaving(ledger)
        assert ledger.claims.total.extra == quotaledger.recounted_held(ledger)
        awaited = {uid for claim in ledger.claims.by_uid.values() for uid in claim.victims}
        assert ledger.claims.going.keys() >= awaited  # One whose claim has ended leaves still.
        assert ledger.used == quotaledger.recounted_used(ledger)
        least = {path: node.guaranteed.get("cpu", 0) for path, node in ledger.nodes.items()}
        assert ledger.below.keys() == {path for path in least if ledger.used.get(path, {}).get("cpu", 0) < least[path]}
