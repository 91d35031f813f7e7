"""What it costs to take objects off the wire: `python tests/perf/bench_decode.py`.

Aim: at most 25 us of CPU per watch event, and 0.2 s per list of 5,000 pods of 4.6 KB.
"""

import asyncio
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from muster.kube.deltas import ListSynced
from muster.kube.lines import LineSplitter
from muster.kube.nesting import array_items, object_members
from muster.kube.objects import decode_event, decode_meta, decode_page
from muster.kube.reflector import Reflector
from muster.model.api import PODS
from muster.ports import ApiResponse

PODS_IN_LIST = 5000
PAGE = 500
EVENTS = 20_000


def pod(number: int, rv: int) -> dict[str, Any]:
    """A Ray worker pod as large as they are."""
    env = [{"name": f"RAY_SETTING_{n}", "value": "x" * 40} for n in range(39)]
    managed: dict[str, Any] = {f"f:field{n}": {"f:name": {}, "f:value": {}} for n in range(25)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"train-{number // 8}-worker-{number:06}",
            "namespace": f"team-{number % 20}",
            "uid": f"7c9e6679-7425-40de-944b-{number:012}",
            "resourceVersion": str(rv),
            "generation": 1,
            "labels": {"ray.io/is-ray-node": "yes", "ray.io/cluster": f"train-{number // 8}", "ray.io/group": "gpu"},
            "managedFields": [{"manager": "kuberay", "operation": "Update", "fieldsV1": managed}],
        },
        "spec": {
            "containers": [
                {
                    "name": "ray",
                    "image": "ray",
                    "env": env,
                    "resources": {"requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}},
                }
            ],
            "schedulerName": "muster",
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"} for _ in range(4)]},
    }


class Canned:
    """An ApiTransport with a list in pages and one watch, without a network."""

    def __init__(self, pages: list[bytes], events: list[bytes]) -> None:
        self.pages = pages
        self.events = events
        self.done = asyncio.Event()

    async def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, **_: Any) -> ApiResponse:
        return ApiResponse(200, self.pages[int((query or {}).get("continue", "0"))])

    async def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        for line in self.events:
            yield line
        self.done.set()
        await asyncio.Event().wait()


def cpu_s(work: Callable[[], Any], times: int = 3) -> float:
    """CPU seconds of the best of some runs."""
    best = float("inf")
    for _ in range(times):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def make_pages() -> list[bytes]:
    """The list as a server sends it, 500 to a page."""
    pages = []
    for start in range(0, PODS_IN_LIST, PAGE):
        token = str(start // PAGE + 1) if start + PAGE < PODS_IN_LIST else ""
        items = [pod(number, 1000 + number) for number in range(start, start + PAGE)]
        found = {"metadata": {"resourceVersion": "9000", "continue": token}, "items": items}
        pages.append(json.dumps(found, separators=(",", ":")).encode())
    return pages


def decode_list(pages: list[bytes]) -> int:
    """The reflector's two steps over all pages; objects found."""
    return sum(len([decode_meta(raw) for raw in decode_page(body).items]) for body in pages)


def slow_list(pages: list[bytes]) -> int:
    """The way around a value nested too deeply."""
    return sum(len(array_items(object_members(body)["items"])) for body in pages)


async def follow(transport: Canned) -> tuple[float, float]:
    """(CPU s until Synced, CPU s of all events) of a Reflector."""
    started = time.process_time()
    synced = 0.0
    async with aclosing(Reflector(transport, PODS).deltas()) as deltas:
        seen = 0
        async for delta in deltas:
            if isinstance(delta, ListSynced):
                synced = time.process_time()
            elif synced:
                seen += 1
                if seen == len(transport.events):
                    break
    return synced - started, time.process_time() - synced


def main() -> None:
    """Print the table."""
    pages = make_pages()
    events = [
        json.dumps({"type": "MODIFIED", "object": pod(n % PODS_IN_LIST, 10_000 + n)}, separators=(",", ":")).encode()
        for n in range(EVENTS)
    ]
    stream = b"\n".join(events) + b"\n"
    chunks = [stream[at : at + 65536] for at in range(0, len(stream), 65536)]
    size = sum(map(len, pages)) / PODS_IN_LIST
    print(f"{PODS_IN_LIST} pods of {size:.0f} bytes, {EVENTS} events of {len(stream) / EVENTS:.0f} bytes")

    assert decode_list(pages) == slow_list(pages) == PODS_IN_LIST
    print(f"list, two-step decode               {cpu_s(lambda: decode_list(pages)):8.3f} CPU s")
    print(f"list, msgspec to dicts              {cpu_s(lambda: [msgspec.json.decode(b) for b in pages]):8.3f} CPU s")
    print(f"list, by brackets (deep values only){cpu_s(lambda: slow_list(pages), 1):8.3f} CPU s")

    per_event = cpu_s(lambda: [decode_meta(decode_event(line).object) for line in events]) / EVENTS
    print(f"event, two-step decode              {per_event * 1e6:8.2f} us")
    splitter = LineSplitter(1 << 24)
    lines = cpu_s(lambda: [splitter.feed(chunk) for chunk in chunks]) / EVENTS
    print(f"event, cut from 64 KB chunks        {lines * 1e6:8.2f} us")

    found = [asyncio.run(follow(Canned(pages, events))) for _ in range(3)]
    print(f"reflector, list to Synced           {min(a for a, _ in found):8.3f} CPU s")
    print(f"reflector, event to delta           {min(b for _, b in found) / EVENTS * 1e6:8.2f} us")

    tracemalloc.start()
    reflector = Reflector(Canned(pages, []), PODS)

    async def list_only() -> None:
        async with aclosing(reflector.deltas()) as deltas:
            async for delta in deltas:
                if isinstance(delta, ListSynced):
                    break

    asyncio.run(list_only())
    print(f"reflector's store, {len(reflector.store)} objects     {tracemalloc.get_traced_memory()[0] / 1e6:8.2f} MB")


if __name__ == "__main__":
    main()
