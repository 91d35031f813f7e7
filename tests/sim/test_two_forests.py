"""Both quota APIs at once under people who edit, move and delete queues while jobs run: see ``kit.forests``.

40 histories in every run, others in each round of `make shake`, and as many as MUSTER_TEST_HISTORIES says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from kit.forests import Forests
from kit.histories import is_sound, kinds_of, worth
from muster.core.quota.division.decay import BUCKETS
from muster.events.decisions import QuotaTreeAccepted
from muster.events.shares import SharesChanged

BLOCKS = 4
EACH = max(int(os.environ.get("MUSTER_TEST_HISTORIES", "40")) // BLOCKS, 1)
FIRST = Random().randrange(10**9) if os.environ.get("MUSTER_TEST_EXAMPLES") == "random" else 0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_any_history_keeps_the_invariants_comes_to_rest_and_replays(block: int) -> None:
    for seed in range(FIRST + block * EACH, FIRST + (block + 1) * EACH):
        sound(seed)


def sound(seed: int) -> None:
    try:
        found = Forests(seed)
        found.run()
        found.at_rest()
        accountant = found.bench.states["quota_accountant"]
        assert all(len(each.past) <= BUCKETS for each in accountant.lately.values())
        copies = [
            accountant.ledger,
            *(found.bench.states[name].queues.ledger for name in ("queue_sorter", "preemptor")),
        ]
        assert all(each.usage == copies[0].usage for each in copies), "everybody shares by the same past"
        is_sound(found.bench, seed)
    except Exception as err:
        raise AssertionError(f"seed {seed}") from err


def test_the_histories_are_worth_something() -> None:
    """Something moves, is evicted, and is shared otherwise for what was used."""
    paths: set[str] = set()

    def happened(seed: int) -> Iterator[str]:
        found = Forests(seed)
        found.run()
        found.at_rest()
        bench = found.bench
        yield from kinds_of(bench.log)
        yield from ("usage" for event in bench.happened(SharesChanged) if event.usage)
        for event in bench.happened(QuotaTreeAccepted):
            yield from ["disabled"] * bool(event.tree.disabled)
            new = {node.path for node in event.tree.nodes if node.path.endswith("team-a")} - paths
            paths.update(new)
            yield from ["another place"] * len(new)

    worth(map(happened, range(16)), **{"another place": 3, "disabled": 21, "EvictionOrdered": 2, "usage": 3})
