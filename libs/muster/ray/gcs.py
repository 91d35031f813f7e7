"""A head's gRPC: the state of the cluster in one call, without Ray. The only importer of grpc.

The client reads; its only order is to drain a node. The client never reports a state and never resizes a node.
"""

from __future__ import annotations

import json
from typing import Literal

import grpc
import grpc.aio
from google.protobuf.message import Message

from muster.ray import ray_head_pb2 as pb
from muster.ray.decoding import HEAD_RESOURCE, parse, reading_of
from muster.ray.errors import (
    DemandError,
    GarbledError,
    RefusedError,
    SlowError,
    TooLargeError,
    UnreachableError,
    UnsupportedError,
)
from muster.ray.heads import Certificates, Drained
from muster.ray.reading import Reading

TIMEOUT_S = 3.0
"""Of one call. A head under load answers in milliseconds."""
ANSWER_LIMIT_BYTES = 16 * 1024 * 1024
RECONNECT_MS = 5_000
"""The longest pause before a lost head is tried again."""
MAX_ACTORS = 10_000
_SHOWN = 200

_STATE = "/ray.rpc.autoscaler.AutoscalerStateService/"
_ACTORS = "/ray.rpc.ActorInfoGcsService/GetAllActorInfo"
_KEYS = "/ray.rpc.InternalKVGcsService/InternalKVGet"
_WHICH = (b"__autoscaler", b"__autoscaler_v2_enabled")
"""(namespace, key): "1" where the second version runs."""
_REQUESTED = (b"", b"autoscaler_resource_request")
"""Where the first version keeps what request_resources asks for: a list of bundles in JSON."""

_ERRORS: dict[grpc.StatusCode, type[DemandError]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: SlowError,
    grpc.StatusCode.UNAUTHENTICATED: RefusedError,
    grpc.StatusCode.PERMISSION_DENIED: RefusedError,
    grpc.StatusCode.UNIMPLEMENTED: UnsupportedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TooLargeError,
}
_WAYS_OUT: dict[type[DemandError], str] = {
    SlowError: "see whether the head has CPU left",
    RefusedError: "see the Secret that spec.authOptions of the RayCluster names",
    UnsupportedError: "Muster reads Ray 2.10 and newer",
    TooLargeError: f"Muster reads answers up to {ANSWER_LIMIT_BYTES // 1024 // 1024} MiB",
    UnreachableError: "see whether the head pod runs and its Service leads to it",
}


class GcsClient:
    """The gRPC of a head. A DemandSource; belongs to the event loop that first calls it.

    ``address``: ``host:6379``; ``token``: empty if the head asks for none; ``timeout_s``: of each call; ``tls``: the
    certificates for a head with TLS.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        timeout_s: float = TIMEOUT_S,
        tls: bool = False,
        certificates: Certificates | None = None,
    ) -> None:
        self._address = address
        self._tls = tls
        self._certificates = certificates
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._timeout_s = timeout_s
        self._channel: grpc.aio.Channel | None = None
        self._session = ""
        self._version: Literal["", "v1", "v2"] = ""
        """Of the session."""

    async def read(self) -> Reading:
        """What the head says now: one call, three with the first version of the autoscaler. Raises DemandError."""
        body = await self._call(_STATE + "GetClusterStatus", pb.GetClusterStatusRequest())
        status = parse(pb.GetClusterStatusReply(), body, self._address)
        state = status.cluster_resource_state
        if not status.HasField("autoscaling_state") and state.cluster_session_name != self._session:
            which = await self._value(*_WHICH)
            self._version = "v2" if which == b"1" else "v1" if which is not None else ""
            self._session = state.cluster_session_name
        asked = await self._requested() if self._version == "v1" else []
        busy = any(
            node.status in (pb.RUNNING, pb.DRAINING) and HEAD_RESOURCE not in node.total_resources
            for node in state.node_states
        )
        actors = await self._actors() if busy else frozenset[str]()
        return reading_of(status, version=self._version, constraints=asked, actors_on=actors)

    async def drain(self, node_id: str, *, deadline_ms: int, why: str, idle_only: bool = False) -> Drained:
        """Order a node (hex id) to drain until ``deadline_ms`` (since the epoch): Ray places nothing more there.

        With ``idle_only`` a busy node refuses. Else the node goes on with its work. Ray enforces no deadline: after the
        deadline the pod must be deleted. Raises DemandError.
        """
        reason = pb.DRAIN_NODE_REASON_IDLE_TERMINATION if idle_only else pb.DRAIN_NODE_REASON_PREEMPTION
        request = pb.DrainNodeRequest(
            node_id=bytes.fromhex(node_id), reason=reason, reason_message=why, deadline_timestamp_ms=deadline_ms
        )
        answer = parse(pb.DrainNodeReply(), await self._call(_STATE + "DrainNode", request), self._address)
        return Drained(answer.is_accepted, answer.rejection_reason_message)

    async def close(self) -> None:
        """Close the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _requested(self) -> list[dict[str, float]]:
        value = await self._value(*_REQUESTED)
        if not value:
            return []
        try:
            asked = json.loads(value)
            return [{str(name): float(bundle[name]) for name in bundle} for bundle in asked]
        except (ValueError, TypeError) as err:
            raise GarbledError(
                f"{self._address}: request_resources is kept as {value[:_SHOWN]!r}, not as a list of bundles"
            ) from err

    async def _actors(self) -> frozenset[str] | None:
        """Hex ids of the nodes with actors; None if unknown: a hint, and its absence costs nothing else."""
        request = pb.GetAllActorInfoRequest(
            show_dead_jobs=True, limit=MAX_ACTORS, filters=pb.GetAllActorInfoRequest.Filters(state=pb.ALIVE)
        )
        try:
            answer = parse(pb.GetAllActorInfoReply(), await self._call(_ACTORS, request), self._address)
        except DemandError:
            return None
        return frozenset(actor.node_id.hex() for actor in answer.actor_table_data if actor.node_id)

    async def _value(self, namespace: bytes, key: bytes) -> bytes | None:
        """A value of the head's key-value store; None where it has no such key."""
        request = pb.InternalKVGetRequest(namespace=namespace, key=key)
        answer = parse(pb.InternalKVGetReply(), await self._call(_KEYS, request), self._address)
        return None if answer.status.code else answer.value

    def _opened(self) -> grpc.aio.Channel:
        """Raises RefusedError."""
        if not self._tls:
            return grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        if self._certificates is None:
            raise RefusedError(
                f"the head at {self._address} speaks TLS, and MUSTER_RAY_TOKENS has no certificate for it: "
                "mount NAMESPACE.NAME.ca.crt, .tls.crt and .tls.key of its Secret"
            )
        shown = grpc.ssl_channel_credentials(self._certificates.ca, self._certificates.key, self._certificates.cert)
        return grpc.aio.secure_channel(self._address, shown, options=_OPTIONS)

    async def _call(self, path: str, request: Message) -> bytes:
        if self._channel is None:
            self._channel = self._opened()
        call = self._channel.unary_unary(path)
        try:
            answer: bytes = await call(request.SerializeToString(), timeout=self._timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as err:
            kind = _ERRORS.get(err.code(), UnreachableError)
            method = path.rpartition("/")[2]
            details = (err.details() or "nothing more")[:_SHOWN]
            raise kind(
                f"{method} of the head at {self._address}: {err.code().name.lower()} ({details}); {_WAYS_OUT[kind]}"
            ) from err
        return answer


_OPTIONS = (
    ("grpc.max_receive_message_length", ANSWER_LIMIT_BYTES),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),  # closing it closes the connection
    ("grpc.enable_http_proxy", 0),
)
