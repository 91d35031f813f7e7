"""What may go wrong between a client and the API server, drawn from a seeded source.

`transport.SimTransport` asks here before each request and each line. The same seed and the same requests give the
same faults. `heal` ends them all, for the second half of a test: what was broken must then come right.
"""

from __future__ import annotations

import random
from typing import Literal

from msgspec import Struct


class FaultRates(Struct, frozen=True, kw_only=True):
    """Probabilities, per request or per line of a watch, and how long what they start may last."""

    lose_request: float = 0.0
    """The request never arrives; the client gets no answer."""
    lose_response: float = 0.0
    """The request is carried out; the client gets no answer."""
    outage: float = 0.0
    """From this request on all requests fail for a while; all watches break."""
    outage_s: float = 5.0
    """Longest outage."""
    delay: float = 0.0
    delay_s: float = 1.0
    """Longest delay of an answer."""
    throttle: float = 0.0
    """429 with a Retry-After."""
    retry_after_s: float = 1.0
    error: float = 0.0
    """A status of the 500s, without carrying the request out."""
    cut_watch: float = 0.0
    """The stream breaks off inside this line, which is lost."""
    end_watch: float = 0.0
    """The server ends the stream cleanly before this line."""
    expire_watch: float = 0.0
    """The stream ends with an error line 410 before this line."""
    repeat_line: float = 0.0
    """The line comes twice."""
    swap_line: float = 0.0
    """The line comes after its successor. No real server does that: for readers that must not rely on order."""


class RequestFault(Struct, frozen=True, kw_only=True):
    """What happens to one request."""

    delay_s: float = 0.0
    lose_request: bool = False
    lose_response: bool = False
    outage_s: float = 0.0
    status: int = 0
    """Answer with this instead of carrying the request out."""
    retry_after_s: float | None = None


LineFault = Literal["", "cut", "end", "expire", "repeat", "swap"]

ERRORS = (500, 503, 504)
_NO_FAULT = RequestFault()


class FaultDraw:
    """Draws faults at the given rates."""

    def __init__(self, rates: FaultRates, seed: int = 0) -> None:
        self._rates = rates
        self._chance = random.Random(f"faults-{seed}")  # noqa: S311 -- repeatable on purpose
        self._healed = False

    def heal(self) -> None:
        """No faults from now on."""
        self._healed = True

    def request(self) -> RequestFault:
        """What happens to the next request."""
        if self._healed:
            return _NO_FAULT
        rates, draw = self._rates, self._chance.random
        if draw() < rates.outage:
            return RequestFault(outage_s=draw() * rates.outage_s)
        delay_s = draw() * rates.delay_s if draw() < rates.delay else 0.0
        if draw() < rates.lose_request:
            return RequestFault(delay_s=delay_s, lose_request=True)
        if draw() < rates.throttle:
            return RequestFault(delay_s=delay_s, status=429, retry_after_s=rates.retry_after_s)
        if draw() < rates.error:
            return RequestFault(delay_s=delay_s, status=self._chance.choice(ERRORS))
        return RequestFault(delay_s=delay_s, lose_response=draw() < rates.lose_response)

    def line(self) -> LineFault:
        """What happens to the next line of a watch."""
        if self._healed:
            return ""
        rates, draw = self._rates, self._chance.random()
        chances: tuple[tuple[LineFault, float], ...] = (
            ("cut", rates.cut_watch),
            ("end", rates.end_watch),
            ("expire", rates.expire_watch),
            ("repeat", rates.repeat_line),
            ("swap", rates.swap_line),
        )
        for fault, rate in chances:
            if draw < rate:
                return fault
            draw -= rate
        return ""
