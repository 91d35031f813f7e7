"""Follows one resource of an API server: lists and watches the resource, and reports every real change exactly once.

The watcher runs one Reflector per resource on a real or simulated ApiTransport. A reflector survives every fault of a
server or network, and ends only by being closed or cancelled. A reflector does not interpret objects and logs nothing:
``WatchHooks`` report its events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

from muster.kube import trouble
from muster.kube.backoff import AWAY_CAP_S, STARTING_S, Backoff
from muster.kube.deltas import Absent, Delete, Delta, ListSynced
from muster.kube.hooks import NoWatchHooks, WatchHooks
from muster.kube.objects import (
    ListPage,
    Malformed,
    MalformedError,
    ObjectMeta,
    WatchEvent,
    decode_event,
    decode_meta,
    decode_page,
    decode_status,
    decode_version,
)
from muster.kube.store import ObjectStore
from muster.kube.trouble import RestartCause, WatchTrouble
from muster.model.api import ApiResource
from muster.ports import ApiStatusError, ApiTransport, ApiUnreachableError

PAGE_SIZE = 500
LIST_TIMEOUT_S = 60.0
WATCH_TIMEOUT_S = (300, 600)
"""Range of the timeoutSeconds asked of the server; drawn again for each watch so that watches do not end together."""
IDLE_LIMIT_S = 150.0
"""More than twice the minute between bookmarks."""
HEALTHY_S = 120.0
"""A watch that lived this long takes back the back-off, also without an event. Servers send bookmarks every minute:
one that sent nothing at all in this time is not to be trusted, and listed."""
MIN_GAP_S = 0.2
"""Between the starts of two watches, whatever happens in them."""
RELIST_GAP_S = 10.0
"""A watch that ends sooner than this with 410 does not earn an immediate list, even if it delivered something."""
ABSENT_S = 60.0
FORBIDDEN_BASE_S, FORBIDDEN_CAP_S = 5.0, 60.0
"""Where the server was not away: permissions do not come back by asking often."""
RETRY_AFTER_MAX_S = 300.0
STRIKES = 3
"""Watches in a row that fail at one resourceVersion until a list is tried; expired lists until one without pages is."""
RECENT_EVENTS = 1024

T = TypeVar("T")


class Reflector:
    """One resource, or the part within the namespace and the selectors.

    ``selectors``: query parameters of list and watch, ``labelSelector`` and ``fieldSelector``. ``known``: objects
    reported and not deleted by an earlier life; vanished objects are deleted after the list, unchanged objects not
    reported again. ``clock``: seconds, monotonic; the event loop's by default.
    """

    def __init__(
        self,
        transport: ApiTransport,
        resource: ApiResource,
        selectors: Mapping[str, str] | None = None,
        *,
        namespace: str = "",
        known: Iterable[ObjectMeta] = (),
        page_size: int = PAGE_SIZE,
        hooks: WatchHooks | None = None,
        rng: Random | None = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.store = ObjectStore(known)
        self._transport = transport
        self._path = resource.path(namespace)
        self._name = str(resource)
        self._selectors = dict(selectors or {})
        self._page_size = page_size
        self._hooks: WatchHooks = hooks or NoWatchHooks()
        self._rng = rng or Random()  # noqa: S311 - spreads load, guards nothing
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._sleep = sleep
        self._backoff = Backoff(self._rng)
        """Of watches, and of lists because of watches: a list that works proves nothing for the next watch."""
        self._slow = Backoff(self._rng, base_s=FORBIDDEN_BASE_S, cap_s=FORBIDDEN_CAP_S, floor=0.5)
        self._away = Backoff(self._rng, cap_s=AWAY_CAP_S, floor=0.5)
        self._away_at = float("-inf")
        """When it was away last."""
        self._rv = ""
        """Where the next watch goes on: version of the last list, event or bookmark. Compared for equality only."""
        self._recent: dict[tuple[str, str, bool], None] = {}
        """(key, resourceVersion, deleted) of the last RECENT_EVENTS events, oldest first."""
        self._ready = False
        self._lists = 0
        self._strikes = 0

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        """All changes, for ever: the changes of a first list, ListSynced, the changes of watches, of a new list, and
        so on.

        Per object in the order of the server; a Delete only of a reported object; nothing for an unchanged object.
        Close the iterator (``contextlib.aclosing``) to end the connection at once.
        """
        while True:
            async with _closing(self._list()) as listed:
                async for delta in listed:
                    yield delta
            async with _closing(self._watch()) as watched:
                async for delta in watched:
                    yield delta

    # ---- list

    async def _list(self) -> AsyncIterator[Delta]:
        """How a complete list differs from the store, page by page, then ListSynced. Tries until it is done."""
        backoff = Backoff(self._rng)
        seen: set[str] = set()
        token = ""
        expired = 0
        absent = False
        while True:
            page = await self._page(token, whole=expired >= STRIKES)
            if isinstance(page, ListPage):
                backoff.reset()
                for raw in page.items:
                    for delta in self.store.observe(decode_meta(raw), raw, seen):
                        yield delta
                token = page.token
                if not token:
                    break
            elif page.cause is RestartCause.ABSENT:
                token = ""
                seen.clear()
                if not absent:
                    absent = True
                    yield Absent(len(self.store))
                await self._pause(page, self._delay_s(page, lambda: ABSENT_S))
            else:
                if page.cause in {RestartCause.EXPIRED, RestartCause.REFUSED}:
                    token = ""
                    seen.clear()
                    expired += page.cause is RestartCause.EXPIRED
                await self._pause(page, self._delay_s(page, backoff.next_s))
        for meta in self.store.others(seen):
            self.store.drop(meta)
            yield Delete(meta)
        self._rv = page.resource_version
        self._recent.clear()
        self._lists += 1
        self._hooks.sized(self._name, len(self.store))
        self._set_ready(True)
        yield ListSynced(len(self.store), relist=self._lists > 1, resource_version=self._rv)

    async def _page(self, token: str, *, whole: bool) -> ListPage | WatchTrouble:
        """A page of a consistent list, without a resourceVersion in the request. ``whole`` asks for all at once."""
        query = dict(self._selectors)
        if not whole:
            query["limit"] = str(self._page_size)
        if token:
            query["continue"] = token
        try:
            answer = await self._transport.request("GET", self._path, query=query, timeout_s=LIST_TIMEOUT_S)
            self._hooks.heard(self._name, self._clock())
            if not answer.ok:
                return trouble.from_response(answer)
            page = decode_page(answer.body)
        except ApiUnreachableError as err:
            return WatchTrouble(RestartCause.UNREACHABLE, str(err))
        except MalformedError as err:
            return WatchTrouble(RestartCause.GARBLED, str(err))
        self._slow.reset()
        self._away.reset()
        return page

    # ---- watch

    async def _watch(self) -> AsyncIterator[Delta]:
        """What happens, connection after connection, until only a new list can help."""
        while True:
            started, rv, end, silent = self._clock(), self._rv, WatchTrouble(RestartCause.ENDED), True
            try:
                lines = self._transport.watch(self._path, query=self._watch_query(), idle_limit_s=IDLE_LIMIT_S)
                async with _closing(lines):
                    async for line in lines:
                        self._hooks.heard(self._name, self._clock())
                        silent = False
                        event = decode_event(line)
                        if event.type == "ERROR":
                            end = trouble.from_event(decode_status(event.object))
                            break
                        self._slow.reset()
                        self._set_ready(True)
                        for delta in self._apply(event):
                            yield delta
            except ApiUnreachableError as err:
                end = WatchTrouble(RestartCause.UNREACHABLE, str(err))
            except ApiStatusError as err:
                self._hooks.heard(self._name, self._clock())
                end = trouble.from_error(err)
            except MalformedError as err:
                end = WatchTrouble(RestartCause.GARBLED, str(err))
            lived_s = self._clock() - started
            productive = self._rv != rv and (end.cause is not RestartCause.EXPIRED or lived_s >= RELIST_GAP_S)
            healthy = productive or lived_s >= HEALTHY_S
            if healthy:
                self._backoff.reset()
                self._strikes = 0
            if healthy and end.cause is RestartCause.ENDED:
                self._set_ready(True)
            if healthy and end.cause in {RestartCause.ENDED, RestartCause.EXPIRED}:
                await self._pause(end, max(0.0, MIN_GAP_S - lived_s))
            else:
                await self._pause(end, max(self._delay_s(end, self._backoff.next_s), MIN_GAP_S - lived_s))
            # A server whose store was set back takes a position from its future, and says nothing until it gets there.
            if self._must_relist(end.cause) or (silent and lived_s >= HEALTHY_S):
                return

    def _must_relist(self, cause: RestartCause) -> bool:
        """Whether the watch cannot go on from its version, or has tried too often."""
        if cause in {RestartCause.TOO_NEW, RestartCause.GARBLED, RestartCause.STREAM_ERROR}:
            self._strikes += 1
        if cause in {RestartCause.EXPIRED, RestartCause.REFUSED, RestartCause.ABSENT} or self._strikes >= STRIKES:
            self._strikes = 0
            return True
        return False

    def _watch_query(self) -> dict[str, str]:
        query = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._rng.randint(*WATCH_TIMEOUT_S)),
        }
        if self._rv:
            query["resourceVersion"] = self._rv
        return query

    def _apply(self, event: WatchEvent) -> list[Delta]:
        """The deltas of an event; the position moves on past the event. Unknown types of events change nothing."""
        if event.type == "BOOKMARK":
            self._rv = decode_version(event.object) or self._rv
            return []
        if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
            return []
        deleted = event.type == "DELETED"
        decoded = decode_meta(event.object)
        meta = decoded.meta if isinstance(decoded, Malformed) else decoded
        if meta is not None and meta.resource_version:
            self._rv = meta.resource_version
            if self._repeated((meta.uid or meta.path, meta.resource_version, deleted)):
                return []
        deltas = (self.store.remove if deleted else self.store.observe)(decoded, event.object)
        if deltas:
            self._hooks.sized(self._name, len(self.store))
        return deltas

    def _repeated(self, event: tuple[str, str, bool]) -> bool:
        """Whether this very event came before, not long ago."""
        if event in self._recent:
            return True
        self._recent[event] = None
        if len(self._recent) > RECENT_EVENTS:
            del self._recent[next(iter(self._recent))]
        return False

    # ---- both

    async def _pause(self, end: WatchTrouble, delay_s: float) -> None:
        """Tell of the end of a list or watch and wait: ``delay_s``, or as long as the server says."""
        self._hooks.restarted(self._name, end.cause, end.detail)
        if end.cause in {RestartCause.FORBIDDEN, RestartCause.ABSENT, RestartCause.REFUSED}:
            self._set_ready(False, f"{end.cause}: {end.detail}")
        delay_s = max(delay_s, min(end.retry_after_s or 0.0, RETRY_AFTER_MAX_S))
        if delay_s > 0.0:
            await self._sleep(delay_s)

    def _delay_s(self, end: WatchTrouble, usual: Callable[[], float]) -> float:
        """How long to wait after an end; ``usual``: where the server is there and knows our rights.

        A server that was away a moment ago may forbid, or not know, what it does not once it is up. What was waited
        meanwhile says nothing about the first end after that: mostly it has forgotten our position.
        """
        away, now = end.cause in {RestartCause.UNREACHABLE, RestartCause.UNAVAILABLE}, self._clock()
        if away:
            self._away_at = now
        starts = end.cause in {RestartCause.FORBIDDEN, RestartCause.ABSENT} and now - self._away_at < STARTING_S
        if away or starts:
            return self._away.next_s()
        return self._slow.next_s() if end.cause is RestartCause.FORBIDDEN else usual()

    def _set_ready(self, ready: bool, why: str = "") -> None:
        if ready != self._ready:
            self._ready = ready
            self._hooks.ready(self._name, ready, why)


@asynccontextmanager
async def _closing(source: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close a generator on the way out; other iterators have nothing to close."""
    try:
        yield source
    finally:
        if (close := getattr(source, "aclose", None)) is not None:
            await close()
