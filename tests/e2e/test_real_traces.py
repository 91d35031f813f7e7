"""Traces of real processes arrive by OTLP: one for each workload, with spans of every service that had a say."""

import gzip
from collections import defaultdict
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kit.cluster import Cluster
from kit.fleet import Fleet
from kit.story import quota_tree
from kit.traffic import Traffic, tree
from kit.waiting import until
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.events import subjects
from muster.events.facts import WorkloadFinished
from muster.telemetry.traceids import trace_id

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Receiver:
    """An OTLP receiver that keeps what it is sent: trace id -> (service, span name)."""

    def __init__(self) -> None:
        self.spans: dict[int, set[tuple[str, str]]] = defaultdict(set)
        self.roots: dict[int, str] = {}

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        told = ExportTraceServiceRequest.FromString(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        for resource in told.resource_spans:
            service = {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    number = int.from_bytes(span.trace_id, "big")
                    self.spans[number].add((service, span.name))
                    if not span.parent_span_id:
                        self.roots[number] = span.name
        return web.Response()


async def test_traces_arrive_by_otlp(cluster: Cluster, tmp_path: Path) -> None:
    receiver, application = Receiver(), web.Application()
    application.router.add_post("/v1/traces", receiver.receive)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    await cluster.kube.create(quota_tree(tree(2)))
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_BSP_SCHEDULE_DELAY": "200"}
    async with Fleet(tmp_path, cluster.plane.kubeconfig, env=env) as fleet:
        traffic = Traffic(cluster)
        cluster.keep(traffic.run())

        async def three_finished() -> bool:
            return len(await fleet.happened(WorkloadFinished)) >= 3

        await cluster.until(three_finished, 90.0, every_s=0.2)
        await traffic.over()
        uids = {event.ref.uid: event.ref for event in await fleet.happened(WorkloadFinished)}
        wanted = {
            ("muster-watcher", "watcher workload_observed"),
            ("muster-queue_sorter", "queue_sorter workload_queued"),
            ("muster-quota_accountant", "quota_accountant quota_reserved"),
            ("muster-gang_admitter", "gang_admitter gang_admitted"),
            ("muster-actuator", "PATCH RayJob"),
        }

        def all_here() -> bool:
            return all(wanted <= receiver.spans[trace_id(uid)] for uid in uids) and len(receiver.roots) >= len(uids)

        await until(all_here, 60.0, what="a whole trace of each workload")
        assert {trace_id(uid): str(ref) for uid, ref in uids.items()} == receiver.roots
        connection = await connect(fleet.url, name="outsider")
        subject = "muster.pub.v1.main.workload_admitted.>"
        js = JetStream(connection)
        message = await until(lambda: js.next(subjects.PUBLIC_STREAM, subject, 1), what="outsiders to be told")
        await connection.close()
        assert int(message.headers["traceparent"].split("-")[1], 16) in receiver.roots, "outsiders go on with the trace"
    await runner.cleanup()
