"""The watcher's runner: a reflector's deltas become facts, in commits of its shard.

While a commit is in flight, what is observed meanwhile waits by uid, the newest state of each object only: a slow
log costs intermediate states, never an object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from muster.core.abridging import abridged
from muster.core.objects.meta import not_decoded, version_of
from muster.core.observed.presence import PATIENCE_MS
from muster.core.reading.watched import CONFIGURING, required_of, shards_of
from muster.core.reading.watcher import Watcher, WatchState
from muster.core.workloads.registry import KINDS, defined
from muster.events.base import Event
from muster.events.envelope import MAX_BYTES, MAX_EVENTS, Commit, CommitKind, Stored
from muster.events.facts import KindsConfigured, Synced, SyncStarted, WorkloadObserved
from muster.events.registry import encode
from muster.kube import deltas
from muster.kube.discovery import served
from muster.kube.hooks import WatchHooks
from muster.kube.objects import ObjectMeta
from muster.kube.poddefaults import PodDefaults
from muster.kube.reflector import ABSENT_S, Reflector
from muster.kube.suspendable import suspendable
from muster.model.api import ApiResource
from muster.model.keys import Intent, Ref
from muster.ports import ApiStatusError, ApiTransport, ApiUnreachableError, Clock, Lease, Snapshots
from muster.runtime.kinds import refused
from muster.runtime.runners.hooks import Hooks, Level
from muster.runtime.runners.leader import Leader
from muster.runtime.runners.shared import SharedLog
from muster.told.wording import problems

UNREAD_S = 600.0
"""How often the served kinds are looked at."""


class _UnreportedObject(Struct):
    """What is known of an object and not reported yet; ``raw`` is None when it is gone."""

    ref: Ref
    rv: int
    raw: bytes | None
    unreadable: str = ""
    last: bytes = b""
    """The last state of an object that is gone; empty: no watch saw it."""
    due: int = 0
    """Until when (ms) it is put off, or was; 0: it never was."""


class WatcherRunner(Leader[WatchState]):
    """Watches one resource of the API server; each change becomes a fact in the log. Only the leader watches."""

    stage: Watcher

    def __init__(
        self,
        shard: str,
        transport: ApiTransport,
        *,
        log: SharedLog,
        lease: Lease,
        snapshots: Snapshots | None,
        clock: Clock,
        process: str,
        hooks: Hooks | None = None,
        reflector_hooks: WatchHooks | None = None,
        quarantine: Callable[[bytes, str], Awaitable[object]] | None = None,
        set_back: Callable[[str], Awaitable[object]] | None = None,
        kinds: tuple[str, ...] = tuple(KINDS),
        defaults: PodDefaults | None = None,
    ) -> None:
        """``defaults``: what the API server adds to the pods of the objects."""
        super().__init__(
            Watcher(shard, kinds),
            shard=shard,
            log=log,
            lease=lease,
            snapshots=snapshots,
            clock=clock,
            process=process,
            hooks=hooks,
        )
        self._transport = transport
        self._reflector_hooks = reflector_hooks
        self._quarantine = quarantine
        """Takes (bytes, cause) of an object without a readable identity."""
        self._tell_set_back = set_back
        """Takes the sentence that says how the API server was restored to an earlier state."""
        self._newest = 0
        """The newest resourceVersion that was read; a list is never older, but from a server that was set back."""
        self._pending: dict[str, _UnreportedObject] = {}
        self._put_off: dict[str, _UnreportedObject] = {}
        """New objects that name a parent which does not know them yet."""
        self._copied: dict[str, Intent] = {}
        """uid -> the intent that the object had when it was seen first: from another log, or from before this one"""
        self._kinds = kinds
        self._defaults = defaults if self.stage.kind in KINDS else None
        self._unread: set[ApiResource] = set()
        self._retired = shard not in shards_of(kinds)
        """It is not to be watched any more: what was reported of it is taken back."""
        if not self._retired:
            self._announcements.append(SyncStarted(kinds=(shard,)))  # the epoch is closed when all is listed
        self._tasks: asyncio.TaskGroup | None = None
        self._watching = False
        self._absent = False
        """The log says that the server does not have the resource."""

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        await super().started(tasks)

    def has_work(self) -> bool:
        return not self._watching or bool(self._pending or self._put_off)

    async def produce(self) -> tuple[CommitKind, list[Event]] | None:
        if not self._watching:
            self._watching = True
            assert self._tasks is not None
            if not self._retired:
                self._tasks.create_task(self._watch())
            if self.shard == CONFIGURING:
                self._tasks.create_task(self._name_unread())
            for uid, was in self.state.objects.items() if self._retired else ():
                self._pending[uid] = _UnreportedObject(was.ref, 0, None)
            self._announcements += self._configured()
            if self._announcements:
                return "input", self._take_announcements()
        self._look_again()
        facts = self._take_pending()
        if not facts and not self._pending:
            facts = self._take_announcements()
        if self._pending:
            self.wake()
        return ("input", facts) if facts else None

    def written(self, commit: Commit) -> Commit:
        """What was said of workloads before is not said again."""
        newest = self.state.docket.newest.get(f"{self.stage.name}.{self.shard}", {})
        return replace(commit, events=tuple(abridged(newest, commit.events)))

    def voided(self, stored: Stored) -> None:
        """One leading shard keeps the void commits, with the reason."""
        super().voided(stored)
        if self.shard == CONFIGURING and self.leading() and self.caught_up and self._quarantine is not None:
            assert self._tasks is not None
            self._tasks.create_task(self._keep_void(stored))

    async def _keep_void(self, stored: Stored) -> None:
        assert self._quarantine is not None and stored.void is not None
        why = f"commit {stored.seq} on {stored.subject} is void: {problems.line(stored.void)}"
        try:
            await self._quarantine(stored.body, why)
        except Exception as err:  # It is in the log all the same.
            self.hooks.note("warning", "void_not_quarantined", seq=stored.seq, why=str(err))

    def _configured(self) -> list[Event]:
        """The enabled kinds, unless the log has them: reported by one shard, before any object of the shard counts as
        listed.
        """
        required, state = required_of(self._kinds), self.state
        definitions = defined(self._kinds)
        told = (self._kinds, required) == (state.kinds, tuple(state.required)) and state.unsynced.keys() <= {*required}
        if self.shard != CONFIGURING or (told and definitions == state.definitions):
            return []
        return [KindsConfigured(kinds=self._kinds, required=required, definitions=definitions)]

    def _take_announcements(self) -> list[Event]:
        events, self._announcements = self._announcements, []
        return events

    def _look_again(self) -> None:
        """Take up what was put off: once its parent's news has come, or has been waited for long enough."""
        now = self.clock.now()
        for uid, pending in list(self._put_off.items()):
            if pending.due <= now or not self._doubtful(pending):
                self._pending[uid] = self._put_off.pop(uid)

    def _doubtful(self, pending: _UnreportedObject) -> bool:
        raw = pending.raw
        return raw is not None and not pending.unreadable and self.stage.doubtful(self.state, pending.ref, raw)

    def _puts_off(self, uid: str) -> bool:
        """Put a doubtful object off, unless that was done or the first list is still being reported."""
        pending = self._pending[uid]
        if pending.due or self.shard not in self.state.listed or not self._doubtful(pending):
            return False
        pending.due = self.clock.now() + PATIENCE_MS
        self._put_off[uid] = self._pending.pop(uid)
        return True

    def deadline_s(self) -> float | None:
        """Until the stage's own deadline, or until what was put off is looked at again."""
        deadline = super().deadline_s()
        if not self._put_off or not self.leading():
            return deadline
        again = max(0.001, (min(put_off.due for put_off in self._put_off.values()) - self.clock.now()) / 1000)
        return again if deadline is None else min(deadline, again)

    def _take_pending(self) -> list[Event]:
        """Facts of pending observations, as many as one commit takes."""
        facts: list[Event] = []
        size = 0
        while self._pending and len(facts) < MAX_EVENTS - 1:
            uid = next(iter(self._pending))
            if self._puts_off(uid):
                continue
            events = self._facts(self._pending[uid])
            size += sum(len(encode(fact)) + 1 for fact in events)
            if facts and size > MAX_BYTES:
                break
            facts += events
            del self._pending[uid]
        return facts

    def _facts(self, pending: _UnreportedObject) -> list[Event]:
        if pending.raw is None:
            if pending.last and not self._retired:
                return self.stage.passed(self.state, pending.ref, pending.rv, pending.last)
            return self.stage.vanished(self.state, pending.ref, pending.rv, unwatched=self._retired)
        if pending.unreadable:
            problem = not_decoded(pending.unreadable)
            return self.stage.unreadable(self.state, pending.ref, pending.rv, problem)
        known, raw = pending.ref.uid in self.state.objects, pending.raw
        if self._defaults is not None:
            raw = self._defaults.added(pending.ref.namespace, raw)
        facts = self.stage.observe(self.state, pending.ref, pending.rv, raw)
        for fact in facts:
            if isinstance(fact, WorkloadObserved) and (intent := Intent.parse(fact.workload.intent)) is not None:
                if not known:
                    self._copied[pending.ref.uid] = intent
                elif self._copied.get(pending.ref.uid) != intent:
                    self._compare(pending.ref, intent)
        return facts

    def _compare(self, ref: Ref, intent: Intent) -> None:
        """Raise the alarm where an object that the log knows was written for a decision that the log does not have.

        It closes nothing: anyone who may edit the object may have written that.
        """
        here = self.log.identity.generation
        if intent.generation < here or (intent.generation == here and intent.seq <= self.state.seq):
            return
        assert self._tasks is not None
        self._tasks.create_task(self._alarm(ref, intent))

    async def _alarm(self, ref: Ref, intent: Intent) -> None:
        end, here = await self.log.end(), self.log.identity.generation
        if intent.generation > here or intent.seq > end:
            self.hooks.note("error", "intent_beyond_log", ref=str(ref), intent=str(intent), generation=here, end=end)

    async def _name_unread(self) -> None:
        """Name the served kinds that can be suspended and have no definition: their objects would wait in silence."""
        for sentence in refused:
            self.hooks.note("error", "kind_not_understood", message=sentence)
        while True:
            try:
                unread = await suspendable(self._transport, [row.resource for row in KINDS.values()])
            except (ApiStatusError, ApiUnreachableError) as err:
                self.hooks.note("info", "kinds_not_listed", why=str(err))
                unread = []
            for resource, at in unread:
                if resource not in self._unread:
                    self.hooks.note("warning", "kind_unread", resource=str(resource), field=at)
            self._unread = {resource for resource, _ in unread}
            await asyncio.sleep(UNREAD_S)

    async def _watch(self) -> None:
        if self._defaults is not None:
            await self._defaults.listed()
        await self._watch_one_version()
        while self.stage.row.versions:
            await asyncio.sleep(ABSENT_S)
            await self._watch_one_version()

    async def _watch_one_version(self) -> None:
        """Report what happens to the objects; ends when other versions may be served instead of this one."""
        row = self.stage.row
        selectors = {"labelSelector": row.label_selector} if row.label_selector else {}
        if row.name:
            selectors["fieldSelector"] = f"metadata.name={row.name}"
        known = [
            ObjectMeta(uid=uid, name=was.ref.name, namespace=was.ref.namespace, resource_version=str(was.rv))
            for uid, was in self.state.objects.items()
        ]
        self._newest = max((was.rv for was in self.state.objects.values()), default=0)
        resource = await self._served()
        if resource is None:
            if self._reflector_hooks is not None:
                self._reflector_hooks.heard(str(row.resource), asyncio.get_running_loop().time())
            await self._take(deltas.Absent(len(known)))
            self.wake()
            return
        reflector = Reflector(
            self._transport, resource, selectors, namespace=row.namespace, known=known, hooks=self._reflector_hooks
        )
        async with aclosing(reflector.deltas()) as stream:
            async for delta in stream:
                await self._take(delta)
                self.wake()
                if isinstance(delta, deltas.Absent) and row.versions:
                    return

    async def _served(self) -> ApiResource | None:
        """The watched version: the first understood version that is served; None without any.

        Where the server does not tell, the list will.
        """
        row, told = self.stage.row, True
        for version in row.versions:
            try:
                if await served(self._transport, version):
                    return version
            except (ApiStatusError, ApiUnreachableError):
                told = False
        return None if row.versions and told else row.resource

    async def _take(self, delta: deltas.Delta) -> None:
        match delta:
            case deltas.Upsert():
                self._pend(delta.meta, delta.raw)
            case deltas.Delete():
                self._pend(delta.meta, None, last=delta.raw)
            case deltas.Unreadable():
                if delta.meta is None:
                    self.hooks.note("error", "object_without_identity", kind=self.stage.kind, reason=delta.reason)
                    if self._quarantine is not None:
                        await self._quarantine(delta.head, f"{self.stage.kind} without identity: {delta.reason}")
                else:
                    self._pend(delta.meta, delta.head, unreadable=delta.reason)
            case deltas.ListSynced():
                self._absent = False
                listed = version_of(delta.resource_version) or 0
                if 0 < listed < self._newest:
                    await self._set_back(listed)
                self._newest = max(self._newest, listed)
                self._announcements.append(Synced(kind=self.shard, objects=delta.count, rv=listed))
            case deltas.Absent():
                if not self._absent:  # Most clusters lack some kinds from the start.
                    level: Level = "warning" if delta.known else "info"
                    self.hooks.note(level, "resource_absent", resource=str(self.stage.row.resource))
                    self._announcements.append(Synced(kind=self.shard, absent=True))
                self._absent = True

    async def _set_back(self, listed: int) -> None:
        """Report nothing more: every reader takes it for late. The next generation starts from the cluster."""
        name = str(self.stage.row.resource)
        why = (
            f"the API server was restored to an earlier state: it lists {name} as of resourceVersion {listed}, and "
            f"{self._newest} was read before"
        )
        self.hooks.note("error", "cluster_set_back", message=why)
        if self._reflector_hooks is not None:
            self._reflector_hooks.ready(name, False, f"{why}; the keeper starts the next generation of the log")
        if self._tell_set_back is not None:
            await self._tell_set_back(why)
        await asyncio.Event().wait()

    def _pend(self, meta: ObjectMeta, raw: bytes | None, unreadable: str = "", last: bytes = b"") -> None:
        ref = Ref(self.stage.kind, meta.namespace, meta.name, meta.uid or meta.path)
        self._pending.pop(ref.uid, None)
        pending = _UnreportedObject(ref, version_of(meta.resource_version) or 0, raw, unreadable, last)
        self._newest = max(self._newest, pending.rv)
        put_off = self._put_off.pop(ref.uid, None)
        if put_off is not None and raw is not None:
            pending.due = put_off.due
            self._put_off[ref.uid] = pending
        else:
            self._pending[ref.uid] = pending
