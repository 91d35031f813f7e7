"""What the API server tells of a resource, by plain HTTP: a list, then a watch, through outages. Nothing of Muster."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import aiohttp

Object = dict[str, Any]
RETRY_S = 0.2
IDLE_S = 60.0
"""A watch may be silent so long before it is opened anew; bookmarks come once a minute."""


class Api:
    """One user's plain requests. `async with Api(...) as api`."""

    def __init__(self, url: str, token: str, ca_file: Path) -> None:
        self.url = url
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=50)
        self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None
        return self._session

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Object]:
        """(status, answer); status 0 where there is no server."""
        data = None if body is None else json.dumps(body).encode()
        try:
            async with (
                asyncio.timeout(10.0),
                self.session.request(method, self.url + path, data=data, headers={"Content-Type": kind}) as answer,
            ):
                text = await answer.text()
                return answer.status, json.loads(text) if answer.content_type.endswith("json") else {"message": text}
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as err:
            return 0, {"message": repr(err)}

    async def insist(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> int:
        """Ask until a server has answered what is no passing trouble; the status."""
        while True:
            status, _ = await self.ask(method, path, body, kind)
            if status and status < 500 and status != 429:
                return status
            await asyncio.sleep(0.5)


class Feed:
    """Calls ``heard(type, object, before)`` for what exists and for each change; DELETED with the last state known."""

    def __init__(
        self,
        api: Api,
        path: str,
        heard: Callable[[str, Object, Object | None], None],
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """``after`` is called at each moment that the cluster was in: after a whole list, after each change."""
        self._after = after
        self._api = api
        self._path = path
        self._heard = heard
        self.known: dict[str, Object] = {}
        self.listed = asyncio.Event()

    async def run(self) -> None:
        version = ""
        while True:
            if not version:
                version = await self._list()
                if not version:
                    await asyncio.sleep(RETRY_S)
                    continue
                self.listed.set()
            version = await self._watch(version)
            await asyncio.sleep(RETRY_S)

    async def _list(self) -> str:
        status, found = await self._api.ask("GET", self._path)
        if status != 200:
            return ""
        seen = {item["metadata"]["uid"]: item for item in found["items"]}
        for uid in [uid for uid in self.known if uid not in seen]:
            self._tell("DELETED", self.known[uid])
        for item in seen.values():
            self._tell("MODIFIED", item)
        self._after()
        return str(found["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> str:
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion={version}"
        limit = aiohttp.ClientTimeout(total=None, sock_read=IDLE_S, sock_connect=5.0)
        try:
            async with self._api.session.get(self._api.url + self._path + query, timeout=limit) as answer:
                if answer.status != 200:
                    return ""
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            return ""
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            self._tell(event["type"], event["object"])
                            self._after()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            pass
        return version

    def _tell(self, kind: str, found: Object) -> None:
        meta = found["metadata"]
        before = self.known.get(meta["uid"])
        if kind == "DELETED":
            if self.known.pop(meta["uid"], None) is not None:
                self._heard(kind, found, before)
        elif before is None or before["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            self.known[meta["uid"]] = found
            self._heard("MODIFIED" if before else "ADDED", found, before)
