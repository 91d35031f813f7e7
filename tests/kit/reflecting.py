"""A Reflector on a scripted transport: what it reports, and what its hooks hear."""

import asyncio
from contextlib import aclosing
from random import Random
from typing import Any

from kit.scripted import ScriptedTransport
from muster.kube.deltas import Absent, Delete, Delta, ListSynced, Unreadable, Upsert
from muster.kube.reflector import Reflector
from muster.model.api import PODS

SELECTOR = {"labelSelector": "ray.io/is-ray-node=yes"}


class Recorder:
    """Hooks that remember."""

    def __init__(self) -> None:
        self.causes: list[str] = []
        self.readiness: list[tuple[bool, str]] = []
        self.size = 0
        self.heard_s: list[float] = []

    def restarted(self, resource: str, cause: str, detail: str) -> None:
        self.causes.append(cause)

    def heard(self, resource: str, at_s: float) -> None:
        self.heard_s.append(at_s)

    def sized(self, resource: str, objects: int) -> None:
        self.size = objects

    def ready(self, resource: str, ready: bool, why: str) -> None:
        self.readiness.append((ready, why))


def make(api: ScriptedTransport, **settings: Any) -> tuple[Reflector, Recorder]:
    hooks = Recorder()
    return Reflector(api, PODS, hooks=hooks, rng=Random(1), **settings), hooks


async def run(reflector: Reflector, for_s: float) -> list[Delta]:
    """Everything reported in so many seconds."""
    found: list[Delta] = []

    async def collect() -> None:
        async with aclosing(reflector.deltas()) as deltas:
            async for delta in deltas:
                found.append(delta)  # noqa: PERF401 - what came before the time is up counts

    try:
        async with asyncio.timeout(for_s):
            await collect()
    except TimeoutError:
        pass
    return found


def words(deltas: list[Delta]) -> list[str]:
    """Deltas as short text: `+a@3`, `-a@3`, `?a`, `synced 2`, `resynced 2`, `absent`."""
    result = []
    for delta in deltas:
        match delta:
            case Upsert(meta, _):
                result.append(f"+{meta.name}@{meta.resource_version}")
            case Delete(meta, raw):
                result.append(f"-{meta.name}@{meta.resource_version}{'' if raw else ' concluded'}")
            case Unreadable(meta, _, _):
                result.append(f"?{meta.name if meta else ''}")
            case ListSynced(count, relist):
                result.append(f"{'re' if relist else ''}synced {count}")
            case Absent():
                result.append("absent")
    return result
