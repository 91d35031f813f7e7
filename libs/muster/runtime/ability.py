"""Whether a process is able to do its work right now, and the reason if not: the answers of /readyz and /startupz.

The list has no faults, but the signs of a process that works. Its commits are stored, its seats are led, its public
events and its archive go on, and its watches hear of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from muster.bus.connection import Connection
from muster.model.text import span
from muster.runtime.clusterlease import ClusterLease
from muster.runtime.runners.follower import AnyFollower
from muster.runtime.runners.leader import MAX_SKEW_MS, Leader
from muster.runtime.runners.shared import SharedLog
from muster.runtime.witness import Witness
from muster.telemetry.observer import StageTelemetry

if TYPE_CHECKING:
    from muster.kube.poddefaults import PodDefaults
    from muster.runtime.runners.keeping import LogKeeper
    from muster.runtime.runners.publishing import Publisher

STUCK_S = 5.0
"""A commit that waits for so long is not stored for a reason, and so is a public event."""
UNLED_S = 5.0
"""A lease that has run out is taken within 2 s."""
KEEPING_S = 600.0
"""One look of the keeper takes so long where it rolls a full log over."""
SILENT_S = 180.0
"""An API server sends a bookmark every minute, and a watch without any ends after 150 s."""


class Working(Protocol):
    """What is asked of a process."""

    connection: Connection
    log: SharedLog
    runners: list[AnyFollower]
    publishers: list[Publisher]
    keepers: list[LogKeeper]
    telemetries: list[StageTelemetry]
    cluster_leases: list[ClusterLease]
    witness: Witness | None
    ahead_ms: int
    pod_defaults: PodDefaults | None


def not_started(process: Working) -> Iterator[str]:
    """Why the process has not started yet. A publisher on standby has started: only the leader reads."""
    for runner in process.runners:
        if not runner.caught_up:
            yield f"{runner.stage.name}/{runner.shard} has folded up to {runner.state.seq} and not caught up yet"
    for publisher in process.publishers:
        if publisher.lease.held and not publisher.caught_up:
            yield "publisher has not caught up yet"


def not_ready(process: Working) -> Iterator[str]:
    """Why the process does not do its work right now."""
    if not process.connection.connected:
        yield "not connected to NATS"
    if (waits_s := process.log.waits_s()) >= STUCK_S:
        yield (
            f"the log has taken no commit for {waits_s:.0f} s: NATS has no leader or no room on its disk; decisions "
            "wait, and go on when it stores again"
        )
    if process.ahead_ms > MAX_SKEW_MS:
        yield (
            f"the clock of this machine is {span(process.ahead_ms)} ahead of the broker's, and the process leads "
            "nothing: set it right (NTP)"
        )
    yield from _not_led(process)
    yield from _not_following(process)
    for publisher in process.publishers:
        if (waits_s := publisher.waits_s()) >= STUCK_S:
            yield f"the stream of public events has taken none for {waits_s:.0f} s: NATS has no leader or no room"
    for keeper in process.keepers:
        if (waits_s := keeper.waits_s()) >= KEEPING_S:
            yield f"the keeper has looked after the log for {waits_s:.0f} s without an end; see what it logs"
        for lost in keeper.guard.lost() if keeper.guard is not None else ():
            yield f"no copy of {lost.stream} is whole: at least {lost.number} messages of the log are lost"
    if process.pod_defaults is not None and (unlisted := process.pod_defaults.unlisted()):
        yield (
            f"the watcher reads no job until it has listed {' and '.join(unlisted)}: where the API server forbids "
            "that, kubectl apply -k deploy/rbac"
        )
    yield from _not_heard(process)
    yield from (lease.missing for lease in process.cluster_leases if lease.missing)
    if process.witness is not None and process.witness.missing:
        yield process.witness.missing


def _not_led(process: Working) -> Iterator[str]:
    led: list[AnyFollower | Publisher | LogKeeper] = [*process.runners, *process.publishers, *process.keepers]
    for lease in (runner.lease for runner in led):
        if lease is not None and lease.free_s() >= UNLED_S:
            yield (
                f"no process leads {lease.of}, and its lease cannot be taken: NATS has no leader or no room on its disk"
            )


def _not_following(process: Working) -> Iterator[str]:
    for runner in process.runners:
        if not runner.caught_up:
            yield f"{runner.stage.name}/{runner.shard} is catching up"
        elif runner.state.unsynced and isinstance(runner, Leader) and runner.leading():
            yield f"{runner.stage.name} waits for {', '.join(sorted(runner.state.unsynced))} to be listed"


def _not_heard(process: Working) -> Iterator[str]:
    now = asyncio.get_running_loop().time()
    for telemetry in process.telemetries:
        resource, at = telemetry.last_heard or ("", now)
        if now - at >= SILENT_S:
            yield f"nothing was heard of {resource} for {now - at:.0f} s: the API server does not answer"
