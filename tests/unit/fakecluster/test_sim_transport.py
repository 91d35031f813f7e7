"""The simulated transport: faults, time limits, and the same contract under a virtual clock."""

import asyncio
import json
from typing import Any

import pytest

from kit.ray import Object
from kit.waiting import until
from muster.fakecluster.apiserver import FaultDraw, FaultRates, SimApiServer, SimTransport
from muster.fakecluster.apiserver.faults import LineFault
from muster.model.api import MERGE_PATCH, NAMESPACES, RAYJOBS
from muster.ports import ApiStatusError, ApiUnreachableError

pytestmark = pytest.mark.looptime


def server(**options: object) -> SimApiServer:
    made = SimApiServer(lambda: 1_000, **options)  # type: ignore[arg-type]
    made.objects.create(NAMESPACES, "", {"metadata": {"name": "ns"}})
    return made


def connect(made: SimApiServer, /, *, seed: int = 0, **rates: Any) -> SimTransport:
    return SimTransport(made, FaultDraw(FaultRates(**rates), seed))


async def create(transport: SimTransport, name: str = "j") -> int:
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": {}}
    return (await transport.request("POST", RAYJOBS.path("ns"), body=json.dumps(job).encode())).status


def touch(made: SimApiServer, number: int, name: str = "j") -> None:
    made.objects.patch(RAYJOBS, "ns", name, {"metadata": {"labels": {"n": str(number)}}})


def numbers(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["object"]["metadata"].get("labels", {}).get("n", "") for line in lines]


async def test_a_lost_answer_is_carried_out_and_a_lost_request_is_not() -> None:
    for rate, exists in (("lose_response", True), ("lose_request", False)):
        made = server()
        with pytest.raises(ApiUnreachableError):
            await create(SimTransport(made, FaultDraw(FaultRates(**{rate: 1.0}))))
        assert (made.objects.find(RAYJOBS, "ns", "j") is not None) is exists


async def test_throttling_and_errors_carry_nothing_out() -> None:
    made = server()
    answer = await connect(made, throttle=1.0, retry_after_s=3.0).request("GET", RAYJOBS.path("ns"))
    assert (answer.status, answer.retry_after_s) == (429, 3.0)
    assert await create(connect(made, error=1.0)) >= 500
    assert made.objects.find(RAYJOBS, "ns", "j") is None


async def test_a_late_answer_is_a_lost_one() -> None:
    made, loop = server(), asyncio.get_running_loop()
    slow = connect(made, delay=1.0, delay_s=100.0)
    began = loop.time()
    with pytest.raises(ApiUnreachableError):
        await create(slow)
    assert loop.time() - began == pytest.approx(10.0)
    assert made.objects.find(RAYJOBS, "ns", "j") is not None


async def test_an_outage_refuses_requests_and_breaks_watches() -> None:
    made = server()
    transport, loop = SimTransport(made), asyncio.get_running_loop()
    lines = transport.watch(RAYJOBS.path(), query={}, idle_limit_s=60.0)
    reading = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    transport.break_connections(5.0)
    with pytest.raises(ApiUnreachableError):
        await reading
    with pytest.raises(ApiUnreachableError):
        await create(transport)
    with pytest.raises(ApiUnreachableError):
        await anext(transport.watch(RAYJOBS.path(), query={}, idle_limit_s=60.0))
    came_back = loop.time() + 5.0
    await until(lambda: loop.time() >= came_back, 10.0, every_s=1.0)
    assert await create(transport) == 201


async def test_the_same_seed_gives_the_same_faults() -> None:
    async def statuses(seed: int) -> list[int]:
        transport, found = connect(server(), seed=seed, throttle=0.3, error=0.3, lose_response=0.3), []
        for number in range(50):
            try:
                found.append(await create(transport, f"j{number}"))
            except ApiUnreachableError:
                found.append(0)
        return found

    first = await statuses(7)
    assert {0, 201, 429} <= set(first)
    assert first == await statuses(7)
    assert first != await statuses(8)


async def test_healing_ends_all_faults() -> None:
    made = server()
    faults = FaultDraw(FaultRates(lose_request=1.0, cut_watch=1.0))
    transport = SimTransport(made, faults)
    faults.heal()
    assert await create(transport) == 201
    lines = transport.watch(RAYJOBS.path(), query={}, idle_limit_s=60.0)
    assert b"ADDED" in await anext(lines)
    await lines.aclose()  # type: ignore[attr-defined]


class Scripted(FaultDraw):
    """Faults of lines, one after the other."""

    def __init__(self, *script: LineFault) -> None:
        super().__init__(FaultRates())
        self._script = list(script)

    def line(self) -> LineFault:
        return self._script.pop(0) if self._script else ""


@pytest.mark.parametrize(
    ("script", "seen", "ends"),
    [
        (("", "repeat", ""), ["", "1", "1", "2", "3"], None),
        (("", "swap", ""), ["", "2", "1", "3"], None),
        (("", "", "end"), ["", "1"], StopAsyncIteration),
        (("", "", "cut"), ["", "1"], ApiUnreachableError),
        (("", "", "expire"), ["", "1", "ERROR"], StopAsyncIteration),
    ],
)
async def test_faults_of_a_stream(script: tuple[LineFault, ...], seen: list[str], ends: type[Exception] | None) -> None:
    made = server()
    await create(SimTransport(made))
    transport = SimTransport(made, Scripted(*script))
    version = str(made.store.version - 1)
    for number in (1, 2, 3):
        touch(made, number)
    lines, found = transport.watch(RAYJOBS.path(), query={"resourceVersion": version}, idle_limit_s=60.0), []
    for _ in seen:
        event = json.loads(await anext(lines))
        error = event["type"] == "ERROR"
        found.append("ERROR" if error else event["object"]["metadata"].get("labels", {}).get("n", ""))
    assert found == seen
    if ends is not None:
        with pytest.raises(ends):
            await anext(lines)
    await lines.aclose()  # type: ignore[attr-defined]


async def test_a_quiet_watch_is_told_how_far_it_is_and_gives_up_when_it_is_not() -> None:
    made = server()
    query = {"allowWatchBookmarks": "true", "resourceVersion": str(made.store.version)}
    lines = SimTransport(made).watch(RAYJOBS.path(), query=query, idle_limit_s=90.0)
    bookmark = json.loads(await anext(lines))
    assert asyncio.get_running_loop().time() == pytest.approx(60.0)
    assert (bookmark["type"], bookmark["object"]["metadata"]["resourceVersion"]) == (
        "BOOKMARK",
        str(made.store.version),
    )
    await lines.aclose()  # type: ignore[attr-defined]
    with pytest.raises(ApiUnreachableError):
        await anext(SimTransport(made).watch(RAYJOBS.path(), query={}, idle_limit_s=50.0))


async def test_a_watcher_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.fakecluster.apiserver.transport.MAX_PENDING_LINES", 10)
    made = server()
    await create(SimTransport(made))
    lines = SimTransport(made).watch(RAYJOBS.path(), query={}, idle_limit_s=50.0)
    await anext(lines)
    for number in range(12):
        touch(made, number)
    with pytest.raises(ApiUnreachableError):
        [line async for line in lines]


async def test_what_is_denied_is_refused_and_reviewed() -> None:
    made = server(denied=frozenset([("patch", "ray.io", "rayjobs"), ("watch", "*", "*")]))
    transport = SimTransport(made)
    assert await create(transport) == 201
    answer = await transport.request("PATCH", RAYJOBS.path("ns", "j"), body=b"{}", content_type=MERGE_PATCH)
    assert (answer.status, json.loads(answer.body)["reason"]) == (403, "Forbidden")
    with pytest.raises(ApiStatusError) as caught:
        await anext(transport.watch(RAYJOBS.path(), query={}, idle_limit_s=5.0))
    assert caught.value.status == 403

    async def allowed(verb: str) -> bool:
        asked: Object = {"verb": verb, "group": "ray.io", "resource": "rayjobs"}
        review = {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        found = await transport.request("POST", path, body=json.dumps(review).encode())
        return bool(json.loads(found.body)["status"]["allowed"])

    assert [await allowed(verb) for verb in ("create", "patch", "watch")] == [True, False, False]


async def test_a_definition_that_is_created_is_served_and_one_that_is_deleted_is_not() -> None:
    made = server()
    transport = SimTransport(made)
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.scheduling.x-k8s.io"},
        "spec": {
            "group": "scheduling.x-k8s.io",
            "scope": "Namespaced",
            "names": {"plural": "boxes", "kind": "Box", "shortNames": ["bx"]},
            "versions": [{"name": "v1alpha1", "served": True, "subresources": {"status": {}}}],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    groups = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/boxes"
    assert (await transport.request("GET", groups)).status == 404
    assert (await transport.request("POST", path, body=json.dumps(definition).encode())).status == 201
    assert (await transport.request("GET", groups)).status == 200
    listed = json.loads((await transport.request("GET", "/apis/scheduling.x-k8s.io/v1alpha1")).body)["resources"]
    assert {"boxes", "boxes/status"} <= {entry["name"] for entry in listed}
    assert (await transport.request("DELETE", f"{path}/boxes.scheduling.x-k8s.io")).status == 200
    assert (await transport.request("GET", groups)).status == 404
