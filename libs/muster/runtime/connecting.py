"""The connection to NATS, and the log, that a configuration describes: for every service and the command line."""

from __future__ import annotations

import ssl
from pathlib import Path

from muster.bus.cell import open_log, open_stores
from muster.bus.connection import INBOX, Connection, Notice, connect
from muster.bus.errors import ConnectError
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.streams import Limits
from muster.model.language import say
from muster.ports import LogGoneError
from muster.runtime.config import Config


async def connect_bus(config: Config, name: str, notice: Notice, *, timeout_s: float = 10.0) -> Connection:
    """A connection; the caller closes it. Raises ConnectError, also for files that cannot be used."""
    connection = await connect(
        config.nats_url.split(","),
        name=name,
        credentials=Path(config.nats_credentials_file) if config.nats_credentials_file else None,
        nkey_seed=Path(config.nats_nkey_file) if config.nats_nkey_file else None,
        inbox_prefix=config.nats_inbox_prefix,
        api_prefix=config.nats_api_prefix,
        tls=_tls(config.nats_ca_file),
        server_name=config.nats_server_name,
        timeout_s=timeout_s,
        notice=notice,
    )
    connection.user = _signed_in(config, name)
    connection.allowing = (
        f"write that file again (`python -m muster.runtime.natsaccounts --cell {config.cell}`; on a cluster ConfigMap "
        "muster-nats of the install file has it), and have the servers read it again"
    )
    return connection


def _signed_in(config: Config, name: str) -> str:
    """Which user of NATS a configuration signs in as, and the file of its key."""
    key = config.nats_nkey_file or config.nats_credentials_file
    user = config.nats_inbox_prefix.removeprefix(INBOX).removeprefix("_")
    return f"user {user or name} of NATS (key {key})" if key else f"{name}, which signs in to NATS without a key,"


async def open_cell(js: JetStream, config: Config, *, at: int, own_time: bool = False) -> JetStreamLog:
    """The log of the configured cell and the streams beside the log, created first where the configuration says so.

    A new log gets the configured size and replicas, and ``own_time``; an existing log keeps its own.

    Raises LogGoneError, BusError.
    """
    limits = Limits(max_bytes=config.log_max_bytes, replicas=config.replicas)
    await open_stores(js, config.cell, create=config.log_create, limits=limits if config.log_create else None)
    try:
        return await open_log(js, config.cell)
    except LogGoneError:
        if not config.log_create:
            raise
    return await open_log(js, config.cell, create=True, limits=limits, at=at, own_time=own_time)


def _tls(ca_file: str) -> ssl.SSLContext | None:
    if not ca_file:
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as err:
        raise ConnectError(
            say(
                "cannot use {ca_file} as the CA of NATS: {err}; set nats_ca_file to a PEM file",
                ca_file=ca_file,
                err=err,
            )
        ) from err
