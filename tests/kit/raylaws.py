"""Laws of quota that hold at every position of a log, whatever Ray clusters, their owners and their autoscalers do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from muster.core.cell.seats import Seat
from muster.core.quota.accountant import QuotaAccountant
from muster.core.quota.ledger.quotaledger import Ledger
from muster.events.base import Event
from muster.events.decisions import EvictionOrdered, WorkloadAdopted
from muster.events.elastic import GateSet, GrowthWithdrawn, WorkersChosen
from muster.events.envelope import Stored
from muster.model.resources import Vector, add_into

WASTE = (11, 10)
"""At most so many workers are taken for each one that is needed."""


def granted(ledger: Ledger) -> dict[str, Vector]:
    """{path of a quota: what is granted there}: what is charged, without what runs beyond its grant."""
    found = {path: dict(used) for path, used in ledger.used.items()}
    for charge in ledger.charges.values():
        parts = charge.queue.split("/")
        for end in range(1, len(parts) + 1):
            add_into(found.setdefault("/".join(parts[:end]), {}), {name: -much for name, much in charge.over.items()})
    return found


def within_quota(log: Iterable[Stored]) -> int:
    """At no position is more granted than the max of any quota; returns how many positions were looked at.

    A max that is lowered takes nothing back: then nothing is added until there is room again. What ran before Muster
    came is charged as it is found.
    """
    seat, before, looked = Seat(QuotaAccountant()), dict[str, Vector](), 0
    for stored in log:
        seat.fold(stored)
        ledger, looked = seat.state.ledger, looked + 1
        now = granted(ledger)
        if not any(isinstance(event, WorkloadAdopted) for event in stored.commit.events):
            for path, amounts in now.items():
                most = ledger.nodes[path].limit if path in ledger.nodes else {}
                for name, much in amounts.items():
                    bound = max(most.get(name, much), before.get(path, {}).get(name, 0))
                    assert much <= bound, f"{name} of {path}: {much} granted of {most.get(name)} at {stored.seq}"
        before = now
    return looked


def told(log: Iterable[Stored], kind: type[Event]) -> list[Any]:
    """Events of one type."""
    return [event for stored in log for event in stored.commit.events if isinstance(event, kind)]


def taken_for_others(log: Sequence[Stored], *, needed: int) -> None:
    """So many workers were needed by others: hardly more went, each was named once, and no cluster went as a whole."""
    most = needed * WASTE[0] // WASTE[1]
    named = Counter(pod.uid for gate in told(log, GateSet) for pods in gate.workers.values() for pod in pods)
    assert named.keys() <= {worker.ref.uid for chosen in told(log, WorkersChosen) for worker in chosen.workers}
    assert len(named) <= most, f"{len(named)} workers went where {needed} were needed"
    applied = [event for event in told(log, GrowthWithdrawn) if event.claimant is not None]
    assert sum(sum(event.removed.values()) for event in applied) <= most
    orders = told(log, EvictionOrdered)
    assert not [victim for order in orders for victim in order.victims]
    assert sum(sum(part.taken.values()) for order in orders for part in order.partial) <= most
