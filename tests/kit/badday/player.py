"""What kubelets and kube-scheduler do with pods: a node, Running, Succeeded, and gone when they are deleted."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from kit.badday.cluster import NODES
from kit.badday.feed import Api

Object = dict[str, Any]
RUNS = "kit.muster.dev/run-s"
"""Annotation of a pod: how many seconds it runs; several with commas: each pod of an indexed Job its own."""
INDEX = "batch.kubernetes.io/job-completion-index"
STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"
CONDITIONS = ("Initialized", "PodScheduled", "ContainersReady", "Ready")


class Player:
    """Fed by a watch of pods; `heard` is its ear."""

    def __init__(self, api: Api, rng: Random) -> None:
        self._api = api
        self._rng = rng
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Task[None]] = {}
        self.played = 0

    def heard(self, kind: str, pod: Object, before: Object | None) -> None:
        uid, loop = pod["metadata"]["uid"], asyncio.get_running_loop()
        phase = (pod.get("status") or {}).get("phase", "Pending")
        if kind == "DELETED":
            self._drop(uid)
        elif pod["metadata"].get("deletionTimestamp"):
            if pod["spec"].get("nodeName") and uid not in self._ends:
                self._ends[uid] = loop.create_task(self._end(pod))
        elif phase in ("Pending", "Running") and uid not in self._lives:
            named = pod["spec"].get("schedulerName", "default-scheduler")
            if pod["spec"].get("nodeName") or named == "default-scheduler":
                self._lives[uid] = loop.create_task(self._live(pod))

    def _drop(self, uid: str) -> None:
        for tasks in (self._lives, self._ends):
            task = tasks.pop(uid, None)
            if task is not None:
                task.cancel()

    async def stop(self) -> None:
        tasks = [*self._lives.values(), *self._ends.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _live(self, pod: Object) -> None:
        meta, api = pod["metadata"], self._api
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": f"node-{self._rng.randrange(NODES)}"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
            if await api.insist("POST", f"{path}/binding", binding) not in (201, 409):
                return
        await asyncio.sleep(self._rng.uniform(0.1, 0.6))
        if await api.insist("PATCH", f"{path}/status", _status("Running"), MERGE) != 200:
            return
        said = meta.get("annotations") or {}
        times = said.get(RUNS, "5").split(",")
        await asyncio.sleep(float(times[int(said.get(INDEX, "0")) % len(times)]))
        uid = meta["uid"]
        if uid not in self._ends and await api.insist("PATCH", f"{path}/status", _status("Succeeded"), MERGE) == 200:
            self.played += 1

    async def _end(self, pod: Object) -> None:
        meta = pod["metadata"]
        # Some programs save their work first.
        await asyncio.sleep(self._rng.uniform(0.1, 1.5) if self._rng.random() < 0.6 else self._rng.uniform(3.0, 8.0))
        task = self._lives.pop(meta["uid"], None)
        if task is not None:
            task.cancel()
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        await self._api.insist("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})


def _status(phase: str) -> Object:
    runs = phase == "Running"
    state: Object = {"running": {}} if runs else {"terminated": {"exitCode": 0, "reason": "Completed"}}
    container = {"name": "main", "image": "", "imageID": "", "ready": runs, "restartCount": 0, "state": state}
    ready = {"Initialized": True, "PodScheduled": True, "ContainersReady": runs, "Ready": runs}
    conditions = [{"type": kind, "status": "True" if ready[kind] else "False"} for kind in CONDITIONS]
    return {"status": {"phase": phase, "conditions": conditions, "containerStatuses": [container]}}
