"""The Authorization header of each request, renewed before it ends and after a 401.

``config`` builds a Credential from a way to load a header (a token file, a kubeconfig user); the transport asks it
for every request. Knows nothing of where headers come from.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

EXPIRY_SKEW_S = 300.0
"""Renew so long before the end, but never before 80 % of the life is over."""
RETRY_S = 10.0
"""Between two tries to load, whatever asks for them: a plugin may take seconds and open a browser."""
LOAD_TIMEOUT_S = 60.0


class CredentialError(Exception):
    """No valid credential could be had; the cause says why. Worth trying again later."""


class Loaded(Struct, frozen=True):
    """A header value such as ``Bearer eyJ…`` (None: send none) and its time of validity."""

    header: str | None
    valid_s: float | None = None
    """Seconds until it is refused; None when it does not say."""
    recheck_s: float | None = None
    """Look again after so many seconds although it is valid: the source may have something newer. None: never."""


class Credential:
    """A source of headers, shared by all requests of a transport.

    ``load``: gives the header again; None when no other header is possible. Raises CredentialError, OSError or
    ValueError. ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        first: Loaded,
        load: Callable[[], Awaitable[Loaded]] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        load_timeout_s: float = LOAD_TIMEOUT_S,
    ) -> None:
        self._load = load
        self._clock = clock
        self._load_timeout_s = load_timeout_s
        self._lock = asyncio.Lock()
        self._tried_s = float("-inf")
        self._take(first)

    def _take(self, loaded: Loaded) -> None:
        now = self._clock()
        self._loaded = loaded
        self._ends_s = now + loaded.valid_s if loaded.valid_s is not None else float("inf")
        early = min(EXPIRY_SKEW_S, 0.2 * loaded.valid_s) if loaded.valid_s is not None else 0.0
        recheck = now + loaded.recheck_s if loaded.recheck_s is not None else float("inf")
        self._due_s = min(self._ends_s - early, recheck)

    async def header(self) -> str | None:
        """The value to send now. Raises CredentialError when the last header has ended and loading another failed."""
        if self._load is not None and self._clock() >= self._due_s:
            async with self._lock:
                if self._clock() >= self._due_s:
                    error = await self._try_load()
                    if error is not None and self._clock() >= self._ends_s:
                        raise CredentialError("cannot renew the credential, and the last one has ended") from error
        return self._loaded.header

    async def renew(self, refused: str | None) -> bool:
        """After a 401 for ``refused``: whether there is another header now, so that trying again makes sense."""
        if self._load is None:
            return False
        async with self._lock:
            if self._loaded.header == refused:
                await self._try_load()
        return self._loaded.header != refused

    async def _try_load(self) -> Exception | None:
        """Load unless there was a try a moment ago; returns the fault. The last header stays until there is another."""
        assert self._load is not None, "only called with a source"
        if self._clock() < self._tried_s + RETRY_S:
            return CredentialError(f"tried less than {RETRY_S:g} s ago")
        self._tried_s = self._clock()
        try:
            async with asyncio.timeout(self._load_timeout_s):
                self._take(await self._load())
        except (CredentialError, OSError, ValueError) as err:  # TimeoutError is an OSError
            self._due_s = self._clock() + RETRY_S
            return err
        return None
