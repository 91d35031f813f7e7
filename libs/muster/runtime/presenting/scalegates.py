"""The presenter's part for ``scaleGate`` of Ray clusters: writes our entries where the served API can take them."""

from __future__ import annotations

from typing import NamedTuple

from muster.kube.scalegates import lacking
from muster.model import api
from muster.model.api import APPLY_PATCH
from muster.model.keys import Ref
from muster.ports import ApiTransport
from muster.runtime.presenting.objectwriting import ObjectWriter
from muster.told.presentation import scalegates
from muster.told.readmodel.readstate import ReadState

AGAIN_S = 60.0
"""How long after a write the same is written again, where it was refused or another client removed it."""
SERVED_S = 1_800.0
"""How long it is believed what the API server serves."""


class _Write(NamedTuple):
    """The last one to a cluster."""

    groups: tuple[str, ...]
    at: float


class GateSignals:
    """Writes due entries on the clusters of an owner. The present entries are known from observations."""

    def __init__(self, transport: ApiTransport, writer: ObjectWriter) -> None:
        self._transport = transport
        self._writer = writer
        self._lacking: tuple[str, ...] = ()
        self._looked_at = -SERVED_S
        self._written: dict[str, _Write] = {}
        """uid of a cluster -> what was written"""

    async def show(self, state: ReadState, owner: str, now: float) -> float | None:
        """A look; the seconds until another look is worthwhile without a change, None for never.

        Raises ApiStatusError and ApiUnreachableError when a later try may succeed.
        """
        due = scalegates.entries_due(state, owner)
        if due and now >= self._looked_at + SERVED_S:
            self._lacking, self._looked_at = await lacking(self._transport), now
        if not due or self._lacking:
            return None
        self._written = {uid: write for uid, write in self._written.items() if now < write.at + AGAIN_S}
        for ref, groups in due:
            written = self._written.get(ref.uid)
            if written is None or written.groups != groups:
                self._written[ref.uid] = _Write(groups, now)
                await self._write(ref, groups)
        return min(self._written[ref.uid].at for ref, _ in due) + AGAIN_S - now

    async def _write(self, ref: Ref, groups: tuple[str, ...]) -> None:
        current = await self._writer.send("GET", api.RAYCLUSTERS, ref.namespace, ref.name)
        patch = scalegates.patch(ref, groups, current.body) if current.ok else None
        if patch is not None:
            query = {"fieldManager": scalegates.MANAGER, "force": "false"}
            answer = await self._writer.send(
                "PATCH", api.RAYCLUSTERS, ref.namespace, ref.name, APPLY_PATCH, patch, query=query
            )
            self._writer.took(f"scale/{ref.uid}", answer)
