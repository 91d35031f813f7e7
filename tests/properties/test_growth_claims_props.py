"""Growth within a guarantee is granted whatever others have borrowed: on random guarantees, borrowers and demands."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.contention import fixed_size
from kit.elastic import CORE, HEAD_CPU, ElasticPlay, in_queue, kai_queue, raycluster
from muster.events.decisions import EvictionOrdered

TOTAL = 8


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, TOTAL),
    st.lists(st.integers(1, 4), max_size=4),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.booleans(),
)
def test_what_is_guaranteed_is_granted_and_no_more_is_taken(
    least: int, lent: list[int], asked: list[int], kai: bool
) -> None:
    """One queue is guaranteed ``least`` cores; another, guaranteed nothing, borrows in jobs of ``lent`` cores each. The
    cluster of the first asks for placement groups of ``asked`` workers, of one core each.
    """
    nodes = {"node-0": {"cpu": str(TOTAL), "memory": "256Gi"}}
    queues = [kai_queue("mine", least), kai_queue("other", 0)] if kai else []
    play = ElasticPlay(("ns", str(least), "100"), ("other", "0", "100"), total=str(TOTAL), nodes=nodes, queues=queues)

    def placed(obj: dict[str, object], queue: str) -> dict[str, object]:
        return in_queue(obj, queue) if kai else obj

    scaler = play.create(placed(raycluster(), "mine"))
    for number, size in enumerate(lent):
        play.create_raw(placed(fixed_size(size, f"lent-{number}", "other"), "other"))
    play.tick(2)
    for number, size in enumerate(asked):
        for bundle in range(size):
            scaler.start(f"pg{number}-{bundle}", gang=f"pg{number}")
    play.tick(14)
    workers, free = len(play.pods()), TOTAL * CORE - sum(play.cpu(each) for each in _charged(play))
    left = least * CORE - HEAD_CPU - workers * CORE
    waits = [size for number, size in enumerate(asked) if f"pg{number}-0" in scaler.waiting]
    assert not [size for size in waits if size * CORE <= max(left, free)], f"{waits} wait beside {left} that is owed"
    assert len(play.pods("lent")) >= 0
    taken = sum(len(order.victims) for order in play.told(EvictionOrdered))
    assert taken <= len(lent), "nobody leaves twice for one demand"
    play.clean()


def _charged(play: ElasticPlay) -> list[str]:
    state = play.cell.seats["quota_accountant"].state
    return [entry.ref.name for entry in state.entries.values()]
