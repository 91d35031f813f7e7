"""The gang admitter: admits a workload whose quota is reserved. Placement on nodes is not part of it yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec import Struct, field

from muster.core.stage import Arm, StageState, Violation, first
from muster.events.base import Cause, Decision, Event
from muster.events.decisions import GangAdmitted, QuotaReleased, QuotaReserved
from muster.model.keys import Position, Ref


class Reservation(Struct):
    """Reserved quota that has not become an admission yet."""

    ref: Ref
    attempt: int
    queue: str
    generation: int
    cause: Cause


class AdmitterState(StageState):
    """Reservations to be admitted, by workload uid."""

    reservations: dict[str, Reservation] = field(default_factory=dict)
    admitted: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of what is admitted and still charged"""


class GangAdmitter:
    """The stage ``gang_admitter``."""

    name: ClassVar[str] = "gang_admitter"

    def initial(self) -> AdmitterState:
        return AdmitterState()

    def arms(self) -> Mapping[type[Event], Arm]:
        return {QuotaReserved: self._reserved, QuotaReleased: self._released, GangAdmitted: self._admitted}

    def _reserved(self, state: AdmitterState, at: Position, event: QuotaReserved) -> None:
        state.reservations[event.ref.uid] = Reservation(
            event.ref, event.attempt, event.queue, event.generation, Cause(at.seq, at.item)
        )

    def _released(self, state: AdmitterState, _at: Position, event: QuotaReleased) -> None:
        state.reservations.pop(event.ref.uid, None)
        state.admitted.pop(event.ref.uid, None)

    def _admitted(self, state: AdmitterState, _at: Position, event: GangAdmitted) -> None:
        reservation = state.reservations.get(event.ref.uid)
        if reservation is not None and reservation.attempt == event.attempt:
            del state.reservations[event.ref.uid]
            state.admitted[event.ref.uid] = event.attempt

    def decide(self, state: AdmitterState) -> list[Decision]:
        """Admit every reservation, in the order they were made."""
        return first(self._admissions(state)) if state.admitting else []

    @staticmethod
    def _admissions(state: AdmitterState) -> Iterator[Decision]:
        for reservation in state.reservations.values():
            yield GangAdmitted(
                cause=reservation.cause,
                ref=reservation.ref,
                attempt=reservation.attempt,
                queue=reservation.queue,
                generation=reservation.generation,
            )

    def next_deadline(self, state: AdmitterState) -> int | None:
        return None

    def check(self, state: AdmitterState) -> list[Violation]:
        """I9: nothing is both waiting for its admission and admitted."""
        both = sorted(state.reservations.keys() & state.admitted.keys())
        return [Violation("I9", f"reserved again while admitted: {both[:5]}")] if both else []
