"""What the audit asks of workers that Muster deletes itself, from the log alone: their operator was asked first."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from muster.core.audit.seen import Finding
from muster.events.base import Cause
from muster.events.decisions import QuotaReleased
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GateSet, GrowthWithdrawn, WorkersKept, WorkersRemoved
from muster.events.envelope import Stored

PATIENCE_MS = 60_000
"""How long an operator has."""


class _Named(Struct):
    attempt: int
    cause: Cause
    pods: frozenset[str]
    at: int = 0
    """Log time at which that was written; 0 before."""
    over: int = 0
    """Sequence from which on it justifies nothing; 0 while it does."""
    over_at: int = 0


class WorkersAudit:
    """Feed it every commit in order."""

    def __init__(self) -> None:
        self._asked: dict[str, _Named] = {}
        """uid of the charged workload -> the workers that its operator was asked to delete last; for a minute
        longer
        """
        self._now = 0

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """What is found in one commit."""
        self._now = max(self._now, stored.commit.at)
        for item, event in enumerate(stored.commit.events):
            match event:
                case GateSet() if event.workers:
                    pods = frozenset(pod.uid for refs in event.workers.values() for pod in refs)
                    self._asked[event.owner.uid] = _Named(event.attempt, Cause(stored.seq, item), pods)
                case EffectApplied(action="gate"):
                    for asked in self._asked.values():
                        if asked.cause == event.cause and not asked.at:
                            asked.at = self._now
                case EffectFailed(action="gate"):
                    for uid in [uid for uid, asked in self._asked.items() if asked.cause == event.cause]:
                        del self._asked[uid]
                case GrowthWithdrawn() | QuotaReleased():
                    self._over(event.ref.uid, event.attempt, stored.seq)
                case WorkersKept() if event.unasked:
                    self._over(event.ref.uid, event.attempt, stored.seq)
                case WorkersRemoved():
                    yield self._removed(event, stored.commit.in_seq)
                case _:
                    pass

    def _over(self, owner: str, attempt: int, seq: int) -> None:
        """They are gone, or stay: a decision made once that is known deletes none of them."""
        long_over = [uid for uid, each in self._asked.items() if each.over and each.over_at < self._now - PATIENCE_MS]
        for uid in long_over:
            del self._asked[uid]
        asked = self._asked.get(owner)
        if asked is not None and asked.attempt <= attempt and not asked.over:
            asked.over, asked.over_at = seq, self._now

    def _removed(self, event: WorkersRemoved, known: int) -> Finding:
        """``known``: sequence up to which the decider knew the log."""
        asked = self._asked.get(event.owner.uid)
        pods = {pod.uid for refs in event.workers.values() for pod in refs}
        valid = asked is not None and asked.attempt == event.attempt and not 0 < asked.over <= known
        named = asked is not None and valid and pods <= asked.pods
        late = asked is not None and 0 < asked.at <= self._now - PATIENCE_MS
        what = "were not named to its operator" if not named else "were named to its operator a moment ago"
        return "I27", named and late, f"workers of {event.ref} are deleted that {what}"
