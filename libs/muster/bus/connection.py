"""A connection to NATS: requests over one reply inbox, plain sinks, and failures that are never swallowed.

Everything else in this package talks through this module. nats-py does the parts that work well (protocol, TLS,
reconnecting). Refused are the parts that lose messages silently: subscription queues that drop when full, requests
that wait for a time limit although the connection is gone, and ``flush()``, which is no barrier there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from muster.bus.beat import left_s
from muster.bus.errors import BusError, ClosedError, ConnectError, ForbiddenError, UnansweredError
from muster.bus.inbox import Inbox, Sink
from muster.bus.tlsclient import PlainServerError, TlsClient, tls_required
from muster.model.language import say

MIN_PAYLOAD = 1024 * 1024
"""The least ``max_payload`` of a server: a commit of 512 KB must come back inside a base64 answer."""

CLOSE_LIMIT_S = 2.0
WATCH_S = 1.0
USED = 500
"""Subjects that are remembered: what is denied is denied at once."""

Notice = Callable[[str, Mapping[str, object]], None]
"""Told what happens to the connection: a snake-case event name and its fields."""


def _ignore(event: str, fields: Mapping[str, object]) -> None:
    pass


INBOX = "_INBOX"
"""Where answers come in, unless an account says otherwise."""
API_PREFIX = "$JS.API"
"""Where the JetStream API is, in the account that has the streams."""


class Connection:
    """A connection that reconnects for ever. Made by :func:`connect`; close it with :meth:`close`."""

    def __init__(self, client: Client, name: str, notice: Notice, api_prefix: str = API_PREFIX) -> None:
        self.name = name
        self.api_prefix = api_prefix
        self.failure: BusError | None = None
        """Why the connection cannot be used any more; None while it can."""
        self.epoch = 0
        """Counts the times it was established: another number means that the server may be another one."""
        self.notice = notice
        self.user = f"connection {name}"
        """Whose rights it has: named where it lacks one."""
        self.allowing = "allow it there, and have the servers read it again"
        """How it is given a right that it lacks."""
        self._used: deque[str] = deque(maxlen=USED)
        self._client = client
        self._inbox = Inbox()
        self._listeners: set[Callable[[], None]] = set()
        self._up = asyncio.Event()
        self._closing = False
        self._watchdog: asyncio.TimerHandle | None = None
        self._stuck = 0
        self._last_error = ""

    @property
    def connected(self) -> bool:
        return self._up.is_set() and self.failure is None

    @property
    def max_payload(self) -> int:
        """Largest message the server takes, headers included, in bytes."""
        return self._client.max_payload

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate of the server, in hexadecimal; empty without TLS."""
        writer = self._writer()
        session = writer.get_extra_info("ssl_object") if writer is not None else None
        certificate = session.getpeercert(binary_form=True) if session is not None else None
        return hashlib.sha256(certificate).hexdigest() if certificate else ""

    async def call(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None, *, timeout_s: float = 5.0
    ) -> Msg:
        """Send a request and return its answer, which may be the server's "no responders" (see no_responders).

        Waits for the connection to be up first, all within ``timeout_s``. Raises UnansweredError when no answer
        came, at once when the connection is lost, and the failure of the connection when it has failed.
        """
        future: asyncio.Future[Msg] | None = None
        try:
            async with asyncio.timeout(timeout_s):
                future = await self.send(subject, payload, headers)
                return await future
        except TimeoutError:
            raise UnansweredError(
                say("no answer on {subject} within {timeout_s:g} s", subject=subject, timeout_s=timeout_s)
            ) from None
        finally:
            if future is not None and not future.done():
                future.cancel()

    async def send(self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None) -> asyncio.Future[Msg]:
        """Send a request; the future holds its answer. Cancel the future to forget about it."""
        await self.wait_up()
        reply, future = self._inbox.expect()
        try:
            await self.publish(subject, payload, headers, reply=reply)
        except BaseException:
            future.cancel()
            raise
        return future

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None, *, reply: str = ""
    ) -> None:
        """Hand a message to the socket, with no word on whether it arrives. Raises UnansweredError while down."""
        if self.failure is not None:
            raise self.failure
        self._used.append(subject)
        try:
            await self._client.publish(subject, payload, reply, dict(headers) if headers else None)
        except nats.errors.MaxPayloadError as err:
            raise BusError(
                say(
                    "cannot send {size} bytes on {subject}: the server takes {max_payload}; raise "
                    "max_payload in its configuration",
                    size=len(payload),
                    subject=subject,
                    max_payload=self.max_payload,
                )
            ) from err
        except (nats.errors.OutboundBufferLimitError, nats.errors.ConnectionClosedError) as err:
            raise UnansweredError(say("cannot send on {subject}: not connected", subject=subject)) from err

    async def subscribe(self, subject: str, take: Callable[[Msg], None]) -> Subscription:
        """Call ``take`` with every message on ``subject``, in the order of their arrival, from the reading task."""
        await self.wait_up()
        self._used.append(subject)
        return await self._client.subscribe(subject, future=Sink(take).as_future())

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; nothing is delivered to it afterwards."""
        # An error says that the connection is closed or the subscription gone: what was asked for is so.
        with contextlib.suppress(nats.errors.Error):
            await subscription.unsubscribe()

    def new_inbox(self) -> str:
        """A subject of our own."""
        return self._client.new_inbox()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` whenever the connection is lost, is back or has failed; returns how to stop that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    async def wait_up(self) -> None:
        """Return while connected; raises the failure of the connection when it has failed."""
        while True:
            if self.failure is not None:
                raise self.failure
            if self._up.is_set():
                return
            await self._up.wait()

    async def close(self) -> None:
        """Close it; whatever still waits raises ClosedError."""
        if self._closing:
            return
        self._closing = True
        if self._watchdog is not None:
            self._watchdog.cancel()
        self.fail(ClosedError(f"connection {self.name} is closed"))
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self._client.close()
        except AssertionError:
            pass  # What nats-py says when it never came as far as connecting.
        except (TimeoutError, OSError, nats.errors.Error):
            self._abort()  # The peer does not let go; we are done with it.

    def fail(self, failure: BusError) -> None:
        """Make every present and later use of the connection raise ``failure``."""
        if self.failure is None:
            self.failure = failure
            if not self._closing:
                self.notice("bus_connection_failed", {"error": str(failure)})
        self._inbox.fail(self.failure)
        self._up.set()
        self._tell()

    async def _start(self) -> None:
        self._inbox.subject = self._client.new_inbox()
        self._up.set()
        self.epoch = 1
        await self.subscribe(f"{self._inbox.subject}.*", self._inbox.take)
        self._watch()

    def _watch(self) -> None:
        """Break off a lost connection that nats-py wants to close in good order.

        nats-py first wants to send its buffer, and a peer that takes nothing more never lets nats-py finish: the
        connection would stay "reconnecting" for ever.
        """
        if self._closing:
            return
        waits = self._client.is_reconnecting and self._up.is_set() and self.failure is None
        self._stuck = self._stuck + 1 if waits else 0
        if self._stuck > 1:
            self._abort()
        loop = asyncio.get_running_loop()
        self._watchdog = loop.call_later(left_s(loop.time(), WATCH_S), self._watch)

    def _writer(self) -> asyncio.StreamWriter | None:
        # There is no public way to the socket.
        writer = getattr(getattr(self._client, "_transport", None), "_io_writer", None)
        return writer if isinstance(writer, asyncio.StreamWriter) else None

    def _abort(self) -> None:
        writer = self._writer()
        if writer is not None:
            writer.transport.abort()

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()

    # --- what nats-py reports ---------------------------------------------------------------------------------

    async def _on_error(self, error: Exception) -> None:
        text = str(error)
        if "permissions violation" in text.lower():
            self.fail(self._forbidden(text))
        elif isinstance(error, nats.errors.SlowConsumerError):
            self.fail(
                BusError(
                    say(
                        "connection {name} dropped a message of {subject}: it was read too slowly",
                        name=self.name,
                        subject=error.subject,
                    )
                )
            )
        elif "authorization" in text.lower() or "authentication" in text.lower():
            self.fail(
                ConnectError(
                    say("server refuses connection {name}: {words}; check the credentials", name=self.name, words=text)
                )
            )
        elif _text(error) != self._last_error:
            # Every attempt to reconnect may say the same.
            self._last_error = _text(error)
            self.notice("bus_connection_error", {"error": self._last_error})

    def _forbidden(self, text: str) -> ForbiddenError:
        """nats-py says in lower case what is denied: it is one of the subjects that were used last."""
        quoted = re.search(r'"([^"]*)"', text)
        denied = quoted[1] if quoted else ""
        subject = next((used for used in reversed(self._used) if used.lower() == denied), denied)
        verb = "subscribe to" if "subscription" in text.lower() else "publish on"
        theirs = denied.startswith(("_inbox", "$js.api."))
        settings = "set nats_inbox_prefix and nats_api_prefix to those of the user, or " if theirs else ""
        return ForbiddenError(
            say(
                "{user} may not {verb} {subject!r}: accounts.conf of the NATS servers does not allow it; "
                "{settings}{allowing}",
                user=self.user,
                verb=verb,
                subject=subject,
                settings=settings,
                allowing=self.allowing,
            ),
            subject,
        )

    async def _on_disconnect(self) -> None:
        if self._closing or self.failure is not None:
            return
        self._up.clear()
        self.notice("bus_disconnected", {})
        self._inbox.fail(UnansweredError(say("connection lost before the answer")))
        self._tell()

    async def _on_reconnect(self) -> None:
        self.epoch += 1
        self._last_error = ""
        self._up.set()
        self.notice(
            "bus_reconnected", {"server": str(self._client.connected_url and self._client.connected_url.netloc)}
        )
        self._tell()

    async def _on_closed(self) -> None:
        if not self._closing:
            cause = self._client.last_error
            self.fail(ClosedError(f"server closed connection {self.name}: {cause or 'no reason given'}"))


async def connect(
    url: str | Sequence[str],
    *,
    name: str,
    credentials: Path | None = None,
    nkey_seed: Path | None = None,
    inbox_prefix: str = INBOX,
    api_prefix: str = API_PREFIX,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    timeout_s: float = 10.0,
    reconnect_wait_s: float = 0.25,
    ping_interval_s: float = 3.0,
    notice: Notice = _ignore,
) -> Connection:
    """Connect to a NATS server or cluster, and stay connected from then on.

    ``url``: one or several ``nats://[user:password@]host:port``. ``credentials``: a .creds file (JWT and seed);
    ``nkey_seed``: a file with a bare seed. ``inbox_prefix``: where answers come in, for accounts that may only
    subscribe below a prefix of their own; ``api_prefix``: where they find the JetStream API. ``server_name``: what to
    expect in the certificate, where it is not the host of ``url``. ``tls``, ``server_name`` or a ``tls://`` address
    require TLS: a server without TLS is refused, at a reconnect too. An unresponsive server is given up after three
    silent pings.
    Raises ConnectError when none of the servers accepts us within ``timeout_s``, at once when one of them has no TLS
    and TLS is required, or when it takes only messages smaller than MIN_PAYLOAD.
    """
    for file in (credentials, nkey_seed):
        if file is not None and not file.is_file():
            raise ConnectError(
                say("cannot connect as {name}: there is no credentials file {file}", name=name, file=file)
            )
    urls = [url] if isinstance(url, str) else list(url)
    if any(url.startswith(("ws://", "wss://")) for url in urls):
        raise ConnectError(
            say("cannot connect as {name}: websockets are not used; name the server as nats:// or tls://", name=name)
        )
    where = ", ".join(redacted(url) for url in urls)
    client = TlsClient(required=tls_required(urls, tls, server_name))
    connection = Connection(client, name, notice, api_prefix)
    errors: list[str] = []

    async def on_error(error: Exception) -> None:
        errors.append("connection refused" if isinstance(error, ConnectionRefusedError) else _text(error))
        await connection._on_error(error)

    attempt = asyncio.ensure_future(
        client.connect(
            servers=urls,
            name=name,
            error_cb=on_error,
            disconnected_cb=connection._on_disconnect,
            reconnected_cb=connection._on_reconnect,
            closed_cb=connection._on_closed,
            # nats-py hands these to asyncio and to comparisons only: fractions are fine.
            connect_timeout=cast(int, min(2.0, timeout_s)),
            reconnect_time_wait=cast(int, reconnect_wait_s),
            ping_interval=cast(int, ping_interval_s),
            max_outstanding_pings=2,
            max_reconnect_attempts=-1,
            inbox_prefix=inbox_prefix,
            user_credentials=str(credentials) if credentials else None,
            nkeys_seed=str(nkey_seed) if nkey_seed else None,
            tls=tls,
            tls_hostname=server_name or None,
        )
    )
    refused = asyncio.ensure_future(connection._up.wait())  # Only a failure sets it before _start does.
    try:
        await asyncio.wait({attempt, refused}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if connection.failure is not None:
            raise ConnectError(
                say(
                    "cannot connect to {where} as {name}: {failure}", where=where, name=name, failure=connection.failure
                )
            )
        if not attempt.done():
            raise ConnectError(
                say(
                    "cannot connect to {where} as {name} within {timeout_s:g} s: {errors}; check the address "
                    "and that a NATS server runs there",
                    where=where,
                    name=name,
                    timeout_s=timeout_s,
                    errors=errors[-1] if errors else say("no answer"),
                )
            )
        await attempt
        if client.max_payload < MIN_PAYLOAD:
            raise ConnectError(
                say(
                    "server at {where} takes messages up to {max_payload} bytes and {min_payload} are "
                    "needed; set max_payload in its configuration (8MB is what Muster's own servers have)",
                    where=where,
                    max_payload=client.max_payload,
                    min_payload=MIN_PAYLOAD,
                )
            )
        await connection._start()
    except BaseException as err:
        attempt.cancel()
        await asyncio.wait({attempt})
        await connection.close()
        if isinstance(err, ImportError):
            raise ConnectError(
                say(
                    "cannot use {credentials}: install nats-py[nkeys] for credentials",
                    credentials=credentials or nkey_seed,
                )
            ) from err
        if isinstance(err, (OSError, ValueError, PlainServerError, nats.errors.Error)):
            raise ConnectError(
                say("cannot connect to {where} as {name}: {err}", where=where, name=name, err=err)
            ) from err
        raise
    finally:
        refused.cancel()
    return connection


def no_responders(message: Msg) -> bool:
    """Whether an answer is the server's word that the subject has no subscriber."""
    return not message.data and (message.headers or {}).get("Status") == "503"


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def redacted(url: str) -> str:
    """An address without its user and password."""
    return re.sub(r"//[^@/]*@", "//***@", url)
