"""What stands idle for claims for age, summed from a log alone; shares no code with the stages that decide."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.events.base import Event
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.events.decisions import (
    EvictionOrdered,
    QuotaReleased,
    QuotaReserved,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.envelope import Stored

GPU = "nvidia.com/gpu"
MILLI = 1000


@dataclass
class Idled:
    """GPU-milliseconds by the claimant for whose claim for age they stood idle while another job could have used them.

    ``limits``: node of the tree -> GPUs. A waiting job could use what is free where it fits there alone.
    """

    limits: dict[str, int]
    now: int = 0
    waiting: dict[str, tuple[str, int]] = field(default_factory=dict)
    charged: dict[str, tuple[str, int]] = field(default_factory=dict)
    claims: dict[str, tuple[str, int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)

    def most(self) -> int:
        """For any one claimant."""
        return max(self.idle.values(), default=0)

    def hears(self, stored: Stored) -> None:
        self._pass(stored.commit.at)
        for event in stored.commit.events:
            self._fold(event)

    def _pass(self, at: int) -> None:
        for uid, (top, asked) in self.claims.items():
            free = min(asked, self._free(top))
            wanted = sum(gpus for leaf, gpus in self._others(uid) if _below(leaf, top) and self._fits(leaf, gpus))
            name = self.names[uid]
            self.idle[name] = self.idle.get(name, 0) + min(free, wanted) * (at - self.now)
        self.now = at

    def _others(self, uid: str) -> list[tuple[str, int]]:
        return [asks for each, asks in self.waiting.items() if each not in (uid, *self.charged)]

    def _free(self, path: str) -> int:
        return self.limits[path] - sum(gpus for leaf, gpus in self.charged.values() if _below(leaf, path))

    def _fits(self, leaf: str, gpus: int) -> bool:
        return all(gpus <= self._free(path) for path in self.limits if _below(leaf, path))

    def _fold(self, event: Event) -> None:
        match event:
            case WorkloadQueued():
                self.names[event.ref.uid] = event.ref.name
                self.waiting[event.ref.uid] = event.queue, _gpus(event.request)
            case WorkloadDequeued():
                self.waiting.pop(event.ref.uid, None)
            case QuotaReserved() | WorkloadAdopted():
                self.claims.pop(event.ref.uid, None)
                self.waiting.pop(event.ref.uid, None)
                self.charged[event.ref.uid] = event.queue, _gpus(event.request)
            case QuotaReleased():
                self.charged.pop(event.ref.uid, None)
            case ClaimOpened(kind="age"):
                self.claims[event.ref.uid] = event.top, _gpus(event.request)
            case ClaimOpened() | EvictionOrdered() | ClaimEnded():
                self.claims.pop(event.ref.uid, None)
            case _:
                pass


def _below(leaf: str, path: str) -> bool:
    return leaf == path or leaf.startswith(f"{path}/")


def _gpus(request: dict[str, int]) -> int:
    return request.get(GPU, 0) // MILLI
