"""The connection to NATS that a configuration describes: used by every service and by the command line."""

from __future__ import annotations

import ssl
from pathlib import Path

from muster.bus.connection import Connection, Notice, connect
from muster.bus.errors import ConnectError
from muster.runtime.config import Config


async def connect_bus(config: Config, name: str, notice: Notice, *, timeout_s: float = 10.0) -> Connection:
    """A connection; whoever asks closes it. Raises ConnectError, also for files that cannot be used."""
    return await connect(
        config.nats_url.split(","),
        name=name,
        credentials=Path(config.nats_credentials_file) if config.nats_credentials_file else None,
        nkey_seed=Path(config.nats_nkey_file) if config.nats_nkey_file else None,
        tls=_tls(config.nats_ca_file),
        timeout_s=timeout_s,
        notice=notice,
    )


def _tls(ca_file: str) -> ssl.SSLContext | None:
    if not ca_file:
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as err:
        raise ConnectError(f"cannot use {ca_file} as the CA of NATS: {err}; set nats_ca_file to a PEM file") from err
