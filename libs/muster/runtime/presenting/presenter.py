"""The presenter: keeps QueueUnits, Queues, the tree's status and Events as the log requires.

The presenter follows the log like a stage and appends nothing. Writes are compared with the observed objects,
coalesced per object and limited in rate, and never delay a decision: profile ``lean`` runs without the presenter. This
module decides which writes are due, and when; :mod:`muster.runtime.presenting.objectwriting` makes the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from muster.core.objects.meta import digest
from muster.core.workloads.registry import resource_of
from muster.model import api
from muster.model.api import JSON_PATCH, MERGE_PATCH, ApiResource
from muster.model.keys import Ref
from muster.model.quota import ROOT
from muster.ports import ApiResponse, ApiStatusError, ApiTransport, ApiUnreachableError, Clock, Lease, Snapshots
from muster.runtime.presenting.gangs import GangWriter
from muster.runtime.presenting.objectwriting import RATE_PER_S, ObjectWriter
from muster.runtime.presenting.scalegates import GateSignals
from muster.runtime.presenting.there import UNSEEN_S, There
from muster.runtime.runners.follower import Follower
from muster.runtime.runners.hooks import Hooks
from muster.runtime.runners.leasing import KeptLease
from muster.runtime.runners.shared import SharedLog
from muster.told.presentation import desired, kaigroups, queuestatus, scalegates
from muster.told.presentation.desired import Body, DesiredObject, EventNote, ObjectVersion
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.readmodel.touched import Touched

SETTLE_S: Mapping[str, float] = {
    "unit": 0.3,
    "queue": 1.0,
    "surplus": 1.0,
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
    "surplus": 2.0,
    "tree": 5.0,
    "trouble": 1.0,
    "gang": 2.0,
    "kai": 2.0,
    "scale": 2.0,
}
"""How long after a write the same object is left alone."""

PASSING_S = 3.0
"""How long something that is about to change is given to do so, before it is written after all."""

MAX_IN_FLIGHT = 8
RETRY_S = 5.0
FORBIDDEN_S = 60.0
"""After the API server forbids a write: permissions do not come back by asking often."""


class Presenter(Follower[ReadState]):
    """Writes what users see. Needs the lease of ``presenter``/0, so that two do not write the same twice."""

    stage: ReadModel
    name: ClassVar[str] = "presenter"
    lease: KeptLease

    def __init__(
        self,
        transport: ApiTransport,
        *,
        log: SharedLog,
        lease: Lease,
        snapshots: Snapshots | None,
        clock: Clock,
        hooks: Hooks | None = None,
        rate_per_s: float = RATE_PER_S,
    ) -> None:
        self._touched = Touched()
        self._cleared: dict[str, None] = {}
        """keys of refused shapes whose first refusal has room again"""
        self._unfit: dict[str, None] = {}
        """uids of waiting jobs that no node could run at the last look"""
        self._steps: dict[str, dict[str, int]] = {}
        """queue -> {uid of one of its first jobs: step of its place at the last look}"""
        super().__init__(ReadModel(self._touched), log=log, snapshots=snapshots, clock=clock, hooks=hooks)
        self.lease = KeptLease(lease, "the presenter", taken=self._leads, lost=self._stands_by)
        self._due: dict[str, float] = {}
        """key of an object to look at -> loop time from when on"""
        self._served: dict[str, int] = {}
        """kind of object -> number of the last look: kinds take turns"""
        self._looks = 0
        self._noted: dict[str, str] = {}
        """``WHAT/UID`` -> name of the Event written last"""
        self._passing: dict[str, float] = {}
        """key of an object that is about to change -> loop time since when"""
        self._busy: set[str] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._looked_at_all = False
        self._rechecked = 0.0
        self._stamped: dict[str, int] = {}
        """uid of a job -> its version when its place was written"""
        self._deleted: dict[str, None] = {}
        """uids of Queue objects whose deletion was asked for, until they are gone"""
        self._there = There(transport, self._changed)
        self._watched: set[str] = set()
        self._writer = ObjectWriter(transport, self.hooks, self._there, rate_per_s)
        self._signals = GateSignals(transport, self._writer)
        self._gangs = GangWriter(transport, self._writer)

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._stands_by()
        tasks.create_task(self.lease.keep_trying())

    def _leads(self) -> None:
        self.hooks.role("leading", 0)
        self.wake()

    def _stands_by(self) -> None:
        self.hooks.role("standby", 0)

    async def stop(self, *, keep: bool = True) -> None:
        """Give up the lease."""
        await self.lease.release()

    async def keep_snapshot(self) -> None:
        """The publisher's process keeps those of the read model."""

    def deadline_s(self) -> float | None:
        if not self.lease.held or not self._due or len(self._busy) >= MAX_IN_FLIGHT:
            return None
        wait = min(self._due.values()) - asyncio.get_running_loop().time()
        return max(0.02, wait)

    def due(self) -> bool:
        return self.lease.held

    async def act(self) -> None:
        """Note what the log has touched; write what is due."""
        now = asyncio.get_running_loop().time()
        if not (self.lease.held and self.caught_up and self.state.synced):
            return
        if not self._looked_at_all:
            self._looked_at_all = True
            self._touch_all(now)
        self._note_touched(now)
        self._writer.refill(now)
        if now >= self._rechecked + UNSEEN_S:
            self._rechecked = now
            for key in self._there.unobserved(now):
                self._touch(_shown_with(key), now)
        for key in self._in_turn([key for key, at in self._due.items() if at <= now and key not in self._busy]):
            if len(self._busy) >= MAX_IN_FLIGHT or self._writer.exhausted:
                break
            self._start(key)

    def _in_turn(self, keys: list[str]) -> Iterator[str]:
        """The objects to look at: kinds take turns, so that many objects of one kind delay no other."""
        waiting: dict[str, Iterator[str]] = {}
        for key in keys:
            kind = key.partition("/")[0]
            if kind not in waiting:
                waiting[kind] = (due for due in keys if due.startswith(f"{kind}/"))
        while waiting:
            kind = min(waiting, key=lambda name: self._served.get(name, 0))
            key = next(waiting[kind], "")
            if not key:
                del waiting[kind]
                continue
            self._looks += 1
            self._served[kind] = self._looks
            yield key

    def _changed(self, key: str) -> None:
        """An object of an own watch has changed."""
        self._touch(_shown_with(key), asyncio.get_running_loop().time())
        self.wake()

    def _follow(self, key: str, resource: ApiResource, keyed: Callable[[Mapping[str, Any]], str]) -> bool:
        """Watch the objects of a resource, from the first that is shown on. Returns whether the present objects are
        known; else the object is looked at again.
        """
        if resource.path() not in self._watched:
            self._watched.add(resource.path())
            assert self._tasks is not None
            self._tasks.create_task(self._there.watch(resource, keyed))
        known = self._there.known(resource, self._now())
        if not known:
            self._touch(key, self._now())
        return known

    def _touch_all(self, now: float) -> None:
        """Compare everything once: what was shown before this process began is known from observations."""
        state = self.state
        for uid in state.queues.workloads:
            self._touch(f"unit/{uid}", now)
        for path in state.queues.ledger.nodes:
            self._touch(f"queue/{path}", now)
        self._touched.surplus = True
        for uid in state.troubles:
            self._touch(f"trouble/{uid}", now)
        for key in state.gangs.gangs:
            self._touch(f"gang/{key}", now)
        for uid in state.kai_queues:
            self._touch(f"kai/{uid}", now)
        for owner in dict.fromkeys(scaled.owner for scaled in state.scaled.values()):
            self._touch(f"scale/{owner}", now)
        self._touch("tree/", now)

    def _note_touched(self, now: float) -> None:
        news = self._touched
        for uid in news.gone:
            self._there.forget(uid)
            self._deleted.pop(uid, None)
        news.gone.clear()
        if news.surplus:
            news.surplus = False
            for ref in queuestatus.surplus_queues(self.state):
                self._touch(f"surplus/{ref.uid}", now)
        news.jobs.update(dict.fromkeys(desired.refused_elsewhere(self.state, self._cleared)))
        if news.nodes:
            news.nodes = False
            news.jobs.update(dict.fromkeys(desired.run_elsewhere(self.state, self._unfit)))
        for path in news.queues:
            news.jobs.update(dict.fromkeys(desired.moved_up(self.state, path, self._steps)))
        for uid in news.jobs:
            if scalegates.entries_due(self.state, uid):
                self._touch(f"scale/{uid}", now)
        for prefix, touched in (
            ("unit", news.jobs),
            ("queue", news.queues),
            ("trouble", news.troubles),
            ("gang", news.gangs),
        ):
            for name in touched:
                self._touch(f"{prefix}/{name}", now)
            touched.clear()
        if news.tree:
            news.tree = False
            self._touch("tree/", now)
            for uid in self.state.kai_queues:
                self._touch(f"kai/{uid}", now)

    def _touch(self, key: str, now: float) -> None:
        """Look at the object when it has settled; a pending change may have happened, and is looked at no later."""
        at = now + SETTLE_S[key.partition("/")[0]]
        due = self._due.setdefault(key, at)
        if key in self._passing:
            self._due[key] = min(at, due)

    def _start(self, key: str) -> None:
        del self._due[key]
        kind, _, name = key.partition("/")
        look = {
            "unit": self._unit,
            "queue": self._queue,
            "surplus": self._surplus,
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
        """A look at an object; after any answer of the API server, the object is looked at again later."""
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
        await self._note_once(f"size/{uid}", desired.size_event(self.state, uid))
        await self._note_once(f"alarm/{uid}", desired.alarm_event(self.state, uid))
        await self._note_once(f"settings/{uid}", desired.settings_event(self.state, uid))
        await self._note_once(f"pods/{uid}", desired.pods_event(self.state, uid))
        await self._note_once(f"admitted/{uid}", desired.admitted_event(self.state, uid))
        await self._kai_group(uid)
        stamp = desired.queued_stamp(self.state, uid)
        wanted = desired.queue_unit(self.state, uid)
        since = self._passing.pop(f"unit/{uid}", None)
        if wanted is None or self._there.holds(wanted.key, wanted.shown, wanted.seen, self._now()):
            return await self._stamp(uid, stamp)
        if wanted.passing:
            now = self._now()
            since = now if since is None else since
            if now < since + PASSING_S:
                self._passing[wanted.key] = since
                self._due[wanted.key] = since + PASSING_S
                return False
        await self._note_once(f"job/{uid}", desired.job_event(self.state, uid))
        await self._note_once(f"left/{uid}", desired.leaving_event(self.state, uid))
        await self._stamp(uid, stamp)
        await self._writer.upsert(wanted)
        return True

    async def _stamp(self, uid: str, stamp: tuple[Ref, bytes] | None) -> bool:
        """Keep the place of a job on the job; whether anything was written. Once for each version of the job."""
        workload = self.state.queues.workloads.get(uid)
        if stamp is None or workload is None:
            self._stamped.pop(uid, None)
            return False
        if self._stamped.get(uid) == workload.rv:
            return False
        self._stamped[uid] = workload.rv
        ref, patch = stamp
        resource = resource_of(ref.kind, workload.switch)
        await self._writer.send("PATCH", resource, ref.namespace, ref.name, JSON_PATCH, patch)
        return True

    async def _kai_group(self, uid: str) -> None:
        """Show a workload of a KAI queue as a PodGroup, where the server has those."""
        key, wanted = f"kaigroup/{uid}", kaigroups.pod_group(self.state, uid)
        if wanted is None:
            self._there.drop(key)
            return
        if not self._follow(f"unit/{uid}", api.KAI_POD_GROUPS, lambda meta: kaigroups.key_of(self.state, meta)):
            return
        wanted = replace(wanted, seen=self._there.seen(key))
        if not self._shows(wanted):
            await self._writer.upsert(wanted)

    def _shows(self, wanted: DesiredObject) -> bool:
        """Whether an object of an own watch is as wanted."""
        now = self._now()
        if self._there.adopt(wanted.key, wanted.shown, wanted.body, now):
            return True
        return self._there.holds(wanted.key, wanted.shown, wanted.seen, now)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _note_once(self, key: str, note: EventNote | None) -> None:
        """Write an Event unless it was written last under that key, ``WHAT/UID``."""
        if key.partition("/")[2] not in self.state.queues.workloads:
            self._noted.pop(key, None)
        elif note is not None and self._noted.get(key) != note.name:
            await self._writer.event(note)
            self._noted[key] = note.name

    async def _surplus(self, uid: str) -> bool:
        """Delete a Queue object that no path needs."""
        ref = next((queue for queue in queuestatus.surplus_queues(self.state) if queue.uid == uid), None)
        if ref is None or uid in self._deleted:
            return False
        self._deleted[uid] = None
        await self._writer.send("DELETE", api.QUEUES, ref.namespace, ref.name)
        return True

    async def _queue(self, path: str) -> bool:
        wanted = queuestatus.queue_object(self.state, path)
        if wanted is None or self._there.holds(wanted.key, wanted.shown, wanted.seen, self._now()):
            return False
        await self._writer.upsert(wanted)
        return True

    async def _tree(self, _name: str) -> bool:
        tree, status = self.state.queues.ledger.trees.get(ROOT), queuestatus.tree_status(self.state)
        if tree is None or status is None:
            return False
        note = desired.tree_event(self.state)
        if note is not None and self._noted.get("tree/") != note.name:
            await self._writer.event(note)
        self._noted["tree/"] = note.name if note is not None else ""
        if not self._follow("tree/", api.QUOTA_TREES, self._key_of_tree):
            return False
        body: Body = {"status": status}
        shown, seen = digest(status), self._there.seen("tree/")
        if self._there.adopt("tree/", shown, body, self._now()):
            return False
        if self._there.holds("tree/", shown, seen, self._now()):
            return False
        answer = await self._tree_says(tree.ref, status)
        if answer.ok:
            self._there.wrote("tree/", shown, body, answer.body, self._now())
        return True

    def _key_of_tree(self, metadata: Mapping[str, Any]) -> str:
        """The tree in force alone is shown whole."""
        tree = self.state.queues.ledger.trees.get(ROOT)
        return "tree/" if tree is not None and metadata.get("uid") == tree.ref.uid else ""

    async def _tree_says(self, ref: Ref, status: Body) -> ApiResponse:
        split = await self._writer.has_split_status(api.QUOTA_TREES)
        return await self._writer.send(
            "PATCH",
            api.QUOTA_TREES,
            ref.namespace,
            ref.name,
            MERGE_PATCH,
            msgspec.json.encode({"status": status}),
            subresource="status" if split else "",
        )

    async def _refused_tree(self, ref: Ref) -> None:
        """Report on a tree that the tree does not count; on a tree that counted before, beside the part still in
        force.
        """
        tree = self.state.queues.ledger.trees.get(ROOT)
        if tree is not None and tree.ref.uid == ref.uid:
            await self._tree("")
        else:
            await self._tree_says(ref, {"conditions": queuestatus.tree_conditions(self.state, ref.uid)})

    async def _kai(self, uid: str) -> bool:
        queue = self.state.kai_queues.get(uid)
        wanted = queuestatus.kai_status(self.state, queue) if queue is not None else None
        if queue is None or wanted is None:
            return False
        key, now = f"kai/{uid}", self._now()
        if self._there.holds(key, wanted.shown, ObjectVersion(uid, queue.rv), now):
            return False
        fields = {"metadata": {"uid": uid}, "status": wanted.body}
        body = msgspec.json.encode(fields)
        answer = await self._writer.send("PATCH", api.KAI_QUEUES, "", wanted.ref.name, MERGE_PATCH, body, "status")
        if answer.ok:
            self._there.wrote(key, wanted.shown, fields, answer.body, now)
        return True

    async def _trouble(self, uid: str) -> bool:
        await self._kai_group(uid)
        note = desired.trouble_event(self.state, uid)
        ref = self.state.troubles[uid].ref if note is not None else None
        if ref is not None and ref.kind == api.QUOTA_TREES.kind:
            await self._refused_tree(ref)
        if note is None:
            self._noted.pop(f"trouble/{uid}", None)
            return False
        if self._noted.get(f"trouble/{uid}") == note.name:
            return False
        await self._writer.event(note)
        self._noted[f"trouble/{uid}"] = note.name
        return True

    async def _gang(self, key: str) -> bool:
        return await self._gangs.show(self.state, key, self._now())

    async def _scale(self, owner: str) -> bool:
        key, now = f"scale/{owner}", asyncio.get_running_loop().time()
        self._passing.pop(key, None)
        again = await self._signals.show(self.state, owner, now)
        if again is not None:
            self._passing[key], self._due[key] = now, now + again
        return False


def _shown_with(key: str) -> str:
    """What is looked at, so that an object is compared: PodGroups are shown with their workload or gang."""
    kind, _, name = key.partition("/")
    match kind:
        case "kaigroup":
            return f"unit/{name}"
        case "podgroup":
            return f"gang/{name.partition('/')[2]}"
        case _:
            return key
