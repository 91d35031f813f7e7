"""Fair shares that are kept up to date change by change are those that all requests make, to the last field; and most
changes divide nothing again.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.core.quota.ledger import shares
from muster.core.quota.ledger.shares import FairShares, divided
from muster.model.keys import Ref
from muster.model.quota import KAI_ROOT, QuotaNode, QuotaTree
from muster.model.resources import EVERYTHING, Vector, add_into

GPU = "nvidia.com/gpu"
UNIT = 1000

SETTINGS = st.tuples(
    st.sampled_from([0, 0, 1, 2, 4, EVERYTHING]),  # quota, in GPUs
    st.sampled_from([None, None, None, 3]),  # limit
    st.sampled_from([1, 1, 1, 2, 0]),  # weight
    st.sampled_from([100, 100, 100, 50]),  # priority
)
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 99), st.sampled_from([-2000, -1000, -1000, -500, 13, 500, 1000, 1000, 2000]), st.booleans()
    ),
    min_size=1,
    max_size=24,
)


def tree_of(total: int, tops: list[tuple[int, int | None, int, int]], below: int) -> QuotaTree:
    """Queues, the first of which have so many below them."""
    nodes = []
    for at, (quota, limit, weight, priority) in enumerate(tops):
        path = f"{KAI_ROOT}/t{at}"
        names = [f"{path}/q{each}" for each in range(below if at < 2 else 0)]
        for one in (path, *names):
            quotas = {GPU: quota if quota == EVERYTHING else quota * UNIT} if quota else {}
            nodes.append(
                QuotaNode(
                    one,
                    quotas,
                    {} if limit is None else {GPU: limit * UNIT},
                    (),
                    tuple(names) if one == path else (),
                    weight={GPU: weight},
                    priority=priority,
                    uid=one,
                )
            )
    tops_of = tuple(node.path for node in nodes if node.path.count("/") == 1)
    root = QuotaNode(KAI_ROOT, {}, {GPU: total * UNIT}, (), tops_of)
    return QuotaTree(Ref("Queue", "", KAI_ROOT, KAI_ROOT), (root, *nodes), rule_profile="kai")


@given(st.integers(1, 24), st.lists(SETTINGS, min_size=1, max_size=5), st.integers(0, 3), CHANGES)
def test_kept_shares_are_those_that_all_requests_make(
    total: int, tops: list[tuple[int, int | None, int, int]], below: int, changes: list[tuple[int, int, bool]]
) -> None:
    tree = tree_of(total, tops, below)
    nodes, kept = {node.path: node for node in tree.nodes}, FairShares()
    kept.install({tree.root: tree})
    leaves = [*kept.leaves]
    asked: dict[str, Vector] = {leaf: {} for leaf in leaves}
    kept.settle({tree.root: tree}, nodes, asked, {}, {})
    for which, change, settles in changes:
        leaf = leaves[which % len(leaves)]
        add_into(asked[leaf], {GPU: max(change, -asked[leaf].get(GPU, 0))})
        kept.touch(leaf)
        if settles:
            kept.settle({tree.root: tree}, nodes, asked, {}, {})
            assert kept.shares == divided(tree, asked, {})


def divisions(quota: int, asked: list[float], at: int, change: float) -> int:
    """How often the GPUs are divided again for one change in one of some queues that have 8 of them each."""
    tree = tree_of(8 * len(asked), [(quota, None, 1, 100)] * len(asked), 0)
    nodes, kept = {node.path: node for node in tree.nodes}, FairShares()
    kept.install({tree.root: tree})
    requests: dict[str, Vector] = {
        leaf: {GPU: int(amount * UNIT)} for leaf, amount in zip(kept.leaves, asked, strict=True)
    }
    kept.settle({tree.root: tree}, nodes, requests, {}, {})
    leaf, count, column = [*kept.leaves][at], 0, shares._column

    def counted(*args: object) -> object:
        nonlocal count
        count += 1
        return column(*args)  # type: ignore[arg-type]

    add_into(requests[leaf], {GPU: int(change * UNIT)})
    kept.touch(leaf)
    shares._column = counted  # type: ignore[assignment]
    try:
        kept.settle({tree.root: tree}, nodes, requests, {}, {})
    finally:
        shares._column = column
    assert kept.shares == divided(tree, requests, {})
    return count


def test_most_changes_divide_nothing_again() -> None:
    assert divisions(0, [10, 10, 10], 1, -1) == 0, "it asks for more than its share, and still does"
    assert divisions(0, [9, 9, 9], 1, -1) == 0, "it asks for just its share from here on"
    assert divisions(EVERYTHING, [8, 3, 9], 1, 1) == 0, "nobody asks for more than a quota"
    assert divisions(10, [8, 3, 9], 1, -1) == 0, "nobody asks for more than a quota"
    assert divisions(0, [8, 9, 9], 0, -1) == 1, "what it leaves is for the others"
    assert divisions(4, [3, 9, 9], 0, 1) == 1, "the others have what it left"


def test_a_part_of_a_device_that_rounding_kept_is_asked_for_from_here_on() -> None:
    """It asks for more than its share, which is in whole devices, and for less than its part."""
    assert divisions(0, [20, 7, 20, 0.5], 1, 1.5) == 1
    assert divisions(0, [20, 10.5, 20, 0.5], 1, -0.1) == 1
