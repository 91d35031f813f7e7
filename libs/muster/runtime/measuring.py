"""Values for the metrics page of a process, read from the runners on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import muster
from muster.ports import Clock
from muster.runtime.runners.follower import AnyFollower
from muster.telemetry import counting
from muster.telemetry.metrics import Metrics, labels
from muster.telemetry.observer import StageTelemetry

if TYPE_CHECKING:
    from muster.runtime.runners.keeping import LogKeeper
    from muster.runtime.runners.publishing import Publisher
    from muster.told.views.measures import Measure


class Measured(Protocol):
    """What is asked of a process."""

    clock: Clock
    metrics: Metrics
    runners: list[AnyFollower]
    publishers: list[Publisher]
    keepers: list[LogKeeper]
    telemetries: list[StageTelemetry]


class Measuring:
    """The queues are measured by the publisher that leads: each number is shown by one process."""

    def __init__(self, process: Measured) -> None:
        self._process = process
        self._spent: tuple[int, list[tuple[str, str, float]]] = (0, [])
        """When the page was read last (ms), and what was used and idle then."""

    def __call__(self) -> Iterator[Measure]:
        process, now = self._process, self._process.clock.now()
        yield "muster_build_info", labels(version=muster.__version__), 1
        for telemetry in process.telemetries:
            yield from telemetry.ages()
        for runner in process.runners:
            key = labels(stage=getattr(runner, "name", runner.stage.name), shard=runner.shard)
            yield "muster_stage_lag_seconds", key, age_s(now, runner.unfolded_since)
        for keeper in process.keepers:
            for trouble in keeper.guard.troubles if keeper.guard is not None else ():
                yield "muster_nats_trouble", labels(server=trouble.server, cause=trouble.cause), 1
        for publisher in process.publishers:
            key = labels(stage="publisher", shard="0")
            yield "muster_stage_lag_seconds", key, age_s(now, publisher.unfolded_since)
            if publisher.lease.held and publisher.caught_up:
                from muster.told.views.measures import (
                    devices,
                    measures,  # Its process has loaded them.
                )

                for path, node in publisher.state.queues.ledger.nodes.items():
                    if not node.children:
                        counting.begin(process.metrics, path)
                yield from measures(publisher.state, max(now, publisher.state.now))
                self._spend(now, list(devices(publisher.state)))

    def _spend(self, now: int, totals: list[tuple[str, str, float]]) -> None:
        """Count what was used and idle since the page was read last, as it was then."""
        at, before = self._spent
        self._spent = (now, totals)
        for queue, name, amount in before:
            more = amount * max(0, now - at) / 1000
            if queue:
                self._process.metrics.count("muster_used_seconds", labels(queue=queue, resource=name), more)
            else:
                self._process.metrics.count("muster_idle_seconds", labels(resource=name), more)


def age_s(now: int, since: int) -> float:
    """Seconds since a time in ms; 0 where there is none."""
    return max(0, now - since) / 1000 if since else 0.0
