"""What it costs to stop a job: the time until it has stopped, the work it loses, the time until it works again."""

from __future__ import annotations

import hashlib

from msgspec import Struct

ALL_OF_THEM = 1000


class Stops(Struct, frozen=True):
    """Times in ms. Without a checkpoint a stopped job begins again from nothing."""

    checkpoint: int | None = None
    """Between two checkpoints of a job that makes any; 0: at every moment, so that nothing is lost."""
    checkpointing: int = ALL_OF_THEM
    """How many jobs of a thousand make checkpoints, drawn by their names."""
    stopping: int = 0
    """How long an evicted job keeps its resources."""
    restart: int = 0
    """How long a job that was stopped takes to work again once it is admitted."""

    def interval(self, uid: str) -> int | None:
        """Between two checkpoints of this job; None where it makes none."""
        if self.checkpoint is None or self.checkpointing >= ALL_OF_THEM:
            return self.checkpoint
        number = int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=4).digest(), "big")
        return self.checkpoint if number % ALL_OF_THEM < self.checkpointing else None

    def kept(self, uid: str, ran: int, idle: int = 0) -> int:
        """How much of a run of ``ran`` ms is never done again after a stop; the first ``idle`` of it were no work."""
        interval, worked = self.interval(uid), max(ran - idle, 0)
        if interval is None:
            return 0
        return worked // interval * interval if interval else worked


FREE = Stops(checkpoint=0)
"""A job that is stopped loses nothing, and is back at once."""
COSTLY = Stops()
"""A job that is stopped begins again from nothing."""
