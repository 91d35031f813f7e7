"""Turmoil in which both quota APIs are in force at once, and people do their worst to the queues.

Queues move from parent to parent (under themselves too), take the names of the other API's nodes, say what is no
amount, are deleted and made again; past usage counts or does not. The jobs run on all the while.
"""

from __future__ import annotations

from random import Random

from kit import kai
from kit.turmoil import QUEUES, Turmoil

OTHERS = ("top", "video", "root", "default-queue")
"""Parents and leaves beside those that jobs name: a node of the ElasticQuotaTree, its root, and who takes the rest."""
PASTS = ({}, {}, {"usage-half-life": "5m"}, {"usage-window": "30m", "usage-weight": "3"}, {"usage-window": "never"})


class Forests(Turmoil):
    """One such history."""

    def __init__(self, seed: int) -> None:
        self.odd = Random(f"forests {seed}")
        super().__init__(seed)
        if self.forest == "tree":
            self.forest = "both"
            for name in QUEUES:
                self.kai_edited(name)

    def kai_edited(self, name: str = "") -> None:
        odd = self.odd
        name = name or odd.choice((*QUEUES, *QUEUES, *OTHERS))
        if not self.peace and odd.random() < 0.1:
            self.bench.facts(kai.queue_gone(name))
            return
        parent = "" if self.peace else odd.choice(("", "", "top", odd.choice(QUEUES), name, "nowhere"))
        quota, weight = odd.choice((0, 4, 8, -1)), odd.choice((0, 1, 2))
        cpu = (quota if quota < 0 else quota * 1000, odd.choice((-1, -1, 12_000)), weight)
        if odd.random() < 0.05 and not self.peace:
            cpu = (-3, -1, 1)
        rules = {} if self.peace else odd.choice(PASTS)
        self.bench.facts(
            kai.queue(
                name,
                parent,
                cpu=cpu,
                priority=odd.choice((100, 100, 200)),
                rules=rules,
                created=odd.choice((1, 2)),
                reclaim_min_runtime=odd.choice(("", "", "1m")),
            )
        )

    def _make_peace(self) -> None:
        """Nobody's past counts any more: while it does, queues take turns for ever, as they should."""
        for name in OTHERS:
            self.bench.facts(kai.queue_gone(name))
        for name in QUEUES:
            self.kai_edited(name)
        super()._make_peace()
