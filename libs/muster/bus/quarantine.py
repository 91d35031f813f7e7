"""Unreadable input, kept with the reason, so that nothing is lost by passing over the input."""

from __future__ import annotations

from collections.abc import Mapping

from muster.bus.errors import ApiError, BusError, UnansweredError
from muster.bus.jetstream import GrowingPause, JetStream
from muster.events import subjects

CAUSE = "muster-cause"
TRIES = 5


class Quarantine:
    """The quarantine stream of a cell."""

    def __init__(self, js: JetStream, cell: str) -> None:
        self._js = js
        self._cell = cell

    async def put(self, stage: str, body: bytes, cause: str, headers: Mapping[str, str] | None = None) -> int:
        """Keep ``body`` unchanged, with a sentence on the fault; returns the sequence in the quarantine stream.

        A lost answer may store the body twice. Raises BusError when the body cannot be stored.
        """
        sent = {**(headers or {}), CAUSE: " ".join(cause.split())}
        backoff = GrowingPause()
        trouble: Exception | None = None
        for _ in range(TRIES):
            try:
                ack = await self._js.publish(subjects.quarantine_subject(self._cell, stage), body, sent)
            except UnansweredError as err:
                trouble = err
            else:
                if ack is not None and ack.error is None:
                    return ack.seq
                refusal: ApiError | None = ack.refusal(f"cannot quarantine input of {stage}") if ack else None
                trouble = refusal or trouble
            await backoff.pause()
        stream = subjects.quarantine_stream(self._cell)
        raise BusError(
            f"cannot keep unreadable input of {stage} in {stream}: {trouble or 'no such stream'}"
        ) from trouble
