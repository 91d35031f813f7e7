"""The number of the wire: which logs this build folds, and to which it appends.

A change of an event or of a decision that another build would not read alike has a new number. The genesis of each
generation names the number and the build, so a build that does not fold the number refuses the log before it writes
anything. An upgrade is a roll-over: the keeper begins a generation of this build's number with the states that this
build folded. No rules of earlier numbers are kept: a log is decided again by the build that wrote the log.
"""

from __future__ import annotations

from muster.events.envelope import UnknownEventError
from muster.events.system import Genesis

WIRE = 2
"""The number of this build, and the only one that this build appends to."""
FOLDS = frozenset({0, 1, WIRE})
"""The numbers that this build folds; 0: a build that named none."""


class UnknownWireError(UnknownEventError):
    """The log has another wire than this build folds; nothing of it is folded, and nothing is appended."""

    def __init__(self, genesis: Genesis) -> None:
        super().__init__(["genesis"])
        known = ", ".join(str(number) for number in sorted(FOLDS - {0}))
        self.args = (
            f"generation {genesis.generation} of log {genesis.log_id} has wire {genesis.wire}, and this build reads "
            f"wire {known}: run build {genesis.build or 'that wrote it'} with wire {genesis.wire}, which began this "
            "generation",
        )


def check_wire(genesis: Genesis) -> None:
    """Raises UnknownWireError for a generation that this build cannot fold."""
    if genesis.wire not in FOLDS:
        raise UnknownWireError(genesis)


def waits_for_roll_over(genesis: Genesis) -> str:
    """Why a service of this build does not append to a generation that it folds; empty where the service appends."""
    if genesis.wire == WIRE:
        return ""
    return (
        f"generation {genesis.generation} has wire {genesis.wire}, and this build appends to wire {WIRE}: the keeper "
        "begins the next generation from its states"
    )
