"""The presenter's part for gangs of pods: Events, PodGroups, and the condition of pods without nodes."""

from __future__ import annotations

from muster.kube.discovery import served
from muster.model import api
from muster.model.api import STRATEGIC_PATCH, ApiResource
from muster.ports import ApiTransport
from muster.runtime.presenting.objectwriting import ObjectWriter
from muster.told.presentation import gangnotes
from muster.told.readmodel.readstate import ReadState


class GangWriter:
    """Writes the objects of a gang. The last write is remembered until the gang is gone."""

    def __init__(self, transport: ApiTransport, writer: ObjectWriter) -> None:
        self._transport = transport
        self._writer = writer
        self._told: dict[str, dict[str, str]] = {}
        """gang -> {what was written: what it said}"""
        self._home: ApiResource | None = None
        self._looked = False

    async def show(self, state: ReadState, key: str, now: float) -> bool:
        """One look at a gang; whether anything was written. ``now``: loop time."""
        wrote = False
        for pod_group in gangnotes.surplus(state, key):
            resource = gangnotes.resource_of(pod_group.ref)
            await self._writer.send("DELETE", resource, pod_group.ref.namespace, pod_group.ref.name)
            wrote = True
        if key not in state.gangs.gangs:
            self._told.pop(key, None)
            return wrote
        mine = self._told.setdefault(key, {})
        for wanted in gangnotes.pod_groups(state, key, await self._where()):
            if not self._writer.there.holds(wanted.key, wanted.shown, wanted.seen, now):
                await self._writer.upsert(wanted)
                wrote = True
        for gang_event in gangnotes.gang_events(state, key):
            version = f"{gang_event.count}:{gang_event.note.message}" if gang_event.count else "told"
            if mine.get(gang_event.note.name) != version:
                await self._writer.event(gang_event.note, gang_event.count)
                mine[gang_event.note.name] = version
                wrote = True
        for ref, text, patch in gangnotes.conditions(state, key):
            if mine.get(ref.uid) != text:
                await self._writer.send("PATCH", api.PODS, ref.namespace, ref.name, STRATEGIC_PATCH, patch, "status")
                mine[ref.uid] = text
                wrote = True
        return wrote

    async def _where(self) -> ApiResource | None:
        """The API group of new PodGroups: the group still served, if any."""
        if not self._looked:
            for resource in reversed(api.POD_GROUPS):
                if await served(self._transport, resource):
                    self._home = resource
                    break
            self._looked = True
        return self._home
