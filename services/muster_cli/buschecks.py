"""The demands of Muster on NATS: reachable, in time, with the streams of the cell, and with room."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from muster.bus.cell import open_log, open_stores
from muster.bus.errors import BusError, ConnectError, ForbiddenError
from muster.bus.fills import ALARM_PERCENT as STORE_PERCENT
from muster.bus.fills import Fill, fills, reserves
from muster.bus.jetstream import JetStream
from muster.bus.shares import LogUsage
from muster.bus.streams import Limits
from muster.events.envelope import UnknownEventError, UnreadableCommitError
from muster.model.language import listed, say
from muster.model.text import span
from muster.ports import Clock, LogGapError, LogGoneError
from muster.runtime.endings import endings
from muster.runtime.logkeeping.budget import WINDOW_S
from muster.runtime.runners.leader import MAX_SKEW_MS
from muster.serving.board import off_in
from muster_cli.endchecks import end_findings
from muster_cli.exits import CliError
from muster_cli.findings import Finding, Grade, must_fix
from muster_cli.folding import present_view
from muster_cli.logchecks import log_findings
from muster_cli.reading import LogPlace, LogReading, connected
from muster_cli.render.cell import ALARM_PERCENT, size
from muster_cli.serverchecks import Examined, server_findings
from muster_cli.state import CellState, cell_state

STAGE_SERVICES = {"presenter": "muster-actuator"}
"""Stages whose deployment has another name."""
ANSWER_LIMIT_S = 15.0
"""So long JetStream may take to say what streams there are: longer than an election."""
UNREADABLE_LOG = (LogGapError, UnknownEventError, UnreadableCommitError)
FULL_PERCENT = 95
"""From here on the log takes only releases and effects."""


async def bus_findings(place: LogPlace | None, clock: Clock) -> list[Finding]:
    """All findings; one note without a ``place``."""
    if place is None:
        detail = say("not examined: no NATS is named and no `muster up` runs")
        return [Finding("note", "NATS", detail, say("name one with --url nats://HOST:PORT"))]
    servers = await server_findings(place)
    if not servers.able:
        return servers.findings
    try:
        async with connected(place) as js:
            own = [Finding("ok", "NATS", place.config.nats_url), *servers.findings]
            return [*own, *await _cell_findings(place, js, clock, servers)]
    except ConnectError as err:
        return [Finding("bad", "NATS", str(err), say("kubectl -n muster-system get pods; or name another with --url"))]


async def _cell_findings(place: LogPlace, js: JetStream, clock: Clock, servers: Examined) -> list[Finding]:
    """The findings about the streams of a cell. A denied right is the only finding: later requests get no answer."""
    findings = await _examined(place, js, clock, servers)
    if isinstance(js.connection.failure, ForbiddenError):
        fix = say("sign in as a user who may read the log: muster login, or MUSTER_NATS_NKEY_FILE with the key of cli")
        return [Finding("bad", say("rights"), str(js.connection.failure), fix)]
    return findings


async def _examined(place: LogPlace, js: JetStream, clock: Clock, servers: Examined) -> list[Finding]:
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            await open_stores(js, place.config.cell, create=False)
            log = await open_log(js, place.config.cell, create=False)
    except LogGoneError as err:
        return [Finding("bad", say("log"), str(err), say("muster log recover, or muster log init"))]
    except TimeoutError:
        return _unanswered(servers.findings)
    except BusError as err:
        return [Finding("bad", say("streams"), str(err), "muster log init")]
    # Servers that say what is wrong with them may not answer what is asked of the log.
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S if must_fix(servers.findings) else None):
            return await _of_log(LogReading(place, js.connection, js, log), clock, servers.store)
    except TimeoutError:
        return _unanswered(servers.findings)


async def _of_log(reading: LogReading, clock: Clock, store: int) -> list[Finding]:
    """The findings about a log that is open. ``store``: bytes of the smallest store of NATS, 0 where it is unknown."""
    place, before = reading.place, clock.now()
    try:
        state, ended = await cell_state(reading), await endings(reading.js, place.config.cell)
    except ForbiddenError:
        return []
    after = clock.now()
    identity = reading.log.identity
    reserved = reserves(identity.cell, Limits(max_bytes=state.usage.max_bytes))
    stores = store_findings(await fills(reading.js, identity), reserved, store)
    closed = closed_stages(state.usage)
    view = await _by_the_log(reading, after)
    ends = end_findings(state, ended)
    return [*ends, *closed, *judged(state, place, before, after), *stores, *view]


def closed_stages(log: LogUsage) -> list[Finding]:
    """The stages of which the log takes nothing for a while."""
    detail = say(
        "the log takes nothing from it: it wrote more than its part of the log in {minutes} minutes, and the keeper "
        "opens it after as long a time",
        minutes=int(WINDOW_S // 60),
    )
    way_out = say("raise log_max_bytes or log_stage_percent; `muster log voids` lists what a defect wrote")
    return [Finding("bad", say("stage {stage}", stage=stage), detail, way_out) for stage in log.closed]


def store_findings(streams: Sequence[Fill], reserved: int, store: int) -> list[Finding]:
    """A store that is smaller than the budgets together; each stream beside the log that has no budget, or has used
    half of its budget. ``reserved``: bytes of all budgets; ``store``: of the smallest server, 0 where it is unknown.
    """
    told: list[Finding] = []
    if 0 < store < reserved:
        detail = say(
            "a server has {store}, and the streams of the cell may take {reserved}",
            store=size(store),
            reserved=size(reserved),
        )
        told.append(
            Finding(
                "bad",
                say("store"),
                detail,
                say("set max_file_store of NATS to {reserved} at least", reserved=size(reserved)),
            )
        )
    told += [
        Finding(
            "bad",
            say("stream {stream}", stream=fill.stream),
            say("it has no budget: one service could fill the store"),
            "muster log init",
        )
        for fill in streams
        if not fill.bounded
    ]
    for fill in streams:
        if fill.percent >= STORE_PERCENT:
            detail = say(
                "{percent} % of its budget is used; when it is full its service is refused there", percent=fill.percent
            )
            fix = say("see docs/howto/alerts.md, StoreHalfFull")
            told.append(
                Finding(
                    "bad" if fill.percent >= FULL_PERCENT else "note",
                    say("stream {stream}", stream=fill.stream),
                    detail,
                    fix,
                )
            )
    most = max(streams, key=lambda fill: fill.percent, default=None)
    if told or most is None:
        return told
    detail = say(
        "{reserved} in all, for the log and {streams} other streams, filled by at most {percent} %",
        reserved=size(reserved),
        streams=len(streams),
        percent=most.percent,
    )
    return [Finding("ok", say("store"), detail)]


def _unanswered(servers: Sequence[Finding]) -> list[Finding]:
    """JetStream does not answer, and none of its servers says why."""
    if must_fix(servers):
        return []
    detail = say(
        "JetStream has not answered for {answer_limit_s:g} s: a stream of it has no leader, or its disk is full",
        answer_limit_s=ANSWER_LIMIT_S,
    )
    return [Finding("bad", say("streams"), detail, "kubectl -n muster-system logs statefulset/nats")]


def judged(state: CellState, place: LogPlace, before: int, after: int) -> list[Finding]:
    """What a cell's state says; ``before`` and ``after``: our clock around the question, ms."""
    return [_skew(state.usage.broker_ms, before, after), _room(state), *_leads(state, place)]


async def _by_the_log(reading: LogReading, now: int) -> list[Finding]:
    """The findings from the commits."""
    try:
        state = await present_view(reading, promising=False)
    except (BusError, CliError, *UNREADABLE_LOG) as err:
        return [Finding("bad", say("log"), say("it cannot be read: {err}", err=err), "muster log verify")]
    reclaim = [Finding("note", say("reclaim"), *off.told) for off in off_in(state)]
    return [*log_findings(state, now, acting=reading.place.acting), *reclaim]


def _skew(broker: int, before: int, after: int) -> Finding:
    """How far the clocks are apart, at least: the answer was made some time between asking and hearing."""
    apart = before - broker if broker < before else min(0, after - broker)
    if abs(apart) <= MAX_SKEW_MS:
        return Finding(
            "ok",
            say("clocks"),
            say("ours and the broker's are less than {apart} apart", apart=span(max(abs(apart), 1))),
        )
    which = say("ahead of") if apart > 0 else say("behind")
    fix = say("set the clock of this machine right (NTP): a service whose clock is ahead refuses to lead")
    return Finding(
        "bad", say("clocks"), say("ours is {apart} {which} the broker's", apart=span(abs(apart)), which=which), fix
    )


def _room(state: CellState) -> Finding:
    usage = state.usage
    limit = size(usage.max_bytes) if usage.max_bytes > 0 else say("no limit")
    detail = say(
        "{bytes} of {limit} used ({percent} %), {last_seq} commits",
        bytes=size(usage.bytes),
        limit=limit,
        percent=state.percent,
        last_seq=usage.last_seq,
    )
    if state.percent < ALARM_PERCENT:
        return Finding(
            "ok", say("log"), say("generation {generation}: {detail}", generation=state.generation, detail=detail)
        )
    grade: Grade = "bad" if state.percent >= FULL_PERCENT else "note"
    return Finding(grade, say("log"), detail, "muster log roll")


def _leads(state: CellState, place: LogPlace) -> list[Finding]:
    idle = () if place.acting else ("actuator", "presenter")
    missing = sorted({lead.stage for lead in state.leads if not lead.process and lead.stage not in idle})
    if not missing:
        return [Finding("ok", say("leaders"), say("every stage has one"))]
    services = {STAGE_SERVICES.get(stage, f"muster-{stage.replace('_', '-')}"): None for stage in missing}
    fix = say(
        "kubectl -n muster-system rollout status deploy/{services}; or start `muster up`", services=next(iter(services))
    )
    return [Finding("bad", say("leaders"), say("no process leads {missing}", missing=listed(missing)), fix)]
