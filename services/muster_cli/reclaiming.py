"""The trees with reclaim off, the reason, and the command that enables reclaim."""

from __future__ import annotations

from msgspec import Struct

from muster.core.preemption.preemptor import Preemptor
from muster.core.preemption.preemptorstate import PreemptorState
from muster.told.wording.queuewords import reclaim_off
from muster_cli.folding import present_state
from muster_cli.reading import LogReading


class ReclaimOff(Struct, frozen=True):
    """A tree in which no queue reclaims quota. ``declared``: by the tree itself; else jobs ran at first sight."""

    tree: str
    """namespace/name"""
    declared: bool

    @property
    def said(self) -> tuple[str, str]:
        """The sentence about the tree, and the command that enables reclaim."""
        return reclaim_off(self.tree, declared=self.declared)


async def reclaim_offs(reading: LogReading) -> list[ReclaimOff]:
    """The trees in which reclaim is off, as of now."""
    return off_in(await present_state(reading, Preemptor()))


async def notes_on_reclaim(reading: LogReading) -> list[str]:
    """The trees with reclaim off, and how to enable reclaim, one sentence for each."""
    return ["; ".join((told[0].upper() + told[1:], fix)) for told, fix in (e.said for e in await reclaim_offs(reading))]


def off_in(state: PreemptorState) -> list[ReclaimOff]:
    """The trees in which reclaim is off."""
    trees = state.queues.ledger.trees.values()
    return [
        ReclaimOff(tree.ref.key, tree.rules.reclaim == "disabled") for tree in trees if not state.reclaims(tree.root)
    ]
