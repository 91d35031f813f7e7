"""Reading a cell's log: the choice of the log, the connection, and the commits from the first to the last.

Apart from muster.runtime.service, whose telemetry takes a second to import: these commands only read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.bus.cell import open_log
from muster.bus.connection import Connection, redacted
from muster.bus.errors import ConnectError
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.core.docket import Docket, Judge
from muster.core.stage import StageState
from muster.events.envelope import Stored
from muster.model.language import say
from muster.ports import LogGoneError, LogSealedError, Snapshot
from muster.runtime.config import Config, load_with_origins
from muster.runtime.connecting import connect_bus
from muster_cli import instances
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.instances import Instance
from muster_cli.options import Bus

CONNECT_LIMIT_S = 5.0
LOST_LIMIT_S = 5.0
"""A command ends when its connection has been lost for this long: the command would wait for ever."""
SILENT_LIMIT_S = 30.0
"""So long may the log take for its next commits, where there are more."""
AGAIN_S = 0.5
"""The time between searches for the next generation of a sealed log."""


class LogPlace(Struct, frozen=True):
    """The place of the log: the settings of the connection, and the running instance behind the settings, if any."""

    config: Config
    instance: Instance | None = None
    others: int = 0
    """How many further instances run."""

    @property
    def acting(self) -> bool:
        """False when no actuator is known to act there."""
        return self.instance is None or self.instance.acting


class LogReading(Struct, frozen=True):
    """An open log."""

    place: LogPlace
    connection: Connection
    js: JetStream
    log: JetStreamLog


def locate(bus: Bus | None) -> LogPlace:
    """The wanted log: by option, else by setting, else the log of the newest running ``muster up``.

    Raises CliError when nothing names a log, ConfigError for settings that cannot be used.
    """
    bus = bus or Bus()
    asked = {"nats_url": bus.url, "cell": bus.cell}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    config, origins = load_with_origins(**given)
    if "nats_url" in origins:
        mine = instances.named(config.nats_url)
        return LogPlace(_with_cell(config, origins, mine[0]) if mine else config, mine[0] if mine else None)
    instances_running = instances.named("")
    if not instances_running:
        raise CliError(
            say(
                "no running Muster found: start one with `muster up`, or name the NATS of yours with "
                "--url nats://HOST:PORT"
            ),
            NOT_FOUND,
        )
    newest = instances_running[0]
    config, origins = load_with_origins(**given, nats_url=newest.url)
    return LogPlace(_with_cell(config, origins, newest), newest, len(instances_running) - 1)


def _with_cell(config: Config, origins: dict[str, str], instance: Instance) -> Config:
    """The settings with the instance's cell, where no cell was named."""
    return config if "cell" in origins else replace(config, cell=instance.cell)


def tell_which(out: Output, place: LogPlace) -> None:
    """Say which of several running instances was taken."""
    if place.others:
        out.note(
            say(
                "{others} Musters run here; this is the newest, {nats_url} (choose with --url)",
                others=place.others + 1,
                nats_url=place.config.nats_url,
            )
        )


@contextlib.asynccontextmanager
async def connected(place: LogPlace, *, patient: bool = False) -> AsyncIterator[JetStream]:
    """A connection to the NATS of a place; ``patient``: waits for a lost server for ever. Raises BusError."""
    connection = await connect_bus(place.config, "muster-cli", _ignore, timeout_s=CONNECT_LIMIT_S)
    forget = _ignore_nothing if patient else _give_up_when_lost(connection, place.config.nats_url)
    try:
        yield JetStream(connection)
    finally:
        forget()
        await connection.close()


def _give_up_when_lost(connection: Connection, url: str) -> Callable[[], None]:
    """Fail all users of a connection once the connection has been lost for LOST_LIMIT_S; returns a function to stop
    that.
    """
    timer: asyncio.TimerHandle | None = None

    def fail() -> None:
        connection.fail(
            ConnectError(
                say(
                    "the connection to {url} was lost, and was not back after {lost_limit_s:g} s; check that "
                    "NATS runs there, and run the command again",
                    url=redacted(url),
                    lost_limit_s=LOST_LIMIT_S,
                )
            )
        )

    def forget() -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        timer = None

    def changed() -> None:
        nonlocal timer
        if connection.connected:
            forget()
        elif timer is None and connection.failure is None:
            timer = asyncio.get_running_loop().call_later(LOST_LIMIT_S, fail)

    unheard = connection.listen(changed)

    def stop() -> None:
        unheard()
        forget()

    return stop


@contextlib.asynccontextmanager
async def opened(place: LogPlace, *, patient: bool = False) -> AsyncIterator[LogReading]:
    """The log of a place, read only; ``patient``: see :func:`connected`. Raises BusError; CliError for no log."""
    async with connected(place, patient=patient) as js:
        try:
            log = await open_log(js, place.config.cell, create=False)
        except LogGoneError as err:
            raise CliError(str(err), NOT_FOUND) from err
        yield LogReading(place, js.connection, js, log)


async def base_of(reading: LogReading) -> list[Snapshot]:
    """The states with which the log begins, where earlier commits were deleted. Raises BusError."""
    return await JetStreamGenerations(reading.js, reading.log.identity.cell).origin(reading.log.identity)


async def commits(log: JetStreamLog, after: int = 0, *, whole: bool = True) -> AsyncGenerator[Stored, None]:
    """The commits after a sequence, up to the present end of the log.

    ``whole``: CliError where some of these commits are gone with the stream of an earlier generation.
    """
    origin = log.identity.origin
    if whole and after + 1 < origin:
        raise CliError(
            say(
                "this command needs the whole log, and the commits before sequence {origin} were removed "
                "with the streams of earlier generations; name its archive with --log",
                origin=origin,
            ),
            NOT_FOUND,
        )
    stream = log.follow(after)
    try:
        while batch := await _heard(stream, after):
            for stored in batch:
                yield stored
            after = batch[-1].seq
    finally:
        await stream.aclose()


async def followed(reading: LogReading, after: int) -> AsyncGenerator[tuple[JetStreamLog, list[Stored]], None]:
    """The commits after a sequence, for ever, through every generation, with the log as it is open then; no commits at
    each present end.
    """
    log = reading.log
    while True:
        try:
            async with contextlib.aclosing(log.follow(after)) as stream:
                async for batch in stream:
                    after = batch[-1].seq if batch else after
                    yield log, batch
        except LogSealedError:
            yield log, []
            await asyncio.sleep(AGAIN_S)
            log = await open_log(reading.js, reading.place.config.cell)


async def judged(stream: AsyncIterator[Stored], state: StageState) -> AsyncGenerator[Stored, None]:
    """The commits as judged, after the commits that a state has folded."""
    docket = msgspec.msgpack.decode(msgspec.msgpack.encode(state.docket), type=Docket)
    judge = Judge(docket, state.log_id, state.generation)
    async for stored in stream:
        yield judge.hear(stored)


async def _heard(stream: AsyncGenerator[list[Stored], None], after: int) -> list[Stored]:
    """The next commits, none at the end of the log. Raises CliError when nothing comes."""
    try:
        async with asyncio.timeout(SILENT_LIMIT_S):
            return await anext(stream)
    except TimeoutError:
        raise CliError(
            say(
                "the log gave nothing after sequence {after} for {silent_limit_s:g} s, though there is "
                "more; `muster log info` and the monitoring of NATS say whether its stream has a leader",
                after=after,
                silent_limit_s=SILENT_LIMIT_S,
            )
        ) from None


def _ignore_nothing() -> None:
    """What is to be stopped where nothing was begun."""


def _ignore(_event: str, _fields: object) -> None:
    """Events of the connection of a command that soon ends: not reported."""
