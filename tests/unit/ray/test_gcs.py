"""The gRPC client on a head that answers, that does not, and that answers with something else."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from kit import rayhead
from kit.rayhead import FakeGcs
from muster.model.raydemand import RayShape
from muster.ray import errors, gcs
from muster.ray import ray_head_pb2 as pb
from muster.ray.gcs import GcsClient
from muster.ray.heads import Certificates, Drained

READS = {"GetClusterStatus", "GetAllActorInfo", "InternalKVGet"}


@pytest_asyncio.fixture
async def head() -> AsyncIterator[FakeGcs]:
    async with rayhead.fake_gcs() as running:
        yield running


@pytest_asyncio.fixture
async def client(head: FakeGcs) -> AsyncIterator[GcsClient]:
    made = GcsClient(head.address, timeout_s=5)
    yield made
    await made.close()


async def test_a_settled_head_is_read_in_one_call(head: FakeGcs, client: GcsClient) -> None:
    autoscaling = pb.AutoscalingState(autoscaler_state_version=1)
    head.status = rayhead.status(rayhead.node("w", status=pb.IDLE), autoscaling=autoscaling)
    first = await client.read()
    assert await client.read() == first
    assert first.version == "v2"
    assert head.calls == ["GetClusterStatus"] * 2


async def test_nodes_with_actors_are_known(head: FakeGcs, client: GcsClient) -> None:
    head.status = rayhead.status(rayhead.node("w1"), rayhead.node("w2"))
    head.actors = [b"w2", b""]
    assert (await client.read()).actors_on == {b"w2".hex()}
    assert set(head.calls) == READS


async def test_a_list_of_actors_that_is_too_large_costs_only_that_list(head: FakeGcs, client: GcsClient) -> None:
    """10,000 actors with environments of their own are more than an answer may have."""
    waits = rayhead.request({"CPU": 1}, 7)
    head.status = rayhead.status(rayhead.node("w1"), pending=[waits])
    head.broken = {"GetAllActorInfo": grpc.StatusCode.RESOURCE_EXHAUSTED}
    found = await client.read()
    assert found.pending == (RayShape({"CPU": 10_000}, 7),)
    assert found.actors_on is None, "which is not that there are none"


@pytest.mark.parametrize(("value", "version"), [(b"1", "v2"), (b"0", "v1"), (None, "")])
async def test_the_version_is_asked_once_a_session(
    head: FakeGcs, client: GcsClient, value: bytes | None, version: str
) -> None:
    head.values = {} if value is None else {(b"__autoscaler", b"__autoscaler_v2_enabled"): value}
    assert (await client.read()).version == version
    asked = head.calls.count("InternalKVGet")
    await client.read()
    again = head.calls.count("InternalKVGet")
    assert again - asked == (1 if version == "v1" else 0)  # the first version's request_resources


async def test_what_the_first_version_keeps_of_request_resources(head: FakeGcs, client: GcsClient) -> None:
    head.values = {
        (b"__autoscaler", b"__autoscaler_v2_enabled"): b"0",
        (b"", b"autoscaler_resource_request"): b'[{"CPU": 1}, {"CPU": 1}, {"GPU": 0.5}]',
    }
    assert (await client.read()).explicit == (RayShape({"CPU": 10_000}, 2), RayShape({"GPU": 5_000}))
    head.values[(b"", b"autoscaler_resource_request")] = b"[3]"
    with pytest.raises(errors.GarbledError, match="request_resources"):
        await client.read()


def certified(folder: Path) -> Certificates:
    """One of its own authority, for loopback."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=head"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key", "-out", "cert"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    cert = (folder / "cert").read_bytes()
    return Certificates(cert, cert, (folder / "key").read_bytes())


async def test_a_head_that_speaks_tls_is_shown_a_certificate(tmp_path: Path) -> None:
    known, stranger = tmp_path / "known", tmp_path / "stranger"
    known.mkdir()
    stranger.mkdir()
    shown = certified(known)
    head = FakeGcs()
    await head.start(shown=shown)
    tries = {"ours": shown, "none": None, "of a stranger": certified(stranger)}
    clients = {name: GcsClient(head.address, tls=True, certificates=each) for name, each in tries.items()}
    try:
        assert (await clients["ours"].read()).session
        with pytest.raises(errors.RefusedError, match=r"NAMESPACE\.NAME\.ca\.crt"):
            await clients["none"].read()
        with pytest.raises(errors.UnreachableError):
            await clients["of a stranger"].read()
    finally:
        for client in clients.values():
            await client.close()
        await head.stop()


async def test_the_token_goes_along(head: FakeGcs) -> None:
    head.token = "secret"
    for token, refused in (("", True), ("other", True), ("secret", False)):
        client = GcsClient(head.address, token=token)
        if refused:
            with pytest.raises(errors.RefusedError, match="authOptions") as told:
                await client.read()
            assert "secret" not in str(told.value) and "other" not in str(told.value)
        else:
            await client.read()
        await client.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, errors.UnsupportedError),
        (grpc.StatusCode.UNAVAILABLE, errors.UnreachableError),
        (grpc.StatusCode.INTERNAL, errors.UnreachableError),
        (grpc.StatusCode.PERMISSION_DENIED, errors.RefusedError),
    ],
)
async def test_failures_have_types(
    head: FakeGcs, client: GcsClient, code: grpc.StatusCode, error: type[Exception]
) -> None:
    head.fails = code
    with pytest.raises(error, match="GetClusterStatus of the head at 127"):
        await client.read()
    head.fails = None
    await client.read()


async def test_a_slow_head_is_given_up(head: FakeGcs) -> None:
    head.hangs = asyncio.Event()
    client = GcsClient(head.address, timeout_s=0.1)
    with pytest.raises(errors.SlowError, match="CPU"):
        await client.read()
    head.hangs.set()
    head.hangs = None
    await client.close()


async def test_a_lost_head_is_found_again(head: FakeGcs, client: GcsClient) -> None:
    await client.read()
    address = head.address
    await head.stop()
    with pytest.raises(errors.UnreachableError, match="Service"):
        await client.read()
    await head.start(address)
    async with asyncio.timeout(30):
        while True:
            try:
                await client.read()
                break
            except errors.DemandError:
                await asyncio.sleep(0.05)


async def test_what_speaks_no_grpc_is_unreachable() -> None:
    async def http(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(http, "127.0.0.1", 0)
    client = GcsClient(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=1)
    with pytest.raises((errors.UnreachableError, errors.SlowError)):
        await client.read()
    await client.close()
    server.close()


async def test_garbage_and_half_answers_are_refused(head: FakeGcs, client: GcsClient) -> None:
    whole = rayhead.status(rayhead.node("w")).SerializeToString()
    for answer in (b"\xff" * 40, whole[:-1], b""):
        head.status = answer
        with pytest.raises(errors.GarbledError):
            await client.read()


async def test_too_large_an_answer_is_refused(
    head: FakeGcs, client: GcsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs, "_OPTIONS", (("grpc.max_receive_message_length", 1_000),))
    head.status = rayhead.status(*(rayhead.node(f"w{i}") for i in range(100)))
    with pytest.raises(errors.TooLargeError, match="MiB"):
        await client.read()


async def test_ten_thousand_shapes_are_read(head: FakeGcs, client: GcsClient) -> None:
    head.status = rayhead.status(pending=[rayhead.request({f"r{i}": 1.0}) for i in range(10_000)])
    found = await client.read()
    assert (len(found.pending), found.left_out) == (1_000, 9_000)


async def test_a_node_is_ordered_to_drain(head: FakeGcs, client: GcsClient) -> None:
    assert await client.drain(b"w".hex(), deadline_ms=77, why="owed") == Drained(True)
    order = head.drained[0]
    assert (order.node_id, order.reason, order.reason_message, order.deadline_timestamp_ms) == (
        b"w",
        pb.DRAIN_NODE_REASON_PREEMPTION,
        "owed",
        77,
    )
    head.rejects = "busy"
    assert await client.drain(b"w".hex(), deadline_ms=77, why="owed", idle_only=True) == Drained(False, "busy")
    assert head.drained[1].reason == pb.DRAIN_NODE_REASON_IDLE_TERMINATION


async def test_nothing_is_called_but_what_reads_and_drains(head: FakeGcs, client: GcsClient) -> None:
    head.values = {(b"__autoscaler", b"__autoscaler_v2_enabled"): b"0"}
    head.status = rayhead.status(rayhead.node("w"))
    await client.read()
    await client.drain("00", deadline_ms=1, why="")
    assert set(head.calls) == READS | {"DrainNode"}


async def test_a_closed_client_leaves_no_connection(head: FakeGcs) -> None:
    client = GcsClient(head.address)
    await client.read()
    await client.close()
    await client.close()
    port = int(head.address.rpartition(":")[2])
    async with asyncio.timeout(10):
        while _connections(port):
            await asyncio.sleep(0.01)


def _connections(port: int) -> list[Any]:
    import psutil

    return [
        each
        for each in psutil.Process().net_connections("tcp")
        if each.raddr and each.raddr.port == port and each.status == psutil.CONN_ESTABLISHED
    ]


async def test_a_closed_port_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = GcsClient(f"127.0.0.1:{unused.getsockname()[1]}", timeout_s=5)
        with pytest.raises(errors.UnreachableError):
            await client.read()
        await client.close()
