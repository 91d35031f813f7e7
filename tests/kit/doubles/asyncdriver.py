"""Runs controllers against any API server, real or simulated, through an ApiTransport.

Each resource is listed and watched; what the driver writes is heard at once from the answers, so a controller never
plans twice from the same stale picture. Used by the demo and by tests on a real API server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType, encode
from muster.fakecluster.controllers import Controller
from muster.fakecluster.operations import ApiOperation, BindPod, Create, DeleteObject, Merge, Replace
from muster.fakecluster.syncdriver import as_good
from muster.model.api import JSON, MERGE_PATCH, ApiResource
from muster.ports import ApiResponse, ApiStatusError, ApiTransport, ApiUnreachableError

RELIST_AFTER_S = 1.0
"""Pause before a resource is listed anew after its watch has failed."""
WATCH_LIMIT_S = 300
IDLE_LIMIT_S = WATCH_LIMIT_S + 30.0
LIST_PAGE = "500"
IN_FLIGHT = 16
"""Plans carried out at the same time."""
REMEMBERED_DEAD = 10_000
_decode = msgspec.json.Decoder().decode


class AsyncDriver:
    """Controllers on an API server, until ``run`` is cancelled.

    ``now``: ms since the epoch, as the controllers see it; it may run ``speed`` times as fast as the event loop's.
    """

    def __init__(
        self, transport: ApiTransport, controllers: Sequence[Controller], now: Callable[[], int], *, speed: float = 1.0
    ) -> None:
        self._transport = transport
        self._controllers = tuple(controllers)
        self._now = now
        self._speed = speed
        self._versions: dict[ApiResource, dict[str, tuple[int, Obj]]] = {}
        """resource -> uid -> (version, object) of what exists as far as heard."""
        self._dead: dict[str, None] = {}
        """uids of what is gone, the latest last: older news of them is void."""
        self._marked = asyncio.Event()
        self._busy: set[str] = set()
        """Keys whose plan is being carried out: they are not planned again before that is done."""
        self._again: set[str] = set()
        """Those of them that were marked anew meanwhile."""
        self._synced: dict[ApiResource, asyncio.Event] = {}
        self.failures: list[str] = []
        """What the server refused or did not answer, the latest last; for tests and for telling a user."""

    async def run(self) -> None:
        """Keep everything as it should be, for ever. Raises only what is a programmer's error."""
        resources = dict.fromkeys(resource for controller in self._controllers for resource in controller.watches)
        self._synced = {resource: asyncio.Event() for resource in resources}
        async with asyncio.TaskGroup() as tasks:
            for resource in resources:
                tasks.create_task(self._follow(resource))
            for event in self._synced.values():
                await event.wait()
            await self._work(tasks)

    async def _follow(self, resource: ApiResource) -> None:
        """Hear of every change of a resource, listing it anew whenever the thread is lost."""
        while True:
            try:
                version = await self._list(resource)
                self._synced[resource].set()
                await self._watch(resource, version)
            except (ApiStatusError, ApiUnreachableError) as err:
                self._note(f"{resource}: {err}")
                await asyncio.sleep(RELIST_AFTER_S)

    async def _list(self, resource: ApiResource) -> str:
        """Hear of everything that exists, and of what is gone meanwhile; returns the version of the list."""
        seen: set[str] = set()
        query, version = {"limit": LIST_PAGE}, ""
        while True:
            answer = await self._transport.request("GET", resource.path(), query=query)
            if not answer.ok:
                raise ApiStatusError(answer.status, answer.body[:200].decode(errors="replace"))
            page = _decode(answer.body)
            version = version or page["metadata"]["resourceVersion"]
            for item in page["items"]:
                seen.add(item["metadata"]["uid"])
                self._hear("MODIFIED", resource, item)
            token = page["metadata"].get("continue")
            if not token:
                break
            query = {"limit": LIST_PAGE, "continue": token}
        for uid, (_, found) in list(self._versions.get(resource, {}).items()):
            if uid not in seen and int(found["metadata"]["resourceVersion"]) <= int(version):
                self._hear("DELETED", resource, found)
        return version

    async def _watch(self, resource: ApiResource, version: str) -> None:
        """Hear of changes from a version on, until the server has forgotten it."""
        while True:
            query = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_LIMIT_S)}
            async for line in self._transport.watch(resource.path(), query=query, idle_limit_s=IDLE_LIMIT_S):
                event = _decode(line)
                found = event["object"]
                if event["type"] == "ERROR":
                    raise ApiStatusError(found.get("code", 0), found.get("message", ""))
                version = found["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._hear(event["type"], resource, found)

    def _hear(self, kind: ChangeType, resource: ApiResource, found: Obj) -> None:
        """Pass on what is news; a change that came before as an answer, or too late, is none."""
        # Objects of built-in kinds do not say in lists what they are.
        found = {"apiVersion": resource.api_version, "kind": resource.kind, **found}
        meta = found["metadata"]
        uid, version = meta["uid"], int(meta["resourceVersion"])
        known = self._versions.setdefault(resource, {})
        if kind == "DELETED":
            if known.pop(uid, None) is None:
                return
            self._dead[uid] = None
            if len(self._dead) > REMEMBERED_DEAD:
                del self._dead[next(iter(self._dead))]
        else:
            if uid in self._dead or (uid in known and known[uid][0] >= version):
                return
            kind = "MODIFIED" if uid in known else "ADDED"
            known[uid] = (version, found)
        for controller in self._controllers:
            if resource in controller.watches:
                controller.heard(kind, resource, found)
        self._marked.set()

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        """Carry out what is due, a few plans at a time, never two for the same key."""
        slots = asyncio.Semaphore(IN_FLIGHT)
        while True:
            self._marked.clear()
            now = self._now()
            for number, controller in enumerate(self._controllers):
                while (key := controller.queue.take(now)) is not None:
                    name = f"{number} {key}"
                    if name in self._busy:
                        self._again.add(name)
                        continue
                    self._busy.add(name)
                    await slots.acquire()
                    tasks.create_task(self._carry_out(controller, key, name, slots))
            await self._wait()

    async def _wait(self) -> None:
        """Return when something was heard or is due."""
        now = self._now()
        times = [at for controller in self._controllers if (at := controller.queue.next_at(now)) is not None]
        delay_s = None if not times else max(min(times) - now, 1) / 1000 / self._speed
        try:
            async with asyncio.timeout(delay_s):
                await self._marked.wait()
        except TimeoutError:
            return

    async def _carry_out(self, controller: Controller, key: str, name: str, slots: asyncio.Semaphore) -> None:
        try:
            plan = controller.plan(key, self._now())
            for operation in plan.operations:
                if not await self._apply(operation):
                    controller.queue.failed(key, self._now())
                    return
            controller.queue.done(key, plan, self._now())
        finally:
            self._busy.discard(name)
            if name in self._again:
                self._again.discard(name)
                controller.queue.mark(key)
            slots.release()
            self._marked.set()

    async def _apply(self, operation: ApiOperation) -> bool:
        """Carry out one operation; False when it has to be planned anew."""
        method, path, body, content_type = _request(operation)
        try:
            answer = await self._transport.request(method, path, body=body, content_type=content_type)
        except ApiUnreachableError as err:
            self._note(str(err))
            if isinstance(operation, Create):
                await self._find_out(operation.resource)
            return False
        if answer.ok:
            self._hear_answer(operation, answer)
            return True
        if as_good(operation, answer.status):
            return True
        self._note(f"{method} {path}: {answer.status} {answer.body[:300].decode(errors='replace')}")
        return False

    async def _find_out(self, resource: ApiResource) -> None:
        """See what exists before anything is planned again: what was made without an answer would be made twice."""
        while resource in self._synced:
            try:
                await self._list(resource)
            except (ApiStatusError, ApiUnreachableError) as err:
                self._note(f"{resource}: {err}")
                await asyncio.sleep(RELIST_AFTER_S)
            else:
                return

    def _hear_answer(self, operation: ApiOperation, answer: ApiResponse) -> None:
        resource = operation.resource
        if not any(resource in controller.watches for controller in self._controllers):
            return
        found: Any = _decode(answer.body)
        meta = found.get("metadata") or {}
        if isinstance(operation, DeleteObject) and meta.get("uid") and not meta.get("resourceVersion"):
            # Somebody else's deletion was quicker: the answer is what was about to be written, which has no version.
            self._hear_gone(resource, meta["uid"])
        elif found.get("kind") != "Status" and meta.get("uid"):
            ended = bool(meta.get("deletionTimestamp")) and meta.get("deletionGracePeriodSeconds") == 0
            gone = ended and not meta.get("finalizers") and not isinstance(operation, Create)
            self._hear("DELETED" if gone else "MODIFIED", resource, found)
        elif isinstance(operation, DeleteObject):
            self._hear_gone(resource, (found.get("details") or {}).get("uid", operation.uid))

    def _hear_gone(self, resource: ApiResource, uid: str) -> None:
        known = self._versions.get(resource, {}).get(uid)
        if known is not None:
            self._hear("DELETED", resource, known[1])

    def _note(self, failure: str) -> None:
        self.failures.append(failure)
        del self.failures[:-100]


def _request(operation: ApiOperation) -> tuple[str, str, bytes | None, str]:
    """(method, path, body, content type) of an operation."""
    match operation:
        case Create(resource, namespace, body):
            return "POST", resource.path(namespace), encode(body), JSON
        case Replace(resource, body, subresource):
            path = resource.path(operation.namespace, operation.name, subresource)
            return "PUT", path, encode(body), JSON
        case Merge(resource, namespace, name, patch, subresource):
            return "PATCH", resource.path(namespace, name, subresource), encode(patch), MERGE_PATCH
        case DeleteObject(resource, namespace, name, uid, grace_s, propagation):
            options: dict[str, object] = {"propagationPolicy": propagation or "Background"}
            if uid:
                options["preconditions"] = {"uid": uid}
            if grace_s is not None:
                options["gracePeriodSeconds"] = grace_s
            return "DELETE", resource.path(namespace, name), json.dumps(options).encode(), JSON
        case BindPod(namespace, name, uid, node):
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            meta = {"name": name, "uid": uid}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
            return "POST", operation.resource.path(namespace, name, "binding"), encode(body), JSON
