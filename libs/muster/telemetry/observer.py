"""One stage's telemetry: what its runner tells becomes log lines, metrics and spans."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.trace import Tracer

from muster.core.stage import Violation
from muster.events.base import Event
from muster.events.decisions import GangAdmitted, QuotaDenied, WorkloadQueued
from muster.events.envelope import Commit, Stored
from muster.telemetry.logs import Logger
from muster.telemetry.metrics import Metrics
from muster.telemetry.traces import CommitTraces

_LOGGED_AT_INFO = frozenset({"debug", "info", "warning", "error"})


class StageTelemetry:
    """Implements the runners' hooks (``runtime.hooks.Hooks``) and the reflector's (``kube.hooks.Hooks``)."""

    def __init__(self, stage: str, shard: str, metrics: Metrics, logger: Logger, tracer: Tracer | None) -> None:
        self._metrics = metrics
        self._log = logger.bind(stage=stage, shard=shard)
        self._traces = CommitTraces(tracer, stage)
        self._labels = {"stage": stage, "shard": shard}
        self._stage = stage
        self._queued_at: dict[str, int] = {}
        self.current_role = "starting"
        self.behind = 0

    # --- runners ----------------------------------------------------------------------------------------------

    def folded(self, batch: Sequence[Stored], behind: int) -> None:
        self.behind = behind
        self._metrics.folded.add(len(batch), self._labels)
        self._metrics.sequence.set(batch[-1].seq, self._labels)
        self._metrics.lag.set(behind, self._labels)
        for stored in batch:
            if stored.trace:
                self._traces.remember(stored.seq, stored.trace)

    def appended(self, commit: Commit, seq: int, took_s: float) -> None:
        self._traces.end(seq)
        self._metrics.commits.add(1, {**self._labels, "kind": commit.kind})
        self._metrics.append.record(took_s, self._labels)
        for event in commit.events:
            self._event(event, commit.at)
        self._log.debug("commit_appended", seq=seq, kind=commit.kind, events=len(commit.events), in_seq=commit.in_seq)

    def _event(self, event: Event, at: int) -> None:
        self._metrics.events.add(1, {"stage": self._stage, "type": type(event).__name__})
        match event:
            case GangAdmitted():
                self._metrics.admitted.add(1, {"queue": event.queue})
                self._log.info("gang_admitted", ref=str(event.ref), queue=event.queue, attempt=event.attempt)
            case QuotaDenied():
                self._metrics.refusals.add(1, {"queue": event.queue, "resource": event.resource})
                self._log.info(
                    "quota_denied",
                    ref=str(event.ref),
                    reason=event.reason,
                    path=event.path,
                    resource=event.resource,
                    asked=event.asked,
                    used=event.used,
                    limit=event.limit,
                )
            case WorkloadQueued():
                self._log.info("workload_queued", ref=str(event.ref), queue=event.queue, attempt=event.attempt)
            case _:
                pass

    def role(self, role: str, epoch: int) -> None:
        self.current_role = role
        self._metrics.leader.set(1 if role == "leading" else 0, self._labels)
        self._log.info("role_changed", role=role, epoch=epoch)

    def violated(self, violations: Sequence[Violation]) -> None:
        for violation in violations:
            self._metrics.violations.add(1, {**self._labels, "invariant": violation.invariant})
            self._log.error("invariant_violated", invariant=violation.invariant, detail=violation.detail)

    def restless(self, counts: dict[str, int]) -> None:
        self._metrics.restless.add(1, self._labels)
        self._log.error("decision_circle", counts=counts)

    def snapshot(self, seq: int, size: int) -> None:
        self._metrics.snapshot.set(seq, self._labels)
        self._log.info("snapshot_kept", seq=seq, bytes=size)

    def note(self, level: str, event: str, **values: object) -> None:
        getattr(self._log, level if level in _LOGGED_AT_INFO else "info")(event, **values)

    def trace_of(self, events: Sequence[Event]) -> dict[str, str]:
        return self._traces.begin(events)

    # --- reflectors -------------------------------------------------------------------------------------------

    def restarted(self, resource: str, cause: str, detail: str) -> None:
        self._metrics.watch_restarts.add(1, {"resource": resource, "reason": str(cause)})
        self._log.debug("watch_restarted", resource=resource, cause=str(cause), detail=detail)

    def heard(self, resource: str, at_s: float) -> None: ...

    def sized(self, resource: str, objects: int) -> None:
        self._metrics.watch_objects.set(objects, {"resource": resource})

    def ready(self, resource: str, ready: bool, why: str) -> None:
        self._metrics.watch_ready.set(1 if ready else 0, {"resource": resource})
        self._log.info("watch_ready" if ready else "watch_not_ready", resource=resource, why=why)
