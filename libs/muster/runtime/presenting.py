"""The presenter: keeps QueueUnits, Queues, the tree's status and Events as the log says they should be.

It follows the log like a stage and appends nothing. What it writes is compared with what was observed, coalesced per
object and limited in rate, and never waits in the way of a decision: profile ``lean`` runs without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

import msgspec

from muster.core.actuation.answers import message_of
from muster.core.objects.meta import digest, rfc3339
from muster.core.presentation import desired, kaigroups, kaiqueues, queues, scalegates
from muster.core.presentation.desired import DesiredObject, EventNote
from muster.core.quota.tree import ROOT
from muster.core.reading.kubequeue import QUEUE_NAMESPACE
from muster.core.readmodel.model import ReadModel
from muster.core.readmodel.state import ReadState
from muster.core.readmodel.touched import Touched
from muster.core.workloads.registry import KINDS
from muster.kube.discovery import has_status_subresource
from muster.model import api
from muster.model.api import JSON, JSON_PATCH, MERGE_PATCH, ApiResource
from muster.ports import ApiResponse, ApiStatusError, ApiTransport, ApiUnreachableError, Clock, Lease, Log, Snapshots
from muster.runtime.follower import Follower
from muster.runtime.gangpresenting import GangWriter
from muster.runtime.hooks import Hooks
from muster.runtime.leasing import KeptLease
from muster.runtime.scalegating import GateSignals

SETTLE_S: Mapping[str, float] = {
    "unit": 0.3,
    "queue": 1.0,
    "tree": 2.0,
    "trouble": 0.1,
    "gang": 0.5,
    "kai": 0.5,
    "scale": 0.5,
}
"""How long a change waits for the next one before it is written."""

AGAIN_S: Mapping[str, float] = {
    "unit": 3.0,
    "queue": 2.0,
    "tree": 5.0,
    "trouble": 1.0,
    "gang": 2.0,
    "kai": 2.0,
    "scale": 2.0,
}
"""How long after a write the same object is left alone."""

PASSING_S = 3.0
"""How long something that is about to change is given to do so, before it is written after all."""

RATE_PER_S = 50.0
"""Writes per second, all objects together; a burst of two seconds' worth is let through."""

MAX_IN_FLIGHT = 8
RETRY_S = 5.0
FORBIDDEN_S = 60.0
"""After the API server forbids a write: permissions do not come back by asking often."""
REPORTER = "muster"


class Presenter(Follower[ReadState]):
    """Writes what users see. Needs the lease of ``presenter``/0, so that two do not write the same twice."""

    stage: ReadModel
    name: ClassVar[str] = "presenter"

    def __init__(
        self,
        transport: ApiTransport,
        *,
        log: Log,
        lease: Lease,
        snapshots: Snapshots | None,
        clock: Clock,
        hooks: Hooks | None = None,
        rate_per_s: float = RATE_PER_S,
    ) -> None:
        self._touched = Touched()
        self._cleared: dict[str, None] = {}
        """keys of refused shapes whose first refusal has room again"""
        super().__init__(ReadModel(self._touched), log=log, snapshots=snapshots, clock=clock, hooks=hooks)
        self._transport = transport
        self._lease = KeptLease(lease, "the presenter", taken=self.wake)
        self._due: dict[str, float] = {}
        """key of an object to look at -> loop time from when on"""
        self._told: dict[str, str] = {}
        """key -> fingerprint written last, until an observation shows it"""
        self._passing: dict[str, float] = {}
        """key of what is about to change -> loop time since when"""
        self._busy: set[str] = set()
        self._rate = rate_per_s
        self._tokens = 2 * rate_per_s
        self._refilled = 0.0
        self._split_status: dict[str, bool] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._looked_at_all = False
        self._signals = GateSignals(transport, self._send, self.hooks)
        self._gangs = GangWriter(transport, self._send, self._event, self._upsert)
        self.writes: dict[str, int] = {}
        """verb and resource -> requests made"""

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        tasks.create_task(self._lease.keep_trying())

    async def stop(self) -> None:
        """Give up the lease."""
        await self._lease.release()

    async def keep_snapshot(self) -> None:
        """The publisher's process keeps those of the read model."""

    def deadline_s(self) -> float | None:
        if not self._lease.held or not self._due or len(self._busy) >= MAX_IN_FLIGHT:
            return None
        wait = min(self._due.values()) - asyncio.get_running_loop().time()
        return max(0.02, wait)

    async def act(self) -> None:
        """Note what the log has touched; write what is due."""
        now = asyncio.get_running_loop().time()
        if not (self._lease.held and self.caught_up and self.state.synced):
            return
        if not self._looked_at_all:
            self._looked_at_all = True
            self._touch_all(now)
        self._note_touched(now)
        self._refill(now)
        for key in [key for key, at in self._due.items() if at <= now]:
            if len(self._busy) >= MAX_IN_FLIGHT or self._tokens < 1:
                break
            if key not in self._busy:
                self._start(key)

    def _touch_all(self, now: float) -> None:
        """Compare everything once: what was shown before this process began is known from observations."""
        state = self.state
        for uid in state.queues.workloads:
            self._touch(f"unit/{uid}", now)
        for path in state.queues.ledger.nodes:
            self._touch(f"queue/{path}", now)
        for uid in state.troubles:
            self._touch(f"trouble/{uid}", now)
        for key in state.gangs.gangs:
            self._touch(f"gang/{key}", now)
        for uid in state.kai_queues:
            self._touch(f"kai/{uid}", now)
        for owner in dict.fromkeys(each.owner for each in state.scaled.values()):
            self._touch(f"scale/{owner}", now)
        self._touch("tree/", now)

    def _note_touched(self, now: float) -> None:
        found = self._touched
        for key in found.gone:
            self._told.pop(key, None)
            self._passing.pop(key, None)
        found.gone.clear()
        found.jobs.update(dict.fromkeys(desired.refused_elsewhere(self.state, self._cleared)))
        for uid in found.jobs:
            if scalegates.due(self.state, uid):
                self._touch(f"scale/{uid}", now)
        for prefix, touched in (
            ("unit", found.jobs),
            ("queue", found.queues),
            ("trouble", found.troubles),
            ("gang", found.gangs),
        ):
            for name in touched:
                self._touch(f"{prefix}/{name}", now)
            touched.clear()
        if found.tree:
            found.tree = False
            self._touch("tree/", now)
            for uid in self.state.kai_queues:
                self._touch(f"kai/{uid}", now)

    def _touch(self, key: str, now: float) -> None:
        """Look at it when it has settled; what was about to change may have done so, and is looked at no later."""
        at = now + SETTLE_S[key.partition("/")[0]]
        due = self._due.setdefault(key, at)
        if key in self._passing:
            self._due[key] = min(at, due)

    def _refill(self, now: float) -> None:
        self._tokens = min(2 * self._rate, self._tokens + (now - self._refilled) * self._rate)
        self._refilled = now

    def _start(self, key: str) -> None:
        del self._due[key]
        kind, _, name = key.partition("/")
        look = {
            "unit": self._unit,
            "queue": self._queue,
            "tree": self._tree,
            "trouble": self._trouble,
            "gang": self._gang,
            "kai": self._kai,
            "scale": self._scale,
        }[kind]
        self._busy.add(key)
        assert self._tasks is not None
        self._tasks.create_task(self._guarded(key, look, name))

    async def _guarded(self, key: str, look: Callable[[str], Awaitable[bool]], name: str) -> None:
        """One look at one object; whatever the API server says, the object is looked at again later."""
        try:
            wrote = await look(name)
        except (ApiUnreachableError, ApiStatusError) as err:
            forbidden = isinstance(err, ApiStatusError) and err.status in (401, 403)
            self.hooks.note("warning" if forbidden else "debug", "presentation_retried", object=key, message=str(err))
            wait_s = getattr(err, "retry_after_s", None) or (FORBIDDEN_S if forbidden else RETRY_S)
            self._due[key] = asyncio.get_running_loop().time() + wait_s
        else:
            if wrote and key in self._due:
                later = asyncio.get_running_loop().time() + AGAIN_S[key.partition("/")[0]]
                self._due[key] = max(self._due[key], later)
        finally:
            self._busy.discard(key)
            self.wake()

    # --- what is written --------------------------------------------------------------------------------------

    async def _unit(self, uid: str) -> bool:
        await self._note_once(f"over/{uid}", desired.overuse_event(self.state, uid))
        await self._note_once(f"alarm/{uid}", desired.alarm_event(self.state, uid))
        await self._note_once(f"admitted/{uid}", desired.admitted_event(self.state, uid))
        await self._kai_group(uid)
        wanted = desired.queue_unit(self.state, uid)
        since = self._passing.pop(f"unit/{uid}", None)
        if wanted is None:
            self._told.pop(f"unit/{uid}", None)
            return False
        if self._told.get(wanted.key) == wanted.shown:
            return False
        if wanted.passing:
            now = asyncio.get_running_loop().time()
            since = now if since is None else since
            if now < since + PASSING_S:
                self._passing[wanted.key] = since
                self._due[wanted.key] = since + PASSING_S
                return False
        note = desired.job_event(self.state, uid)
        stamp = desired.queued_stamp(self.state, uid)
        if note is not None:
            await self._event(note)
        await self._note_once(f"left/{uid}", desired.leaving_event(self.state, uid))
        if stamp is not None:
            await self._send(
                "PATCH", KINDS[stamp[0].kind].resource, stamp[0].namespace, stamp[0].name, JSON_PATCH, stamp[1]
            )
        await self._upsert(wanted)
        return True

    async def _kai_group(self, uid: str) -> None:
        """Show a workload of a KAI queue as a PodGroup, where the server has those."""
        wanted = kaigroups.pod_group(self.state, uid)
        if wanted is None:
            self._told.pop(f"kaigroup/{uid}", None)
        elif self._told.get(wanted.key) != wanted.shown:
            await self._upsert(wanted)

    async def _note_once(self, key: str, note: EventNote | None) -> None:
        """Write an Event unless it was written last under that key, ``WHAT/UID``."""
        if key.partition("/")[2] not in self.state.queues.workloads:
            self._told.pop(key, None)
        elif note is not None and self._told.get(key) != note.name:
            await self._event(note)
            self._told[key] = note.name

    async def _queue(self, path: str) -> bool:
        for ref in queues.surplus_queues(self.state):
            await self._send("DELETE", api.QUEUES, ref.namespace, ref.name)
        wanted = queues.queue_object(self.state, path)
        if wanted is None or self._told.get(wanted.key) == wanted.shown:
            return False
        await self._upsert(wanted)
        return True

    async def _tree(self, _name: str) -> bool:
        tree, status = self.state.queues.ledger.trees.get(ROOT), queues.tree_status(self.state)
        if tree is None or status is None:
            return False
        shown = digest(status)
        if self._told.get("tree/") == shown:
            return False
        ref = tree.ref
        split = await self._has_split_status(api.QUOTA_TREES)
        answer = await self._send(
            "PATCH",
            api.QUOTA_TREES,
            ref.namespace,
            ref.name,
            MERGE_PATCH,
            msgspec.json.encode({"status": status}),
            subresource="status" if split else "",
        )
        if answer.ok:
            self._told["tree/"] = shown
        return True

    async def _kai(self, uid: str) -> bool:
        queue = self.state.kai_queues.get(uid)
        wanted = kaiqueues.kai_status(self.state, queue) if queue is not None else None
        if wanted is None or self._told.get(f"kai/{uid}") == wanted.shown:
            return False
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": wanted.body})
        answer = await self._send("PATCH", api.KAI_QUEUES, "", wanted.ref.name, MERGE_PATCH, body, "status")
        if answer.ok:
            self._told[f"kai/{uid}"] = wanted.shown
        return True

    async def _trouble(self, uid: str) -> bool:
        await self._kai_group(uid)
        note = desired.trouble_event(self.state, uid)
        if note is None or self._told.get(f"trouble/{uid}") == note.name:
            return False
        await self._event(note)
        self._told[f"trouble/{uid}"] = note.name
        return True

    async def _gang(self, key: str) -> bool:
        return await self._gangs.show(self.state, key, self._told)

    async def _scale(self, owner: str) -> bool:
        now = asyncio.get_running_loop().time()
        again = await self._signals.show(self.state, owner, now)
        if again is not None:
            self._due[f"scale/{owner}"] = asyncio.get_running_loop().time() + again
        return again is None

    async def _upsert(self, wanted: DesiredObject) -> None:
        split = await self._has_split_status(wanted.resource)
        whole = {"metadata": wanted.metadata, "spec": wanted.spec, "status": wanted.status}
        if not wanted.exists:
            body = {
                "apiVersion": wanted.resource.api_version,
                "kind": wanted.resource.kind,
                **whole,
                "metadata": {"name": wanted.name, "namespace": wanted.namespace, **wanted.metadata},
            }
            answer = await self._create(wanted, body)
            if answer.status == 404:
                return
            if answer.status != 409 and not split:
                self._note_told(wanted, answer)
                return
        answer = await self._send(
            "PATCH", wanted.resource, wanted.namespace, wanted.name, MERGE_PATCH, msgspec.json.encode(whole)
        )
        if answer.ok and split:
            answer = await self._send(
                "PATCH",
                wanted.resource,
                wanted.namespace,
                wanted.name,
                MERGE_PATCH,
                msgspec.json.encode({"status": wanted.status}),
                subresource="status",
            )
        self._note_told(wanted, answer)

    def _note_told(self, wanted: DesiredObject, answer: ApiResponse) -> None:
        if answer.ok:
            self._told[wanted.key] = wanted.shown
        else:
            self.hooks.note(
                "warning",
                "presentation_refused",
                object=wanted.key,
                status=answer.status,
                body=answer.body[:300].decode(errors="replace"),
            )

    async def _create(self, wanted: DesiredObject, body: dict[str, Any]) -> ApiResponse:
        encoded = msgspec.json.encode(body)
        answer = await self._send("POST", wanted.resource, wanted.namespace, "", JSON, encoded)
        if answer.status == 404 and wanted.namespace == QUEUE_NAMESPACE:
            namespace = msgspec.json.encode(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": QUEUE_NAMESPACE}}
            )
            await self._send("POST", api.NAMESPACES, "", "", JSON, namespace)
            answer = await self._send("POST", wanted.resource, wanted.namespace, "", JSON, encoded)
        return answer

    async def _event(self, note: EventNote, count: int = 0) -> None:
        """``count``: how often it has happened, of one that is kept up to date."""
        stamp = rfc3339(note.at // 1000 * 1000)
        namespace = note.ref.namespace or "default"
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": note.name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": note.api_version,
                "kind": note.ref.kind,
                "name": note.ref.name,
                "namespace": note.ref.namespace,
                "uid": note.ref.uid,
            },
            "type": note.type,
            "reason": note.reason,
            "message": note.message[:1024],
            "source": {"component": REPORTER},
            "reportingComponent": REPORTER,
            "reportingInstance": REPORTER,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": max(count, 1),
        }
        answer = await self._send("POST", api.EVENTS, namespace, "", JSON, msgspec.json.encode(body))
        if count and answer.status == 409:
            now = {key: body[key] for key in ("message", "reason", "lastTimestamp", "count")}
            await self._send("PATCH", api.EVENTS, namespace, note.name, MERGE_PATCH, msgspec.json.encode(now))

    async def _has_split_status(self, resource: ApiResource) -> bool:
        key = str(resource)
        if key not in self._split_status:
            self._split_status[key] = await has_status_subresource(self._transport, resource)
        return self._split_status[key]

    async def _send(
        self,
        method: str,
        resource: ApiResource,
        namespace: str,
        name: str,
        content_type: str = JSON,
        body: bytes | None = None,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
    ) -> ApiResponse:
        self._tokens -= 1
        verb = f"{method} {resource.plural}"
        self.writes[verb] = self.writes.get(verb, 0) + 1
        answer = await self._transport.request(
            method, resource.path(namespace, name, subresource), query=query, body=body, content_type=content_type
        )
        if answer.status in (401, 403, 429) or answer.status >= 500:
            raise ApiStatusError(answer.status, message_of(answer.body), answer.retry_after_s)
        return answer
