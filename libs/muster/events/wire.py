"""The number of the wire: which logs this build folds, follows and appends to.

A change of an event or of a decision that another build would not read alike has a new number. The genesis of each
generation names the number and the build, so a build that reads another number refuses the log before it writes
anything. No rules of earlier numbers are kept: a log is decided again by the build that wrote the log.
"""

from __future__ import annotations

from muster.events.envelope import UnknownEventError
from muster.events.system import Genesis

WIRE = 1
"""The number of this build."""
READS = frozenset({0, WIRE})
"""The numbers that this build folds and appends to; 0: a build that named none."""


class UnknownWireError(UnknownEventError):
    """The log has another wire than this build reads; nothing of it is folded, and nothing is appended."""

    def __init__(self, genesis: Genesis) -> None:
        super().__init__(["genesis"])
        known = " and ".join(str(number) for number in sorted(READS - {0}))
        self.args = (
            f"generation {genesis.generation} of log {genesis.log_id} has wire {genesis.wire}, and this build reads "
            f"wire {known}: run build {genesis.build or 'that wrote it'}, which began this generation",
        )


def check_wire(genesis: Genesis) -> None:
    """Raises UnknownWireError for a generation that this build cannot read."""
    if genesis.wire not in READS:
        raise UnknownWireError(genesis)
