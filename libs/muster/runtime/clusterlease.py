"""One Muster per cluster: a Lease object on the cluster, held by the log that acts there.

Leases in NATS keep the peace among the replicas of one log; two Musters with a NATS each know nothing of one another.
So a process that writes to a cluster first takes the Lease ``muster-system/muster`` in the name of its log. All
replicas of one log share the lease, and writes of another log wait. The holder writes only while enough of the lease
is left for a request to end in time, by the holder's own monotonic clock. A waiting write gets the error of an API
server that cannot be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from muster.model.api import LEASES, NAMESPACES
from muster.ports import ApiResponse, ApiTransport, ApiUnreachableError, Clock, LogIdentity

NAMESPACE, NAME = "muster-system", "muster"
PATH = LEASES.path(NAMESPACE, NAME)
DURATION_S = 30.0
RENEW_S = 5.0
AGAIN_S = 1.0
"""Between two tries while it is not held: every write waits for it."""
RETRIES = 3
"""How often it is tried again at once when another process was faster."""
REQUEST_S = 10.0
"""The longest request: nothing is sent with less than this left of the lease."""


def holder_of(identity: LogIdentity) -> str:
    """The holder of the lease for a log, as every user may read it: ``main/4f2e…``, its cell and its log."""
    return f"{identity.cell}/{identity.log_id}"


class ClusterLease:
    """The lease of one process on one cluster. :meth:`run` keeps it until cancelled."""

    def __init__(
        self,
        transport: ApiTransport,
        identity: LogIdentity,
        clock: Clock,
        tell: Callable[..., object],
        parent: str = "",
    ) -> None:
        """``tell``: takes an event and its values, for the log of the process; ``parent``: the log before this one."""
        self._transport = transport
        self._holder = holder_of(identity)
        self._before = {
            f"{identity.cell}/{log_id}" for log_id in (parent, *(generation.log_id for generation in identity.earlier))
        }
        """Earlier generations of this log, sealed or given up: what they held is ours."""
        self._clock = clock
        self._tell = tell
        self._until = 0.0
        self._changed = asyncio.Event()
        self._rival = ""
        self._seen: tuple[str, float] = ("", 0.0)
        """The resourceVersion seen last, and since when by our own clock: the clocks of others count for nothing."""

    @property
    def missing(self) -> str:
        """Why nothing may be written now; empty while the lease is held."""
        return "" if self.held else self._rival or f"Lease {NAMESPACE}/{NAME} is not held"

    @property
    def held(self) -> bool:
        """Whether a request may be sent now."""
        return self._now() < self._until - REQUEST_S

    async def until_held(self, timeout_s: float) -> None:
        """Wait until a request may be sent. Raises ApiUnreachableError, naming the holder, after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.held:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise ApiUnreachableError(f"nothing is written: {self.missing}") from None

    async def run(self) -> None:
        """Take the lease as soon as it is free, and renew it."""
        told, away = "", False
        while True:
            try:
                tries = 0
                while (rival := await self._take()) is None and tries < RETRIES:
                    tries += 1
                self._rival, away = rival or "", False
            except ApiUnreachableError as err:
                if not away:
                    self._tell("cluster_lease_unreachable", why=str(err))
                away = True
            if self._rival != told:
                told = self._rival
                self._tell("cluster_lease_missing" if told else "cluster_lease_held", holder=self._holder, why=told)
            await asyncio.sleep(RENEW_S if self.held else AGAIN_S)

    async def release(self) -> None:
        """Give the lease up if it is ours, so that the next holder need not wait."""
        held, self._until = self._until, 0.0
        if not held:
            return
        answer = await self._transport.request("GET", PATH, timeout_s=REQUEST_S)
        lease = msgspec.json.decode(answer.body) if answer.ok else {}
        if (lease.get("spec") or {}).get("holderIdentity") == self._holder:
            await self._put({**lease, "spec": {**lease["spec"], "holderIdentity": ""}})

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _take(self) -> str | None:
        """One round: renew, take over, or say why not; None when another process was faster."""
        asked = self._now()
        answer = await self._transport.request("GET", PATH, timeout_s=REQUEST_S)
        if answer.status == 404:
            return await self._make(asked)
        if not answer.ok:
            return f"Lease {NAMESPACE}/{NAME} may not be read (HTTP {answer.status}): kubectl apply -k deploy/rbac"
        lease: dict[str, Any] = msgspec.json.decode(answer.body)
        spec, rv = lease.get("spec") or {}, lease["metadata"]["resourceVersion"]
        holder = spec.get("holderIdentity") or ""
        if self._seen[0] != rv:
            self._seen = (rv, asked)
        if holder and holder != self._holder and holder not in self._before:
            lasts = float(spec.get("leaseDurationSeconds") or DURATION_S)
            if asked < self._seen[1] + lasts:
                return (
                    f"another Muster acts on this cluster: Lease {NAMESPACE}/{NAME} is held by {holder}; stop that one "
                    f"(scale its actuator to 0), or leave acting to it"
                )
        moved = int(spec.get("leaseTransitions") or 0) + (holder != self._holder)
        body = {**lease, "spec": self._spec(spec if holder == self._holder else {}, moved)}
        return self._answered(await self._put(body), asked)

    async def _make(self, asked: float) -> str | None:
        meta = {"name": NAME, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "muster"}}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": self._spec({}, 0)}
        answer = await self._post(LEASES.path(NAMESPACE), body)
        if answer.status == 404:
            await self._post(NAMESPACES.path(), {"metadata": {"name": NAMESPACE, "labels": meta["labels"]}})
            answer = await self._post(LEASES.path(NAMESPACE), body)
        return self._answered(answer, asked)

    def _answered(self, answer: ApiResponse, asked: float) -> str | None:
        if answer.ok:
            self._until = asked + DURATION_S
            self._changed.set()
            return ""
        if answer.status == 409:  # A replica of ours, or a rival.
            return None
        return f"Lease {NAMESPACE}/{NAME} may not be written (HTTP {answer.status}): kubectl apply -k deploy/rbac"

    def _spec(self, known: Mapping[str, Any], transitions: int) -> dict[str, Any]:
        now = datetime.fromtimestamp(self._clock.now() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "acquireTime": now,
            **known,
            "holderIdentity": self._holder,
            "leaseDurationSeconds": int(DURATION_S),
            "leaseTransitions": transitions,
            "renewTime": now,
        }

    async def _put(self, body: dict[str, Any]) -> ApiResponse:
        """Replace the lease as it was read: a conflict changes nothing."""
        return await self._transport.request("PUT", PATH, body=msgspec.json.encode(body), timeout_s=REQUEST_S)

    async def _post(self, path: str, body: dict[str, Any]) -> ApiResponse:
        return await self._transport.request("POST", path, body=msgspec.json.encode(body), timeout_s=REQUEST_S)


class Fenced:
    """An ApiTransport whose writes wait for the lease of the cluster."""

    def __init__(self, transport: ApiTransport, lease: ClusterLease) -> None:
        self._transport = transport
        self._lease = lease

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_S,
    ) -> ApiResponse:
        """As the transport's own; a write first waits until the lease is held. Raises ApiUnreachableError."""
        if method != "GET":
            await self._lease.until_held(timeout_s)
        return await self._transport.request(
            method, path, query=query, body=body, content_type=content_type, timeout_s=min(timeout_s, REQUEST_S)
        )

    def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        """As the transport's own."""
        return self._transport.watch(path, query=query, idle_limit_s=idle_limit_s)
