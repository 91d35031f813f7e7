"""What the audit asks of pods of no job (I29), from the log alone: one that its quota counts has a node from us only
once it is charged.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.audit.seen import Finding
from muster.core.audit.trees import Trees
from muster.core.objects.labels import quota_name
from muster.events.base import Event
from muster.events.decisions import QuotaReleased, QuotaReserved, QuotaTreeAccepted, QuotaTreeRemoved, WorkloadAdopted
from muster.events.envelope import Stored
from muster.events.facts import PodGone, PodObserved
from muster.events.gangs import PodsPlaced, PodsReserved
from muster.model.keys import root_of
from muster.model.workload import PodState


class PodChargeAudit:
    """Feed it every commit in order."""

    def __init__(self) -> None:
        self._trees = Trees()
        self._pods: dict[str, tuple[PodState, int]] = {}
        """uid -> a pod that has no owner, and the sequence of the last fact about it"""
        self._charged: set[str] = set()
        self._reserved: set[str] = set()

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """What is found in one commit."""
        for event in stored.commit.events:
            yield from self._event(stored.seq, stored.commit.in_seq, event)

    def _event(self, seq: int, known: int, event: Event) -> Iterator[Finding]:
        match event:
            case QuotaTreeAccepted() | QuotaTreeRemoved():
                self._trees.note(event, seq)
            case PodObserved():
                uid = event.pod.ref.uid
                if event.pod.ours and not event.pod.owner_uid:
                    self._pods[uid] = (event.pod, seq)
                else:
                    self._pods.pop(uid, None)
            case PodGone():
                self._pods.pop(event.ref.uid, None)
                self._reserved.discard(event.ref.uid)
            case WorkloadAdopted() | QuotaReserved():
                self._charged.add(event.ref.uid)
            case QuotaReleased():
                self._charged.discard(event.ref.uid)
            case PodsReserved():
                for ref in event.pods:
                    leaf = self._leaf(ref.uid, known)
                    yield (
                        "I29",
                        not leaf or ref.uid in self._charged,
                        f"{ref} may be placed, and is not charged at {leaf}",
                    )
                    self._reserved.add(ref.uid)
            case PodsPlaced():
                for place in event.pods:
                    leaf, uid = self._leaf(place.ref.uid, known), place.ref.uid
                    held = not leaf or uid in self._reserved
                    yield "I29", held, f"{place.ref} is given {place.node}, and {leaf} was not asked for it"
            case _:
                pass

    def _leaf(self, uid: str, known: int) -> str:
        """The leaf that counts a pod; empty for none, or where the decider cannot have known."""
        pod, since = self._pods.get(uid, (None, 0))
        if pod is None or max(since, self._trees.changed) > known:
            return ""
        named = quota_name(pod.labels)
        if not named and pod.ref.namespace not in self._trees.leaves:
            return ""
        leaf = self._trees.leaf(pod.ref.namespace, named)
        return leaf if leaf and self._trees.by_root[root_of(leaf)].rules.charge_pods != "none" else ""
