"""One stage's telemetry: what its runner tells becomes log lines, metrics and spans."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import to_builtins

from muster.core.stage import Violation
from muster.events.alarms import AlarmRaised
from muster.events.base import Cause, Event
from muster.events.charges import ChargeChanged
from muster.events.decisions import GangAdmitted, QuotaDenied, WorkloadQueued, WorkloadRefused
from muster.events.envelope import Commit, Stored
from muster.events.public import PublicEvent
from muster.model.keys import Ref
from muster.telemetry import counting
from muster.telemetry.logs import Logger
from muster.telemetry.metrics import Metrics, labels
from muster.telemetry.traces import WorkloadTraces
from muster.told.wording import problems

if TYPE_CHECKING:
    from muster.told.views.measures import Labels, Measure

_TOLD = frozenset({AlarmRaised, ChargeChanged, GangAdmitted, QuotaDenied, WorkloadQueued, WorkloadRefused})
_LEVELS = frozenset({"debug", "info", "warning", "error"})


class StageTelemetry:
    """Implements the runners' hooks (``runtime.runners.hooks.Hooks``) and the reflector's (``kube.hooks.Hooks``)."""

    def __init__(self, stage: str, shard: str, metrics: Metrics, logger: Logger, traces: WorkloadTraces) -> None:
        self._metrics = metrics
        self._log = logger.bind(stage=stage, shard=shard)
        self._traces = traces
        self._stage, self._shard = stage, shard
        self._labels = labels(stage=stage, shard=shard)
        self._stage_label = labels(stage=stage)
        self._kinds = {kind: labels(stage=stage, shard=shard, kind=kind) for kind in ("input", "decision")}
        self._types: dict[type[Event], Labels] = {}
        self.current_role = "starting"
        self._metrics.count("muster_void_commits", self._stage_label, 0)
        self.last_heard: tuple[str, float] | None = None
        """Of a stage that watches: the resource, and when the API server was heard of it last."""

    # --- runners ----------------------------------------------------------------------------------------------

    def folded(self, batch: Sequence[Stored]) -> None:
        for stored in batch:
            self._traces.folded(stored.seq, stored.commit)

    def voided(self, stored: Stored) -> None:
        assert stored.void is not None
        self._metrics.count("muster_void_commits", self._stage_label)
        self._log.error("commit_void", seq=stored.seq, subject=stored.subject, why=problems.line(stored.void))

    def appended(self, commit: Commit, seq: int, took_s: float) -> None:
        self._traces.appended(commit, seq, took_s)
        self._metrics.count("muster_commits", self._kinds[commit.kind])
        self._metrics.observe("muster_append_duration_seconds", self._stage_label, took_s)
        for event in commit.events:
            kind = type(event)
            key = self._types.get(kind)
            if key is None:
                key = self._types[kind] = labels(stage=self._stage, type=str(kind.__struct_config__.tag))
            self._metrics.count("muster_events", key)
            if kind in _TOLD:
                self._tell(event)
        self._log.debug("commit_appended", seq=seq, kind=commit.kind, events=len(commit.events), in_seq=commit.in_seq)

    def _tell(self, event: Event) -> None:
        """One log line per decision about a workload, and what operators count."""
        match event:
            case GangAdmitted():
                self._log.info("gang_admitted", ref=event.ref.key, queue=event.queue, attempt=event.attempt)
            case QuotaDenied():
                short = event.short
                resource = short.resource if short is not None else ""
                self._metrics.count(
                    "muster_denied_workloads", labels(queue=event.queue, reason=event.reason, resource=resource)
                )
                numbers = to_builtins(short) if short is not None else {}
                self._log.info("quota_denied", ref=event.ref.key, reason=event.reason, **numbers)
            case ChargeChanged() if event.over:
                self._metrics.count("muster_charges_beyond_grant", labels(queue=event.queue))
                self._log.warning("beyond_grant", ref=event.ref.key, queue=event.queue, over=event.over)
            case AlarmRaised():
                self._metrics.count("muster_ray_alarms", labels(reason=event.reason))
                self._log.warning("ray_alarm", ref=event.ref.key, cluster=event.cluster.key, reason=event.reason)
            case WorkloadRefused(refusal=refusal) if refusal.reason == "set_aside":
                answer = {"decision": refusal.name, "reason": refusal.other}
                self._metrics.count("muster_set_aside_workloads", labels(**answer))
                self._log.error("workload_set_aside", ref=event.ref.key, times=refusal.count, **answer)
            case WorkloadQueued():
                self._log.info("workload_queued", ref=event.ref.key, queue=event.queue, attempt=event.attempt)
            case _:
                pass

    def role(self, role: str, epoch: int) -> None:
        self.current_role = role
        if role in ("leading", "standby"):
            self._metrics.set("muster_leader", self._labels, 1 if role == "leading" else 0)
        self._log.info("role_changed", role=role, epoch=epoch)

    def violated(self, violations: Sequence[Violation]) -> None:
        for violation in violations:
            self._metrics.count("muster_invariant_violations", (*self._labels, ("invariant", violation.invariant)))
            self._log.error("invariant_violated", invariant=violation.invariant, detail=violation.detail)

    def unprovoked(self) -> None:
        self._metrics.count("muster_commits_without_facts", self._stage_label)

    def snapshot(self, seq: int, size: int) -> None:
        self._metrics.set("muster_snapshot_sequence", self._labels, seq)
        self._log.info("snapshot_kept", seq=seq, bytes=size)

    def note(self, level: str, event: str, **values: object) -> None:
        if level == "error":
            self._metrics.count("muster_errors", (*self._stage_label, ("event", event)))
        getattr(self._log, level if level in _LEVELS else "info")(event, **values)

    def trace_of(self, events: Sequence[Event]) -> dict[str, str]:
        return self._traces.header(events)

    def wrote(self, ref: Ref, cause: Cause, verb: str, times: tuple[int, int], trouble: str) -> None:
        self._traces.wrote(ref, cause, verb, times, trouble)

    def published(self, event: PublicEvent) -> None:
        counting.count(self._metrics, event)

    def ages(self) -> Iterator[Measure]:
        """Since when nothing was heard of the API server, of a stage that watches."""
        if self.last_heard is not None:
            age = asyncio.get_running_loop().time() - self.last_heard[1]
            yield "muster_watch_age_seconds", labels(shard=self._shard), age

    # --- reflectors -------------------------------------------------------------------------------------------

    def restarted(self, resource: str, cause: str, detail: str) -> None:
        self._metrics.count("muster_watch_restarts", labels(resource=resource, reason=str(cause)))
        self._log.debug("watch_restarted", resource=resource, cause=str(cause), detail=detail)

    def heard(self, resource: str, at_s: float) -> None:
        self.last_heard = (resource, at_s)

    def sized(self, resource: str, objects: int) -> None:
        self._metrics.set("muster_watch_objects", labels(resource=resource), objects)

    def ready(self, resource: str, ready: bool, why: str) -> None:
        self._metrics.set("muster_watch_ready", labels(resource=resource), 1 if ready else 0)
        self._log.info("watch_ready" if ready else "watch_not_ready", resource=resource, why=why)
