"""The client of NATS that keeps TLS: where a caller asks for TLS, a server without TLS learns nothing from us.

nats-py upgrades a connection only if the server says so in its first line, which anyone between client and server may
change. The nkey signature and the user's name follow in the CONNECT command, so the check is made before this command.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client


class PlainServerError(Exception):
    """The server speaks no TLS, and the configuration requires TLS."""


def tls_required(urls: Sequence[str], tls: ssl.SSLContext | None, server_name: str = "") -> bool:
    """Whether a configuration requires TLS: a CA, the name in a certificate, or an address of ``tls://`` says so."""
    return tls is not None or bool(server_name) or any(url.strip().startswith("tls://") for url in urls)


class TlsClient(Client):
    """A client of nats-py. ``required``: each server it signs in to must have upgraded the connection to TLS.

    :meth:`connect` raises PlainServerError at the first server without TLS: the configuration is wrong, or the server.
    A reconnect passes such a server, reports nats.errors.Error to ``error_cb``, and tries the next one.
    """

    def __init__(self, *, required: bool) -> None:
        super().__init__()
        self._required = required
        self._was_connected = False

    async def connect(self, *args: Any, **kwargs: Any) -> None:
        """As nats-py; raises PlainServerError too."""
        await super().connect(*args, **kwargs)
        self._was_connected = True

    def _connect_command(self) -> bytes:
        """The CONNECT command of nats-py, refused before a byte of the command is made."""
        if self._required and not self._server_info.get("tls_required"):
            server = self._current_server.uri.netloc.rpartition("@")[2] if self._current_server else "the server"
            text = (
                f"server {server} speaks no TLS, and the configuration requires TLS (nats_ca_file, nats_server_name or "
                "a tls:// address); set up TLS at this server, or check that the address is the right one"
            )
            raise nats.errors.Error(f"nats: {text}") if self._was_connected else PlainServerError(text)
        return super()._connect_command()
