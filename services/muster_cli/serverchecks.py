"""The servers of NATS, each by itself: up, with JetStream, with a whole copy of the log; asked without any quorum."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from msgspec import Struct

from muster.bus.connection import Connection
from muster.bus.errors import BusError, ConnectError, ForbiddenError, UnansweredError
from muster.bus.servers import Server, ask_servers
from muster.model.language import listed, marked, say
from muster.model.text import counted
from muster.runtime.connecting import connect_bus
from muster.runtime.logkeeping.copies import DAMAGED, Cause, ServerTrouble, judge, log_copies, members
from muster_cli.findings import Finding, Grade
from muster_cli.reading import CONNECT_LIMIT_S, LogPlace

AGAIN_S = 1.0
"""What is wrong is looked at twice, so far apart: what is only late is not told."""
STOPPED: frozenset[Cause] = frozenset({"no_quorum", "no_leader"})
"""Causes for which JetStream answers nothing: the rest need not be asked for."""
_PODS = "kubectl -n muster-system get pods -l app.kubernetes.io/name=nats"
_ROOM = marked(
    "make room on its disk, then its liveness probe starts it again; else kubectl -n muster-system delete pod {server}"
)
_KEEPER = marked("kubectl -n muster-system logs deploy/muster-keeper says when it is rebuilt from a whole copy")

SAID: dict[Cause, tuple[Callable[[ServerTrouble], str], str]] = {
    "down": (lambda _: say("down, or cut off from the others"), "kubectl -n muster-system describe pod {server}"),
    "jetstream_off": (
        lambda _: say("JetStream is off since its disk was full, until its next start"),
        _ROOM,
    ),
    "unwritable": (lambda trouble: say("it could not write to its disk: {said}", said=trouble.said), _ROOM),
    "nearly_full": (
        lambda trouble: say("{number} % of its room is used", number=trouble.number),
        marked("muster log prune; or give it a larger disk and a larger max_file_store"),
    ),
    "unhealthy": (lambda trouble: trouble.said, "kubectl -n muster-system logs {server}"),
    "behind": (
        lambda trouble: say(
            "{messages} of {stream} behind", messages=counted(trouble.number, "message"), stream=trouble.stream
        ),
        marked("it catches up by itself; if it does not: kubectl -n muster-system logs {server}"),
    ),
    "hole": (
        lambda trouble: say(
            "its copy of {stream} lacks {messages}", stream=trouble.stream, messages=counted(trouble.number, "message")
        ),
        _KEEPER,
    ),
    "differs": (
        lambda trouble: say(
            "its copy of {stream} has another message {seq} than the others", stream=trouble.stream, seq=trouble.seq
        ),
        _KEEPER,
    ),
    "no_quorum": (
        lambda trouble: say(
            "no quorum: nothing is stored until {servers} are up with JetStream",
            servers=counted(trouble.number, "server"),
        ),
        marked("start those that are down: {pods}"),
    ),
    "no_leader": (
        lambda trouble: say(
            "{stream} has no leader; nothing is stored until it has one", stream=trouble.stream or "JetStream"
        ),
        marked("within 10 s it has; if it has not: {pods}"),
    ),
    "absent": (
        lambda trouble: say(
            "it has no copy of {stream}, which is to be on it: it knows another history of NATS", stream=trouble.stream
        ),
        marked(
            "empty its store: kubectl -n muster-system delete pvc data-{server} --wait=false; then delete pod {server}"
        ),
    ),
    "few": (
        lambda trouble: say(
            "{stream} is on {servers}: one that dies may lose or stop it",
            stream=trouble.stream,
            servers=counted(trouble.number, "server"),
        ),
        marked("nats stream edit {stream} --replicas 3, as user admin; the keeper does so after a repair by itself"),
    ),
    "lost": (
        lambda trouble: say(
            "no copy of {stream} is whole: at least {messages} lost",
            stream=trouble.stream,
            messages=counted(trouble.number, "message"),
        ),
        marked("muster log verify names the first one; then muster log recover"),
    ),
}
"""{cause: what is wrong, and the way out, with the name of the server}"""


class Examined(Struct, frozen=True):
    """What was found of the servers. ``able``: whether JetStream can be asked about the rest; ``store``: bytes of the
    smallest store, 0 where no server told.
    """

    findings: list[Finding]
    able: bool = True
    store: int = 0


async def server_findings(place: LogPlace) -> Examined:
    """Every server there is, and what is wrong with it."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            # Its own: a request that is not allowed ends the connection.
            connection = await connect_bus(place.config, "muster-cli-servers", _ignore, timeout_s=CONNECT_LIMIT_S)
            stack.push_async_callback(connection.close)
            servers, troubles = await _looked_at(connection, place.config.cell)
        except ConnectError as err:
            return Examined(
                [Finding("bad", "NATS", str(err), say("{pods}; or name another with --url", pods=_PODS))], able=False
            )
        except (UnansweredError, ForbiddenError) as err:
            # The server of `muster up` has no accounts, and no other servers.
            fix = say("give NATS the deploy/nats/accounts.conf of this version, and start its servers again one by one")
            note = Finding("note", say("NATS servers"), say("not examined one by one: {err}", err=err), fix)
            return Examined([] if place.instance is not None else [note])
        except BusError as err:
            return Examined([Finding("note", say("NATS servers"), say("not examined one by one: {err}", err=err))])
    store = min((server.limit for server in servers if server.limit > 0), default=0)
    return Examined(_told(servers, troubles, place.config.cell), able=_able(servers, troubles), store=store)


async def _looked_at(connection: Connection, cell: str) -> tuple[Sequence[Server], list[ServerTrouble]]:
    before = await ask_servers(connection)
    troubles = judge(before, before, cell)
    if not troubles:
        return before, []
    await asyncio.sleep(AGAIN_S)
    servers = await ask_servers(connection)
    return servers, judge(servers, before, cell)


def _able(servers: Sequence[Server], troubles: Sequence[ServerTrouble]) -> bool:
    return any(server.jetstream for server in servers) and not any(
        trouble.cause in STOPPED and not trouble.stream for trouble in troubles
    )


def _told(servers: Sequence[Server], troubles: Sequence[ServerTrouble], cell: str) -> list[Finding]:
    """A line for each trouble, what concerns all of them first; one line where there is none."""
    if not troubles:
        streams = list(log_copies(servers, cell))
        copies = log_copies(servers, cell)[streams[-1]] if streams else {}
        whole = (
            say("; {copies} of the log", copies=counted(len(copies), "whole copy", "whole copies")) if copies else ""
        )
        return [
            Finding(
                "ok",
                say("NATS servers"),
                say(
                    "{servers} of {servers_2} up{whole}",
                    servers=len(servers),
                    servers_2=len(members(servers)),
                    whole=whole,
                ),
            )
        ]
    rebuilt = {trouble.server for trouble in troubles if trouble.cause in DAMAGED}
    findings = []
    for trouble in sorted(troubles, key=lambda trouble: bool(trouble.server)):
        if trouble.cause == "behind" and trouble.server in rebuilt:
            continue
        text, fix = SAID[trouble.cause]
        grade: Grade = "note" if trouble.cause in ("behind", "nearly_full") else "bad"
        title = say("NATS server {server}", server=trouble.server) if trouble.server else say("NATS servers")
        way_out = say(fix, server=trouble.server, stream=trouble.stream, pods=_PODS)
        others = sorted({other.server for other in troubles} - {"", trouble.server})
        if trouble.cause == "absent" and others:
            way_out = say(
                "first what is said of {others}, which may lack what this server has; then {way_out}",
                others=listed(others),
                way_out=way_out,
            )
        findings.append(Finding(grade, title, text(trouble), way_out))
    return findings


def _ignore(_event: str, _fields: object) -> None:
    """What happens to a connection that soon ends."""
