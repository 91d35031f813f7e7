"""What the guard costs a request to the API server: requests of a tenant in a managed namespace, each beside
the same request in one that is not.

One client, one request at a time, on a real API server with everything of deploy/ applied: an object of each kind is
created (suspended), edited while it waits, and edited while it runs. The two namespaces take turns, so that what else
the machine does meanwhile costs both alike.

Run: python tests/perf/bench_guard.py [--requests 300]
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from figures import Grid, Progress

from kit import jobs
from kit.guarded import ALICE, FREE, MANAGED, client, gang_pod, guarded
from kit.kubeclient import KubeClient, Object
from muster.core.workloads.registry import KINDS

NAME = "measured"
BOTH = (FREE, MANAGED)
"""Namespaces without and with the guard."""
Cost = tuple[float, ...]
"""Milliseconds of a request: p50 and p99 without the guard, with it, and what it adds in the median."""


def sample(kind: str, index: int, namespace: str) -> Object:
    if kind == "Pod":
        made = gang_pod(namespace, {"schedulerName": "muster"})
    else:
        made = jobs.KINDS[kind].make(NAME, namespace)
    made["metadata"].pop("generateName", None)
    made["metadata"]["name"] = f"{NAME}-{index}"
    return made


async def cost(requests: int, ask: Callable[[int, str], Awaitable[object]]) -> Cost:
    took: dict[str, list[float]] = {namespace: [] for namespace in BOTH}
    for index in range(requests):
        for namespace in BOTH:
            began = time.perf_counter()
            await ask(index, namespace)
            took[namespace].append((time.perf_counter() - began) * 1000)
    cuts = [statistics.quantiles(took[namespace], n=100) for namespace in BOTH]
    added = [guarded - free for free, guarded in zip(*took.values(), strict=True)]
    return (*(each[at] for each in cuts for at in (49, 98)), statistics.median(added))


async def of_kind(alice: KubeClient, admin: KubeClient, kind: str, requests: int) -> dict[str, Cost]:
    """{request: its cost}"""
    about = sample(kind, 0, MANAGED)["apiVersion"], kind

    async def create(index: int, namespace: str) -> None:
        await alice.create(sample(kind, index, namespace))

    async def edit(index: int, namespace: str) -> None:
        patch = {"metadata": {"annotations": {"note": str(index)}}}
        await alice.patch(*about, f"{NAME}-0", namespace, patch=patch)

    found = {f"{kind}, created": await cost(requests, create)}
    found[f"{kind}, edited while it waits"] = await cost(requests, edit)
    if kind != "Pod":
        start = {"op": "add", "path": KINDS[kind].suspend_path, "value": False}
        admitted = {"op": "add", "path": "/metadata/annotations/muster.dev~1intent", "value": "1-7-0"}
        for namespace in BOTH:
            await admin.patch(*about, f"{NAME}-0", namespace, patch=[admitted, start])
        found[f"{kind}, edited while it runs"] = await cost(requests, edit)
    for namespace in BOTH:
        for index in range(requests):
            await admin.delete(*about, f"{NAME}-{index}", namespace, grace_s=0)
    return found


async def measure(requests: int, say: Progress) -> Grid:
    kinds = [*KINDS, "Pod"]
    cells: dict[str, Cost] = {}
    async with guarded() as plane, client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        for kind in kinds:
            say(f"guard: {kind}, {requests} requests of each sort")
            # The first requests of a kind compile expressions, and open what is opened once.
            await of_kind(alice, admin, kind, 5)
            cells |= await of_kind(alice, admin, kind, requests)
    about = (
        f"{requests} requests of each sort to a real kube-apiserver {plane.version} by a tenant, one at a time, in a "
        "managed namespace, and in turn with each the same in one that is not managed. The client runs on the same "
        "machine, and is part of the time."
    )
    columns = ("Request", "without, p50 ms", "without, p99 ms", "with, p50 ms", "with, p99 ms", "the guard adds, ms")
    middle = tuple(statistics.median(column) for column in zip(*cells.values(), strict=True))
    return Grid("What the guard costs a request", about, columns, {**cells, "the median of all": middle})


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    found = await measure(parser.parse_args().requests, Progress())
    print(found.about, *found.lines(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
