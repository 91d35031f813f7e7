"""One trace per workload, from submit to finish, over all services; replays and standbys add nothing to it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kit.shell import Cell, play, small_job, small_tree
from muster.core.cell.deciders import DECIDERS
from muster.events.base import Cause, Event
from muster.events.envelope import Commit, Stored
from muster.events.facts import WorkloadFinished
from muster.model.keys import Ref
from muster.runtime.replaying.replay import replay
from muster.runtime.runners.hooks import NoHooks
from muster.telemetry.traceids import root_id, span_id, trace_id
from muster.telemetry.traces import WorkloadTraces, make_tracing


class Traced(NoHooks):
    """Hooks that keep traces and nothing else."""

    def __init__(self, traces: WorkloadTraces) -> None:
        self._traces = traces

    def folded(self, batch: Sequence[Stored]) -> None:
        for stored in batch:
            self._traces.folded(stored.seq, stored.commit)

    def appended(self, commit: Commit, seq: int, took_s: float) -> None:
        self._traces.appended(commit, seq, took_s)

    def trace_of(self, events: Sequence[Event]) -> dict[str, str]:
        return self._traces.header(events)

    def wrote(self, ref: Ref, cause: Cause, verb: str, times: tuple[int, int], trouble: str) -> None:
        self._traces.wrote(ref, cause, verb, times, trouble)


class Traces:
    """What the services of a cell have recorded."""

    def __init__(self, cell: Cell) -> None:
        self.exporter = InMemorySpanExporter()
        self._made = []
        self._cell = cell
        cell.hooks = self._hooks

    def _hooks(self, stage: str) -> Traced:
        tracing = make_tracing(stage, {}, self.exporter)
        assert tracing is not None
        self._made.append(tracing)
        return Traced(WorkloadTraces(tracing, stage, self._cell.log.identity.generation_of))

    def of_workloads(self) -> dict[int, list[ReadableSpan]]:
        found: dict[int, list[ReadableSpan]] = defaultdict(list)
        for tracing in self._made:
            tracing.provider.force_flush()
        for span in self.exporter.get_finished_spans():
            assert span.context is not None
            found[span.context.trace_id].append(span)
        return found


async def two_jobs(cell: Cell) -> None:
    cell.create(small_tree())
    cell.create(small_job("one"))
    cell.create(small_job("two"))
    await cell.until(lambda: cell.jobs() == {"one": "Complete", "two": "Complete"}, limit_s=600)
    await asyncio.sleep(20)


def test_one_trace_per_workload_from_submit_to_finish() -> None:
    cell = Cell()
    traces = Traces(cell)
    play(cell, two_jobs)
    found = traces.of_workloads()
    uids = [event.ref.uid for s in cell.commits() for event in s.commit.events if isinstance(event, WorkloadFinished)]
    assert set(found) == {trace_id(uid) for uid in uids}
    assert len(uids) == 2
    for uid in uids:
        spans = found[trace_id(uid)]
        ids = {span.context.span_id: span for span in spans if span.context is not None}
        assert len(ids) == len(spans), "no span twice"
        (root,) = [span for span in spans if span.parent is None]
        assert root.context is not None
        assert root.context.span_id == root_id(uid)
        names = {span.name for span in spans}
        assert {
            "watcher workload_observed",
            "queue_sorter workload_queued",
            "quota_accountant quota_reserved",
            "gang_admitter gang_admitted",
            "waits for its admission",
            "PATCH RayJob",
            "actuator effect_applied",
            "quota_accountant quota_released",
        } <= names
        for span in spans:
            assert span is root or span.parent is not None
            if span.parent is not None:
                assert span.parent.span_id in ids, f"{span.name} hangs on nothing"
            for link in span.links:
                assert link.context.trace_id in found, "a cause is a span of a workload"
        (wait,) = [span for span in spans if span.name == "waits for its admission"]
        (admitted,) = [span for span in spans if span.name == "gang_admitter gang_admitted"]
        assert root.start_time <= (wait.start_time or 0) <= (wait.end_time or 0) == admitted.start_time
        assert (wait.attributes or {})["muster.queue"] == (admitted.attributes or {})["muster.queue"]
        (queued,) = [span for span in spans if span.name == "queue_sorter workload_queued"]
        assert "cpu" in str((queued.attributes or {})["muster.request"])
        (released,) = [span for span in spans if span.name == "quota_accountant quota_released"]
        assert (released.attributes or {})["muster.reason"] == "finished"
        (patch,) = [span for span in spans if span.name == "PATCH RayJob"]
        assert patch.parent is not None
        assert ids[patch.parent.span_id].name == "gang_admitter gang_admitted", "the write is the decision's"
        (reserved,) = [span for span in spans if span.name == "quota_accountant quota_reserved"]
        linked = [ids[link.context.span_id].name for link in reserved.links if link.context.span_id in ids]
        assert any("queue_sorter" in name for name in linked), linked
        inside = [span for span in spans if span.name.startswith(("queue_sorter", "gang_admitter", "actuator"))]
        assert all(span.start_time >= root.start_time for span in inside)  # type: ignore[operator]


def test_a_replay_and_a_standby_record_nothing() -> None:
    cell = Cell()
    play(cell, two_jobs)
    exporter = InMemorySpanExporter()
    tracing = make_tracing("queue_sorter", {}, exporter)
    standby = Traced(WorkloadTraces(tracing, "queue_sorter", lambda _seq: 1))
    standby.folded(cell.commits())
    assert not replay(cell.commits(), silences=False).divergences
    assert tracing is not None
    tracing.provider.force_flush()
    assert exporter.get_finished_spans() == ()


def test_without_an_endpoint_nothing_is_made() -> None:
    assert make_tracing("x", {}) is None
    quiet = WorkloadTraces(None, "x", lambda _seq: 1)
    assert quiet.header([]) == {}


def test_ids_are_the_same_everywhere_and_differ_where_they_must() -> None:
    assert trace_id("uid") == trace_id("uid") != trace_id("other")
    assert len({span_id("uid", 1, 2), span_id("uid", 2, 1), span_id("uid", 1, 3), span_id("other", 1, 2)}) == 4
    assert set(DECIDERS) >= {"queue_sorter"}
