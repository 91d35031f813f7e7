"""The presenter's part for ``scaleGate`` of Ray clusters: writes our entries where the served API can take them."""

from __future__ import annotations

from msgspec import Struct

from muster.core.actuation.answers import message_of
from muster.core.presentation import scalegates
from muster.core.readmodel.state import ReadState
from muster.kube.scalegates import ScaleGates, scale_gates
from muster.model import api
from muster.model.api import APPLY_PATCH
from muster.model.keys import Ref
from muster.ports import ApiStatusError, ApiTransport, ApiUnreachableError
from muster.runtime.gangpresenting import Sender
from muster.runtime.hooks import Hooks, Level

AGAIN_S = 5.0
"""How long after a write that failed, or that somebody took away, it is made again; each time twice as long."""
LONGEST_S = 600.0
SERVED_S = 1_800.0
"""How long it is believed what the API server serves."""


class _Paced(Struct):
    """The last writes to one cluster."""

    wanted: tuple[str, ...]
    until: float = 0.0
    """Loop time before which it is not written to again."""
    times: int = 0
    """How often in a row the same was written, or could not be."""
    failed: bool = False


class GateSignals:
    """Writes what is due on the clusters of one owner. What stands on them is known from observations."""

    def __init__(self, transport: ApiTransport, send: Sender, hooks: Hooks) -> None:
        self._transport = transport
        self._send = send
        self._hooks = hooks
        self._served: ScaleGates | None = None
        self._served_until = 0.0
        self._paced: dict[str, _Paced] = {}
        """uid of a cluster -> its last writes"""
        self.failures = 0
        """Writes that were refused or not answered."""

    async def show(self, state: ReadState, owner: str, now: float) -> float | None:
        """One look; after how many seconds another one is worth it though nothing changes, None for never."""
        waits = []
        for ref, wanted in scalegates.due(state, owner):
            wait = await self._look(ref, wanted, now)
            if wait is not None:
                waits.append(wait)
        if len(self._paced) > 2 * len(state.scaled) + 100:
            self._paced = {uid: paced for uid, paced in self._paced.items() if uid in state.scaled}
        return min(waits, default=None)

    async def _look(self, ref: Ref, wanted: tuple[str, ...], now: float) -> float | None:
        paced = self._paced.get(ref.uid)
        if paced is not None and (paced.failed or paced.wanted == wanted) and now < paced.until:
            return paced.until - now
        try:
            trouble = await self._write(ref, wanted, now)
        except (ApiStatusError, ApiUnreachableError) as err:
            trouble = str(err) or "no answer"
        if not trouble:
            return None
        self.failures += 1
        self._served_until = 0.0  # Another definition may be served than was.
        paced = self._pace(ref, wanted, now, failed=True)
        level: Level = "warning" if paced.times == 2 else "debug"  # The first may be a race.
        self._hooks.note(level, "scale_gate_not_written", object=ref.key, message=trouble, times=paced.times)
        return paced.until - now

    async def _write(self, ref: Ref, wanted: tuple[str, ...], now: float) -> str:
        """Empty where nothing went wrong, written or not; else what did."""
        if self._served is None or now >= self._served_until:
            self._served = await scale_gates(self._transport)
            self._served_until = now + SERVED_S
        if self._served.missing:
            return ""
        found = await self._send("GET", api.RAYCLUSTERS, ref.namespace, ref.name)
        if found.status == 404:
            return ""
        patch = scalegates.patch(ref, wanted, self._served.told, found.body) if found.ok else None
        if patch is None:
            return "" if found.ok else f"HTTP {found.status}: {message_of(found.body)}"
        query = {"fieldManager": scalegates.MANAGER, "force": "false"}
        answer = await self._send("PATCH", api.RAYCLUSTERS, ref.namespace, ref.name, APPLY_PATCH, patch, query=query)
        if not answer.ok:
            return f"HTTP {answer.status}: {message_of(answer.body)}"
        self._pace(ref, wanted, now, failed=False)
        return ""

    def _pace(self, ref: Ref, wanted: tuple[str, ...], now: float, *, failed: bool) -> _Paced:
        """Note a write; the same again waits longer each time, until it has rested for a minute beyond that."""
        before = self._paced.get(ref.uid)
        same = before is not None and (before.failed or before.wanted == wanted) and now < before.until + 60.0
        times = before.times + 1 if before is not None and same else 1
        wait = min(AGAIN_S * 2 ** min(times - 1, 10), LONGEST_S)
        self._paced[ref.uid] = paced = _Paced(wanted, now + wait, times, failed)
        return paced
