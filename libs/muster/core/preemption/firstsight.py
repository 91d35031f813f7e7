"""Work that ran before Muster saw the cluster: where any is charged, a tree without a rule does not reclaim."""

from __future__ import annotations

from msgspec import Struct, field

from muster.events.decisions import WorkloadAdopted
from muster.events.facts import WorkloadObserved
from muster.model.keys import root_of
from muster.model.quota import QuotaTree


class FirstSight(Struct):
    """What was found at the first sight of the cluster."""

    over: bool = False
    """All required kinds have been listed once: work found running later started without an admission."""
    found: dict[str, None] = field(default_factory=dict)
    """uids of workloads without an intent of Muster, found at first sight of the cluster"""
    foreign: dict[str, None] = field(default_factory=dict)
    """Roots of trees with charged work that ran without an admission at first sight of the cluster."""

    def observed(self, event: WorkloadObserved) -> None:
        if not self.over and not event.workload.intent:
            self.found[event.workload.ref.uid] = None

    def synced(self, *, everything: bool) -> None:
        """A kind has been listed. ``everything``: no required kind is missing."""
        self.over = self.over or everything

    def adopted(self, event: WorkloadAdopted) -> None:
        if event.reason == "already_running" and event.ref.uid in self.found:
            self.foreign[root_of(event.queue)] = None

    def reclaims(self, tree: QuotaTree | None) -> bool:
        """Whether evictions are on in a tree: by its rules; without a rule, unless foreign work ran at first sight."""
        if tree is None or tree.rules.reclaim == "disabled":
            return False
        return tree.rules.reclaim == "enabled" or tree.root not in self.foreign
