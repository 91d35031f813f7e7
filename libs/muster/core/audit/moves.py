"""The audit of moves (I28), from the log alone: no job moves without a place, nor without its quota.

Like the auditor it keeps to its own books, and calls nothing of the gang admitter's or the accountant's.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from muster.core.audit.seen import Finding
from muster.events.base import Event
from muster.events.claims import VictimStays
from muster.events.decisions import (
    EvictionOrdered,
    GangAdmitted,
    GangDeferred,
    QuotaReleased,
    QuotaReserved,
    WorkloadDequeued,
)
from muster.events.effects import EffectFailed
from muster.events.envelope import Commit, Stored
from muster.events.facts import NodeGone, NodeObserved, PodObserved, WorkloadGone, WorkloadObserved
from muster.events.system import PlacementChosen

APART_MS = 3_600_000
"""Between two moves that one job takes part in."""
KEPT_MS = 600_000
"""How long its places are kept for a job that moves, since all have left that the same order suspends."""


class _Moved(Struct):
    """A job that was ordered to move."""

    told: str
    nodes: frozenset[str]
    others: frozenset[str]
    """uids of all jobs that leave or move for the same job"""
    going: set[str]
    """Those of them that have not left."""
    left: int
    """Log time (ms) at which the last one left; at which it was ordered before."""
    changed: bool = False
    """Something has happened since that bears on its places."""
    attempt: int = 0
    """Under which its quota was reserved again; 0 before."""


class MoveAudit:
    """Feed it every commit in order."""

    def __init__(self) -> None:
        self._most = 0
        self._nodes: set[str] = set()
        self._pods: set[str] = set()
        self._basis: dict[str, str] = {}
        """workload uid -> digest of the input of decisions, as it was seen last"""
        self._lately: dict[str, int] = {}
        """uid of a job in a move -> log time (ms) of its last one"""
        self._moved: dict[str, _Moved] = {}

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """What is found in one commit."""
        commit = stored.commit
        for item, event in enumerate(commit.events):
            if isinstance(event, QuotaReleased):
                self._left(event.ref.uid, commit.at)
            match event:
                case EvictionOrdered() if any(victim.moves for victim in event.victims):
                    yield from self._ordered(event, commit)
                case QuotaReleased() if event.reason == "moved":
                    yield self._handed_on(event, commit.events[item + 1] if item + 1 < len(commit.events) else None)
                case QuotaReleased() | WorkloadGone() | WorkloadDequeued():
                    self._moved.pop(event.ref.uid, None)
                case GangAdmitted() | GangDeferred():
                    yield from self._placed(event, commit)
                case PlacementChosen():
                    self._most = event.moves if event.strategy is not None else 0
                    self._change()
                case VictimStays() | EffectFailed(action="suspend"):
                    self._change(event.ref.uid)
                case _:
                    self._fact(event)

    def _fact(self, event: Event) -> None:
        match event:
            case NodeObserved():
                self._nodes.add(event.node.ref.name)
                self._change()
            case NodeGone():
                self._nodes.discard(event.ref.name)
                self._change()
            case PodObserved() if event.pod.ref.uid not in self._pods and event.pod.node:
                self._pods.add(event.pod.ref.uid)
                for each in self._moved.values():
                    each.changed = each.changed or event.pod.node in each.nodes
            case WorkloadObserved():
                uid, basis = event.workload.ref.uid, event.workload.basis
                if uid in self._moved and self._basis.get(uid) != basis:
                    self._moved[uid].changed = True
                self._basis[uid] = basis
            case _:
                pass

    def _change(self, uid: str = "") -> None:
        """What may have changed their places; ``uid``: only of the jobs that move with it."""
        for each in self._moved.values():
            each.changed = each.changed or not uid or uid in each.others

    def _left(self, uid: str, at: int) -> None:
        for each in self._moved.values():
            if uid in each.going:
                each.going.discard(uid)
                each.left = at

    def _ordered(self, event: EvictionOrdered, commit: Commit) -> Iterator[Finding]:
        said, moving = f"{event.ref}", [victim for victim in event.victims if victim.moves]
        leaving, victims = {victim.ref.uid for victim in event.victims}, [victim.ref.uid for victim in moving]
        whole = [move.uid for move in event.moves] == victims and all(move.places for move in event.moves)
        yield "I28", whole, f"{said}: {len(victims)} are to move for it, and {len(event.moves)} have places"
        yield "I28", len(victims) <= self._most, f"{said}: {len(victims)} move for it, over {self._most}"
        for uid in (event.ref.uid, *victims):
            apart = commit.at - self._lately.get(uid, commit.at - APART_MS)
            yield "I28", apart >= APART_MS, f"{said}: {uid} takes part in two moves within {apart} ms"
            self._lately[uid] = commit.at
        for victim, move in zip(moving, event.moves, strict=False):
            nodes = frozenset(place.node for place in move.places)
            self._moved[move.uid] = _Moved(
                f"{victim.ref}", nodes, frozenset(leaving), set(leaving), commit.at, changed=not nodes <= self._nodes
            )

    def _handed_on(self, event: QuotaReleased, after: Event | None) -> Finding:
        found = self._moved.get(event.ref.uid)
        kept = isinstance(after, QuotaReserved) and after.ref.uid == event.ref.uid and after.queue == event.queue
        if found is not None and isinstance(after, QuotaReserved):
            found.attempt = after.attempt
        return "I28", kept, f"{event.ref} is moved, and its quota is not reserved for it again at once"

    def _placed(self, event: GangAdmitted | GangDeferred, commit: Commit) -> Iterator[Finding]:
        found = self._moved.get(event.ref.uid)
        if found is None or found.attempt != event.attempt:
            return
        del self._moved[event.ref.uid]
        if found.changed or (not found.going and commit.at >= found.left + KEPT_MS):
            return
        if isinstance(event, GangDeferred):
            yield "I28", False, f"{found.told} is moved, nothing has changed, and it has no place"
            return
        nodes = {place.node for place in event.placements}
        yield "I28", nodes <= found.nodes, f"{found.told} is moved to {sorted(nodes)}, not to {sorted(found.nodes)}"
