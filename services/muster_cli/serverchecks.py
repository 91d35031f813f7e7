"""The servers of NATS, each by itself: up, with JetStream, with a whole copy of the log; asked without any quorum."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from msgspec import Struct

from muster.bus.connection import Connection
from muster.bus.errors import BusError, ConnectError, ForbiddenError, UnansweredError
from muster.bus.servers import Server, ask_servers
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
_ROOM = "make room on its disk, then its liveness probe starts it again; else kubectl -n muster-system delete pod {}"
_KEEPER = "kubectl -n muster-system logs deploy/muster-keeper says when it is rebuilt from a whole copy"

SAID: dict[Cause, tuple[Callable[[ServerTrouble], str], str]] = {
    "down": (lambda _: "down, or cut off from the others", "kubectl -n muster-system describe pod {}"),
    "jetstream_off": (
        lambda _: "JetStream is off since its disk was full, until its next start",
        _ROOM,
    ),
    "unwritable": (lambda trouble: f"it could not write to its disk: {trouble.said}", _ROOM),
    "nearly_full": (
        lambda trouble: f"{trouble.number} % of its room is used",
        "muster log prune; or give it a larger disk and a larger max_file_store",
    ),
    "unhealthy": (lambda trouble: trouble.said, "kubectl -n muster-system logs {}"),
    "behind": (
        lambda trouble: f"{counted(trouble.number, 'message')} of {trouble.stream} behind",
        "it catches up by itself; if it does not: kubectl -n muster-system logs {}",
    ),
    "hole": (lambda trouble: f"its copy of {trouble.stream} lacks {counted(trouble.number, 'message')}", _KEEPER),
    "differs": (
        lambda trouble: f"its copy of {trouble.stream} has another message {trouble.seq} than the others",
        _KEEPER,
    ),
    "no_quorum": (
        lambda trouble: f"no quorum: nothing is stored until {counted(trouble.number, 'server')} are up with JetStream",
        f"start those that are down: {_PODS}",
    ),
    "no_leader": (
        lambda trouble: f"{trouble.stream or 'JetStream'} has no leader; nothing is stored until it has one",
        f"within 10 s it has; if it has not: {_PODS}",
    ),
    "absent": (
        lambda trouble: f"it has no copy of {trouble.stream}, which is to be on it: it knows another history of NATS",
        "empty its store: kubectl -n muster-system delete pvc data-{0} --wait=false; then delete pod {0}",
    ),
    "few": (
        lambda trouble: (
            f"{trouble.stream} is on {counted(trouble.number, 'server')}: one that dies may lose or stop it"
        ),
        "nats stream edit STREAM --replicas 3, as user admin; the keeper does so after a repair by itself",
    ),
    "lost": (
        lambda trouble: f"no copy of {trouble.stream} is whole: at least {counted(trouble.number, 'message')} lost",
        "muster log verify names the first one; then muster log recover",
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
            return Examined([Finding("bad", "NATS", str(err), f"{_PODS}; or name another with --url")], able=False)
        except (UnansweredError, ForbiddenError) as err:
            # The server of `muster up` has no accounts, and no other servers.
            fix = "give NATS the deploy/nats/accounts.conf of this version, and start its servers again one by one"
            note = Finding("note", "NATS servers", f"not examined one by one: {err}", fix)
            return Examined([] if place.instance is not None else [note])
        except BusError as err:
            return Examined([Finding("note", "NATS servers", f"not examined one by one: {err}")])
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
        whole = f"; {counted(len(copies), 'whole copy', 'whole copies')} of the log" if copies else ""
        return [Finding("ok", "NATS servers", f"{len(servers)} of {len(members(servers))} up{whole}")]
    rebuilt = {trouble.server for trouble in troubles if trouble.cause in DAMAGED}
    findings = []
    for trouble in sorted(troubles, key=lambda trouble: bool(trouble.server)):
        if trouble.cause == "behind" and trouble.server in rebuilt:
            continue
        text, fix = SAID[trouble.cause]
        grade: Grade = "note" if trouble.cause in ("behind", "nearly_full") else "bad"
        title = f"NATS server {trouble.server}" if trouble.server else "NATS servers"
        way_out = fix.format(trouble.server).replace("STREAM", trouble.stream)
        others = sorted({other.server for other in troubles} - {"", trouble.server})
        if trouble.cause == "absent" and others:
            way_out = f"first what is said of {', '.join(others)}, which may lack what this server has; then {way_out}"
        findings.append(Finding(grade, title, text(trouble), way_out))
    return findings


def _ignore(_event: str, _fields: object) -> None:
    """What happens to a connection that soon ends."""
