"""``muster cell move``."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from muster.bus.cell import open_log
from muster.bus.marks import give_up
from muster.model.language import say
from muster.runtime.clock import SystemClock
from muster.runtime.pairing import another, cluster_uid, named, record_move, recorded_cluster
from muster.runtime.witness import CellRecord, RecordRefusedError
from muster_cli.api import real_api
from muster_cli.console import Output
from muster_cli.exits import FAILED, OK, CliError
from muster_cli.marking import short
from muster_cli.options import Bus, ClusterOption
from muster_cli.reading import connected, locate, tell_which


async def cell_move(
    *,
    yes: Annotated[bool, Parameter(negative="", help="Give the cell to this cluster.")] = False,
    cluster: ClusterOption | None = None,
    bus: Bus | None = None,
) -> int:
    """Give a cell to another cluster."""
    place = locate(bus)
    out = Output()
    tell_which(out, place)
    transport = await real_api(cluster or ClusterOption())
    try:
        uid, (server, _) = await cluster_uid(transport), named(transport)
        if not uid:
            raise CliError(
                say(
                    "which cluster {server} is cannot be known: read the uid of namespace kube-system there",
                    server=server,
                )
            )
        clock = SystemClock()
        try:
            newest = await CellRecord(transport, place.config.cell, clock).read()
        except RecordRefusedError as err:
            raise CliError(str(err)) from err
    finally:
        await transport.close()
    async with connected(place) as js:
        log = await open_log(js, place.config.cell)
        identity = log.identity
        known = await recorded_cluster(js, identity)
        if known is not None and known.uid == uid:
            out.line(
                say(
                    "Cell {cell} belongs to it already: {server}, uid {uid}.",
                    cell=identity.cell,
                    server=server,
                    uid=uid,
                )
            )
            return OK
        if not yes:
            out.line(
                await another(js, identity, uid, transport)
                or say("Cell {cell} belongs to no cluster yet.", cell=identity.cell)
            )
            out.line(
                say(
                    "With --yes it belongs to {server}, and the log starts again from the state of that "
                    "cluster. Stop the services that reach the former one before.",
                    server=server,
                )
            )
            return FAILED
        why = say("the cell was given to the cluster {server}, uid {uid}", server=server, uid=uid)
        ahead = newest if newest is not None and newest.generation >= identity.generation else None
        generation, parent = (ahead.generation, ahead.log_id) if ahead is not None else (0, "")
        await record_move(js, identity, uid, server, why, generation, parent)
        by = short(os.environ.get("USER") or "unknown")
        made = await give_up(js, identity, clock.now(), by=by, reason=why, generation=generation, parent=parent)
    out.line(
        say(
            "Cell {cell} belongs to {server}, uid {uid}. Generation {generation} of its log is in force.",
            cell=made.cell,
            server=server,
            uid=uid,
            generation=made.generation,
        )
    )
    return OK
