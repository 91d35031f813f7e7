"""Users: Jobs of one to eight pods in three queues that lend to each other, gangs of pods, a canary when asked."""

from __future__ import annotations

import asyncio
import itertools
import time
from random import Random
from typing import Any

from kit.badday.cluster import CANARY, GANGS, TEAMS
from kit.badday.feed import Api
from kit.badday.player import MERGE, RUNS
from kit.badday.verdict import Job, Judge

Object = dict[str, Any]
IMAGE = "example.invalid/none"
SIGS = "pod-group.scheduling.sigs.k8s.io"
MOST_WAITING = 24
"""Users do not submit more while so many jobs wait."""


def job(name: str, namespace: str, pods: int, cpu: int, *runs_s: float, rounds: int = 1) -> Object:
    """``runs_s``: how long each pod runs; of several each pod its own."""
    pod = {
        "metadata": {"annotations": {RUNS: ",".join(f"{each:.1f}" for each in runs_s)}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": str(cpu)}}}],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods * rounds,
            "completionMode": "Indexed" if len(runs_s) > 1 else "NonIndexed",
            "ttlSecondsAfterFinished": 15,
            "template": pod,
        },
    }


class Users:
    """`run` beside the day. ``pace_s``: between two submissions, on average."""

    def __init__(self, api: Api, judge: Judge, rng: Random, pace_s: float) -> None:
        self.submitted = 0
        self.gangs = 0
        self.on = True
        self._api, self._judge, self._rng, self._pace_s = api, judge, rng, pace_s
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._submit())
            tasks.create_task(self._gangs())

    async def _submit(self) -> None:
        rng = self._rng
        busy, until = rng.choice(TEAMS), 0.0
        while True:
            await asyncio.sleep(rng.expovariate(1.0 / self._pace_s))
            if not self.on or len(self._judge.waiting()) >= MOST_WAITING:
                continue
            if time.monotonic() > until:
                # One team after the other takes what the others leave, and then gives it back.
                busy, until = rng.choice(TEAMS), time.monotonic() + rng.uniform(8.0, 25.0)
            team = busy if rng.random() < 0.75 else rng.choice(TEAMS)
            pods, cpu = rng.randint(1, 8), rng.choice((1, 1, 2))
            await self.submit(team, pods, cpu, rng.choice((3.0, 5.0, 8.0, 15.0)), rounds=rng.choice((1, 1, 1, 2)))

    async def submit(self, team: str, pods: int, cpu: int, *runs_s: float, rounds: int = 1) -> str:
        """The name of a new Job."""
        name = f"job-{next(self._numbers)}"
        body = job(name, team, pods, cpu, *runs_s, rounds=rounds)
        if await self._api.insist("POST", f"/apis/batch/v1/namespaces/{team}/jobs", body) in (201, 409):
            self.submitted += 1
        return name

    async def patch(self, namespace: str, name: str, patch: Object) -> bool:
        known = self.found(namespace, name)
        if known is not None:
            self._judge.touched.add(known.uid)
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
        return await self._api.insist("PATCH", path, patch, MERGE) == 200

    async def rayjob(self, namespace: str, name: str) -> Object:
        """A RayJob for which there is never room; the reference of its controller to what it owns."""
        pod = {"spec": {"containers": [{"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": "500"}}}]}}
        body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "suspend": True,
                "entrypoint": "true",
                "rayClusterSpec": {"headGroupSpec": {"rayStartParams": {}, "template": pod}},
            },
        }
        path = f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs"
        await self._api.insist("POST", path, body)
        _, made = await self._api.ask("GET", f"{path}/{name}")
        meta = {"name": name, "uid": made["metadata"]["uid"], "controller": True, "blockOwnerDeletion": False}
        return {"apiVersion": "ray.io/v1", "kind": "RayJob", **meta}

    def found(self, namespace: str, name: str) -> Job | None:
        """A Job as the judge has seen it last."""
        return next((job for job in self._judge.jobs.values() if job.key == f"{namespace}/{name}"), None)

    async def _gangs(self) -> None:
        for number in itertools.count(1):
            await asyncio.sleep(self._rng.expovariate(1.0 / (8 * self._pace_s)))
            if self.on:
                await self._gang(f"gang-{number}", self._rng.randint(2, 4))
            await self._clear()

    async def _gang(self, name: str, pods: int) -> None:
        path = f"/api/v1/namespaces/{GANGS}/pods"
        for index in range(pods):
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{index}",
                    "labels": {f"{SIGS}/name": name, f"{SIGS}/min-available": str(pods)},
                    "annotations": {RUNS: "6"},
                },
                "spec": {
                    "schedulerName": "muster",
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "containers": [{"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": "1"}}}],
                },
            }
            await self._api.insist("POST", path, body)
        self.gangs += 1

    async def _clear(self) -> None:
        """Delete the pods of gangs that have ended."""
        status, found = await self._api.ask("GET", f"/api/v1/namespaces/{GANGS}/pods")
        for pod in found["items"] if status == 200 else ():
            if pod["status"].get("phase") == "Succeeded":
                await self._api.ask("DELETE", f"/api/v1/namespaces/{GANGS}/pods/{pod['metadata']['name']}")

    async def canary(self, limit_s: float, every_s: float = 5.0) -> float | None:
        """Seconds until a fresh Job is let go; None where none is within the limit."""
        began, names, last = time.monotonic(), set[str](), 0.0
        while time.monotonic() - began < limit_s:
            now = time.monotonic()
            if not names or now - last > every_s:
                last = now
                name = f"canary-{next(self._numbers)}"
                path = f"/apis/batch/v1/namespaces/{CANARY}/jobs"
                if len(names) < 2:
                    names.add(name)
                    await self._api.insist("POST", path, job(name, CANARY, 1, 1, 0.5))
            for each in self._judge.jobs.values():
                if each.namespace == CANARY and each.key.partition("/")[2] in names and not each.suspended:
                    return each.since - began
            await asyncio.sleep(0.05)
        return None
