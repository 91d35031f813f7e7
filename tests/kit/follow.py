"""Everything the API server tells of one resource, in its order, through crashes of the server: for tests that count.

Beside the product's reflector on purpose: what that misses must not be missed here too.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from kit.waiting import until
from muster.model.api import ApiResource
from muster.ports import ApiStatusError, ApiTransport, ApiUnreachableError

Object = dict[str, Any]

#: Seconds between two tries to reach a server that is down.
RETRY_S = 0.1
#: Seconds a watch may be silent before it is opened anew.
IDLE_S = 90.0


class Follow:
    """Calls `heard(type, object)` for everything that exists and for every change of it; `run` it as a task.

    `type` is ADDED, MODIFIED or DELETED. What is gone after an outage is told with the state it was last seen in.
    """

    def __init__(
        self, transport: ApiTransport, resource: ApiResource, heard: Callable[[str, Object], None], namespace: str = ""
    ) -> None:
        self._transport = transport
        self._resource = resource
        self._path = resource.path(namespace)
        self._heard = heard
        self._known: dict[str, Object] = {}
        self.ready = asyncio.Event()

    async def run(self) -> None:
        version = ""
        while True:
            try:
                version = version or await self._list()
                self.ready.set()
                version = await self._watch(version)
            except (ApiStatusError, ApiUnreachableError) as err:
                if isinstance(err, ApiStatusError):
                    version = ""
                await asyncio.sleep(RETRY_S)

    async def caught_up(self) -> None:
        """Return once everything has been heard that the server holds now.

        Whoever has just read an object's state is ahead of the watch: what it collected is complete only after this.
        """

        async def same() -> bool:
            return _versions((await self._held())["items"]) == _versions(self._known.values())

        await until(same, what=f"the watch of {self._path} to have caught up")

    async def _held(self) -> Any:
        answer = await self._transport.request("GET", self._path)
        if not answer.ok:
            raise ApiStatusError(answer.status, answer.body[:200].decode(errors="replace"))
        return json.loads(answer.body)

    async def _list(self) -> str:
        found = await self._held()
        seen = {item["metadata"]["uid"]: item for item in found["items"]}
        for uid in [uid for uid in self._known if uid not in seen]:
            self._tell("DELETED", self._known[uid])
        for item in seen.values():
            self._tell("MODIFIED", {"kind": self._resource.kind, **item})
        return str(found["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> str:
        query = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
        try:
            async for line in self._transport.watch(self._path, query=query, idle_limit_s=IDLE_S):
                event = json.loads(line)
                found = event["object"]
                if event["type"] == "ERROR":
                    return ""
                version = found["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._tell(event["type"], found)
        except ApiUnreachableError:
            await asyncio.sleep(RETRY_S)
        return version

    def _tell(self, kind: str, found: Object) -> None:
        meta = found["metadata"]
        uid = meta["uid"]
        known = self._known.get(uid)
        if kind == "DELETED":
            self._known.pop(uid, None)
            if known is not None:
                self._heard(kind, found)
        elif known is None or known["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            self._known[uid] = found
            self._heard("MODIFIED" if known else "ADDED", found)


def _versions(found: Iterable[Object]) -> dict[str, str]:
    return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in found}


class Diary:
    """Every state a resource's objects were seen in, by name and in order."""

    def __init__(self, transport: ApiTransport, resource: ApiResource) -> None:
        self.follow = Follow(transport, resource, self._heard)
        self.states: dict[str, list[Object]] = {}
        self.gone: list[str] = []

    def _heard(self, kind: str, found: Object) -> None:
        name = found["metadata"]["name"]
        if kind == "DELETED":
            self.gone.append(name)
        else:
            self.states.setdefault(name, []).append(found)

    def course(self, name: str, read: Callable[[Object], Any]) -> list[Any]:
        """What `read` said of the object over time; the same twice in a row counts once."""
        told: list[Any] = []
        for found in self.states.get(name, []):
            value = read(found)
            if not told or told[-1] != value:
                told.append(value)
        return told
