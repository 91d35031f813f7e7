"""The simulated API server over HTTP: what kubectl and our own client get to see."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from kit.documents import manifest
from kit.waiting import until
from muster.fakecluster.apiserver import SimApiServer
from muster.fakecluster.apiserver.http import MAX_BODY_BYTES, HttpApiServer
from muster.kube.config import connect
from muster.kube.sources import Explicit
from muster.model.api import NODES, RAYJOBS

JOBS = RAYJOBS.path("video")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class Client:
    """Plain HTTP, as anybody would speak it."""

    def __init__(self, session: aiohttp.ClientSession, url: str, server: SimApiServer) -> None:
        self.session = session
        self.url = url
        self.server = server

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Content-Type": options.pop("content_type", "application/json"), **options.pop("headers", {})}
        async with self.session.request(method, self.url + path, data=data, headers=headers, **options) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text[:1] in ("{", "[") else text

    async def create_job(self) -> str:
        status, found = await self.call("POST", JOBS, manifest("rayjob-video"))
        assert status == 201, found
        name: str = found["metadata"]["name"]
        return name


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    server = SimApiServer(lambda: 1_736_472_990_000, auto_namespaces=True)
    node = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "16"}}}
    server.objects.create(NODES, "", node)
    http = HttpApiServer(server)
    await http.start()
    async with aiohttp.ClientSession() as session:
        yield Client(session, http.url, server)
    await http.stop()


async def test_objects_are_created_read_patched_and_deleted(client: Client) -> None:
    name = await client.create_job()
    assert name.startswith("rayjob-video-")
    status, found = await client.call("GET", f"{JOBS}/{name}")
    assert (status, found["spec"]["suspend"]) == (200, True)
    patch = {"spec": {"suspend": False}}
    merge = "application/merge-patch+json"
    status, found = await client.call("PATCH", f"{JOBS}/{name}", patch, content_type=merge)
    assert (status, found["spec"]["suspend"]) == (200, False)
    status, _ = await client.call("DELETE", f"{JOBS}/{name}")
    assert status == 200
    status, found = await client.call("GET", f"{JOBS}/{name}")
    assert (status, found["kind"], found["reason"]) == (404, "Status", "NotFound")


async def test_a_body_may_be_yaml_and_nothing_else_than_json(client: Client) -> None:
    body = yaml.safe_dump(manifest("rayjob-video")).encode()
    assert (await client.call("POST", JOBS, body, content_type="application/yaml"))[0] == 201
    assert (await client.call("POST", JOBS, b"{a: [", content_type="application/yaml"))[0] == 400
    status, found = await client.call("POST", JOBS, b"k8s\x00", content_type="application/vnd.kubernetes.protobuf")
    assert status == 415
    assert "kubectl apply -f" in found["message"]


async def test_tables_show_the_printer_columns(client: Client) -> None:
    name = await client.create_job()
    _, found = await client.call("GET", JOBS, headers={"Accept": TABLE})
    assert found["kind"] == "Table"
    titles = [column["name"] for column in found["columnDefinitions"]]
    assert titles[:3] == ["Name", "job status", "deployment status"]
    assert [row["cells"][0] for row in found["rows"]] == [name]
    assert found["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    _, one = await client.call("GET", f"{JOBS}/{name}?includeObject=Object", headers={"Accept": TABLE})
    assert one["rows"][0]["object"]["spec"]["suspend"] is True
    _, nodes = await client.call("GET", "/api/v1/nodes", headers={"Accept": TABLE})
    assert nodes["rows"][0]["cells"][:3] == ["n1", "NotReady", "16"]
    # A client that only would take a table if there was nothing else gets objects.
    _, plain = await client.call("GET", JOBS, headers={"Accept": f"application/json,{TABLE}"})
    assert plain["kind"] == "RayJobList"


async def test_errors_are_no_tables(client: Client) -> None:
    status, found = await client.call("GET", f"{JOBS}/nobody", headers={"Accept": TABLE})
    assert (status, found["kind"]) == (404, "Status")
    status, found = await client.call("GET", "/apis/nothing.here/v1", headers={"Accept": TABLE})
    assert status == 404


async def watch_lines(client: Client, query: str, count: int, **headers: str) -> list[Any]:
    async with client.session.get(f"{client.url}{JOBS}?watch=true&{query}", headers=headers) as answer:
        assert answer.status == 200
        return [json.loads(await answer.content.readline()) for _ in range(count)]


async def test_a_watch_answers_before_anything_happens_and_then_tells_it(client: Client) -> None:
    version = client.server.store.version
    async with client.session.get(f"{client.url}{JOBS}?watch=1&resourceVersion={version}") as answer:
        # Here is the answer's head although there is no line yet.
        assert answer.status == 200
        name = await client.create_job()
        line = json.loads(await answer.content.readline())
    assert (line["type"], line["object"]["metadata"]["name"]) == ("ADDED", name)


async def test_a_watch_of_tables_has_one_row_a_line(client: Client) -> None:
    name = await client.create_job()
    [line] = await watch_lines(client, "", 1, Accept=TABLE)
    assert line["object"]["kind"] == "Table"
    assert [row["cells"][0] for row in line["object"]["rows"]] == [name]


async def test_a_watch_that_cannot_be_is_refused_with_a_status(client: Client) -> None:
    for query, code in (("resourceVersion=x", 500), ("labelSelector=a%20b", 400), ("fieldSelector=spec.x%3D1", 400)):
        status, found = await client.call("GET", f"{JOBS}?watch=true&{query}")
        assert (status, found["kind"]) == (code, "Status"), query
    status, _ = await client.call("GET", "/apis/ray.io/v1/namespaces/video/nothing?watch=true")
    assert status == 404


async def test_a_watch_ends_at_its_time_limit_and_with_the_server(client: Client) -> None:
    async with client.session.get(f"{client.url}{JOBS}?watch=true&timeoutSeconds=0.05") as answer:
        assert await answer.read() == b""


async def test_stopping_ends_watches_at_once() -> None:
    http = HttpApiServer(SimApiServer(lambda: 0, auto_namespaces=True))
    await http.start()
    async with aiohttp.ClientSession() as session, session.get(f"{http.url}{JOBS}?watch=true") as answer:
        async with asyncio.timeout(5):
            await http.stop()
            with pytest.raises(aiohttp.ClientError):
                await answer.read()
                raise aiohttp.ClientError("the stream ended in good order, which will do as well")


async def test_nothing_is_answered_without_the_prefix_or_under_another_host(client: Client) -> None:
    root = client.url.rsplit("/", 1)[0]
    async with client.session.get(f"{root}/api/v1/nodes") as answer:
        assert answer.status == 404
    status, found = await client.call("GET", "/api/v1/nodes", headers={"Host": "evil.example:80"})
    assert (status, found["reason"]) == (403, "Forbidden")


async def test_dry_runs_are_refused_rather_than_carried_out(client: Client) -> None:
    status, found = await client.call("POST", f"{JOBS}?dryRun=All", manifest("rayjob-video"))
    assert status == 400
    assert "no dry runs" in found["message"]
    name = await client.create_job()
    assert (await client.call("DELETE", f"{JOBS}/{name}", {"dryRun": ["All"]}))[0] == 400
    assert (await client.call("GET", f"{JOBS}/{name}"))[0] == 200


async def test_a_body_over_the_limit_is_refused(client: Client) -> None:
    body = io.BytesIO(b"x" * (MAX_BODY_BYTES + 1))
    async with client.session.post(client.url + JOBS, data=body) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (413, "RequestEntityTooLarge")


async def test_clients_are_told_to_leave_validation_to_the_server(client: Client) -> None:
    _, index = await client.call("GET", "/openapi/v3")
    where = index["paths"]["apis/ray.io/v1"]["serverRelativeURL"]
    _, document = await client.call("GET", where)
    patch = document["paths"]["/apis/ray.io/v1/namespaces/{namespace}/rayjobs/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "ray.io", "version": "v1", "kind": "RayJob"}
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert (await client.call("GET", "/openapi/v3/apis/nothing/v1"))[0] == 404


async def test_our_own_client_works_over_it(client: Client) -> None:
    transport = await connect(Explicit(server=client.url), check=True)
    try:
        await client.create_job()
        answer = await transport.request("GET", JOBS)
        assert len(json.loads(answer.body)["items"]) == 1
        lines: list[bytes] = []

        async def follow() -> None:
            async for line in transport.watch(JOBS, query={}, idle_limit_s=10):
                lines.extend([line])

        task = asyncio.ensure_future(follow())
        await until(lambda: len(lines) == 1)
        await client.create_job()
        await until(lambda: len(lines) == 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    finally:
        await transport.close()


async def test_the_kubeconfig_is_only_its_owners(client: Client, tmp_path: Any) -> None:
    http = HttpApiServer(client.server, prefix="p")
    http.port = 1234
    path = tmp_path / "kubeconfig"
    http.write_kubeconfig(path, "demo")
    assert path.stat().st_mode & 0o077 == 0
    found = yaml.safe_load(path.read_text())
    assert found["current-context"] == "demo"
    assert found["clusters"][0]["cluster"]["server"] == "http://127.0.0.1:1234/p"
