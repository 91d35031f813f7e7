"""A Ray head for tests: its gRPC and its dashboard on loopback, which say what a test sets, or fail as it sets.

Both sides speak as a head of Ray 2.60 does; tests/ray compares the readers with a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from aiohttp import web

from muster.ray import ray_head_pb2 as pb
from muster.ray.heads import Certificates

STATE = "ray.rpc.autoscaler.AutoscalerStateService"
SESSION = "session_2026-01-01_00-00-00_000000_1"
HEAD_TOTALS = {"node:__internal_head__": 1.0, "memory": 2.0**34}

Bundle = Mapping[str, float]


def request(bundle: Bundle, count: int = 1, selectors: Sequence[pb.LabelSelector] = ()) -> pb.ResourceRequestByCount:
    asked = pb.ResourceRequest(resources_bundle=bundle, label_selectors=selectors)
    return pb.ResourceRequestByCount(request=asked, count=count)


def selector(*constraints: tuple[str, int, Sequence[str]]) -> pb.LabelSelector:
    """(label, operator, values): all of them hold."""
    made = [
        pb.LabelSelectorConstraint(label_key=key, operator=kind, label_values=some) for key, kind, some in constraints
    ]
    return pb.LabelSelector(label_constraints=made)


def gang(name: str, strategy: str, bundles: Sequence[Bundle], state: str = "PENDING") -> pb.GangResourceRequest:
    requests = [pb.ResourceRequest(resources_bundle=bundle) for bundle in bundles]
    return pb.GangResourceRequest(requests=requests, details=f"{name}:{strategy}|{state}")


def node(
    pod: str, group: str = "small", status: int = pb.RUNNING, *, totals: Bundle | None = None, **fields: Any
) -> pb.NodeState:
    """A node whose id is the bytes of its pod's name."""
    return pb.NodeState(
        node_id=pod.encode(),
        instance_id=pod,
        ray_node_type_name=group,
        status=status,
        total_resources=totals if totals is not None else {"CPU": 1.0},
        **fields,
    )


def head_node() -> pb.NodeState:
    return node("head-pod", "headgroup", totals=HEAD_TOTALS)


def status(
    *nodes: pb.NodeState,
    pending: Sequence[pb.ResourceRequestByCount] = (),
    gangs: Sequence[pb.GangResourceRequest] = (),
    asked: Sequence[pb.ResourceRequestByCount] = (),
    autoscaling: pb.AutoscalingState | None = None,
    session: str = SESSION,
) -> pb.GetClusterStatusReply:
    """What a head answers: itself and these workers, and what waits."""
    return pb.GetClusterStatusReply(
        autoscaling_state=autoscaling,
        cluster_resource_state=pb.ClusterResourceState(
            node_states=[head_node(), *nodes],
            pending_resource_requests=pending,
            pending_gang_resource_requests=gangs,
            cluster_resource_constraints=[pb.ClusterResourceConstraint(resource_requests=asked)] if asked else [],
            cluster_session_name=session,
        ),
    )


class FakeGcs:
    """The gRPC of a head. Set what it answers while it runs."""

    def __init__(self) -> None:
        self.status: pb.GetClusterStatusReply | bytes = status()
        self.values: dict[tuple[bytes, bytes], bytes] = {(b"__autoscaler", b"__autoscaler_v2_enabled"): b"1"}
        self.actors: list[bytes] = []
        self.drained: list[pb.DrainNodeRequest] = []
        self.rejects = ""
        self.token = ""
        self.hangs: asyncio.Event | None = None
        """Unanswered until it is set."""
        self.fails: grpc.StatusCode | None = None
        self.broken: dict[str, grpc.StatusCode] = {}
        """Methods that fail."""
        self.calls: list[str] = []
        """Methods called, in order."""
        self.address = ""
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str = "127.0.0.1:0", shown: Certificates | None = None) -> None:
        """``shown``: it speaks TLS with these, and wants a certificate of the same authority."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Methods(self._answer),))
        if shown is None:
            port = self._server.add_insecure_port(address)
        else:
            pair = (shown.key, shown.cert)
            mutual = grpc.ssl_server_credentials([pair], shown.ca, require_client_auth=True)
            port = self._server.add_secure_port(address, mutual)
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        """As if it was killed."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def _answer(self, method: str, body: bytes, context: Any) -> bytes:
        self.calls.append(method.rpartition("/")[2])
        if self.token and ("authorization", f"Bearer {self.token}") not in context.invocation_metadata():
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "invalid or missing authentication token")
        if self.hangs is not None:
            await self.hangs.wait()
        if method.rpartition("/")[2] in self.broken:
            await context.abort(self.broken[method.rpartition("/")[2]], "as the test wants")
        if self.fails is not None:
            await context.abort(self.fails, "as the test wants")
        if method == f"/{STATE}/GetClusterStatus":
            return self.status if isinstance(self.status, bytes) else self.status.SerializeToString()
        if method == f"/{STATE}/DrainNode":
            self.drained.append(pb.DrainNodeRequest.FromString(body))
            accepted = not self.rejects
            return pb.DrainNodeReply(is_accepted=accepted, rejection_reason_message=self.rejects).SerializeToString()
        if method == "/ray.rpc.InternalKVGcsService/InternalKVGet":
            asked = pb.InternalKVGetRequest.FromString(body)
            value = self.values.get((asked.namespace, asked.key))
            if value is None:
                missing = pb.GcsStatus(code=17, message="NotFound")
                return pb.InternalKVGetReply(status=missing).SerializeToString()
            return pb.InternalKVGetReply(value=value).SerializeToString()
        if method == "/ray.rpc.ActorInfoGcsService/GetAllActorInfo":
            rows = [pb.ActorTableData(node_id=node) for node in self.actors]
            return pb.GetAllActorInfoReply(actor_table_data=rows).SerializeToString()
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, method)
        raise AssertionError("aborted")


class _Methods(grpc.GenericRpcHandler):
    """Every method there is, as bytes."""

    def __init__(self, answer: Callable[[str, bytes, Any], Awaitable[bytes]]) -> None:
        self._answer = answer

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        async def unary(body: bytes, context: Any) -> bytes:
            return await self._answer(details.method, body, context)

        return grpc.unary_unary_rpc_method_handler(unary)


TEXT = """======== Autoscaler status: 2026-01-01 10:20:30.405060 ========
Node status
---------------------------------------------------------------
Active:
 1 headgroup
Idle:
 (no idle nodes)
Pending:
 (no pending nodes)
Recent failures:
 (no failures)

Resources
---------------------------------------------------------------
Total Usage:
 0B/16.00GiB memory

From request_resources:
 {requested}
Pending Demands:
 {demands}
"""


class FakeDashboard:
    """The dashboard of a head."""

    def __init__(self) -> None:
        self.requested = "(none)"
        self.demands = "(no resource demands)"
        self.text: str | None = None
        """Instead of what TEXT makes of the two above."""
        self.broken: dict[str, int] = {}
        """Lists that fail, with what they answer."""
        self.groups: list[dict[str, Any]] = []
        self.actors: list[dict[str, Any]] = []
        self.raylets: list[dict[str, Any]] = []
        self.totals: list[dict[str, Any]] = []
        self.token = ""
        self.hangs: asyncio.Event | None = None
        self.answers: Callable[[], web.StreamResponse] | None = None
        """Instead of everything else."""
        self.calls = 0
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, asked: web.Request) -> web.StreamResponse:
        self.calls += 1
        if self.hangs is not None:
            await self.hangs.wait()
        if self.token and "authorization" not in asked.headers:
            return web.Response(status=401, text="Unauthorized: Missing authentication token")
        if self.token and asked.headers["authorization"] != f"Bearer {self.token}":
            return web.Response(status=403, text="Forbidden: Invalid authentication token")
        if self.answers is not None:
            return self.answers()
        if asked.path == "/api/cluster_status":
            text = self.text or TEXT.replace("{requested}", self.requested).replace("{demands}", self.demands)
            return _said({"clusterStatus": text})
        if asked.path == "/nodes":
            return _said({"summary": [{"raylet": raylet} for raylet in self.raylets]})
        if asked.path.rpartition("/")[2] in self.broken:
            return web.Response(status=self.broken[asked.path.rpartition("/")[2]])
        lists = {"placement_groups": self.groups, "actors": self.actors, "nodes": self.totals}
        rows = lists[asked.path.removeprefix("/api/v0/")]
        return _said({"result": {"total": len(rows), "result": rows, "partial_failure_warning": ""}})


def raylet(pod: str, group: str = "small", state: str = "ACTIVE", *, head: bool = False, idle_ms: int = 0) -> Any:
    return {
        "nodeId": pod.encode().hex(),
        "instanceId": pod,
        "nodeTypeName": group,
        "state": "ALIVE",
        "isHeadNode": head,
        "sessionDir": f"/tmp/ray/{SESSION}",
        "stateSnapshot": {"state": state, "idleDurationMs": str(idle_ms), "nodeActivity": []},
    }


def placement_group(name: str, bundles: Sequence[Bundle]) -> dict[str, Any]:
    return {
        "placement_group_id": name,
        "state": "PENDING",
        "bundles": [{"unit_resources": dict(bundle), "node_id": ""} for bundle in bundles],
    }


def _said(data: Any) -> web.Response:
    return web.json_response({"result": True, "msg": "", "data": data})


@asynccontextmanager
async def fake_gcs() -> AsyncIterator[FakeGcs]:
    """A running one."""
    gcs = FakeGcs()
    await gcs.start()
    try:
        yield gcs
    finally:
        await gcs.stop()


@asynccontextmanager
async def fake_dashboard() -> AsyncIterator[FakeDashboard]:
    """A running one."""
    dashboard = FakeDashboard()
    await dashboard.start()
    try:
        yield dashboard
    finally:
        await dashboard.stop()
