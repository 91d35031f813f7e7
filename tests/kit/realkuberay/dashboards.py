"""Stands in for every Ray dashboard and Serve proxy of a cluster: an HTTP proxy that answers by itself.

The operator asks heads by the names of their Services, which lead nowhere here; HTTP_PROXY leads it to this one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web
from msgspec import Struct, field

JOBS, SERVE, HEALTH = "/api/jobs/", "/api/serve/applications/", "/-/healthz"
JOB_S, SERVES_S = 3.0, 1.0


class Head(Struct):
    """What one dashboard knows."""

    jobs: dict[str, float] = field(default_factory=dict)
    """{job: when it began}"""
    applications: list[str] = field(default_factory=list)
    capacity: float | None = None
    deployed: float = 0.0


class Dashboards:
    """A Ray job is known once the operator asks for it or submits it, runs for ``lasts`` seconds, and succeeds.

    Serve applications run a second after they are deployed.
    """

    def __init__(self, lasts: Callable[[str], float] = lambda job: JOB_S) -> None:
        self._lasts = lasts
        self.heads: dict[str, Head] = {}
        """By host."""
        self.url = ""
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._answer))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def ended(self, words: str) -> bool:
        """Whether a job has ended whose id is among these words."""
        now = time.monotonic()
        return any(job in words and now - began >= self._lasts(job)
                   for head in self.heads.values() for job, began in head.jobs.items())  # fmt: skip

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, head = request.rel_url.path, self.heads.setdefault(request.rel_url.host or request.host, Head())
        if path == HEALTH:
            return web.Response(text="success")
        if path == SERVE:
            if request.method == "PUT":
                told = json.loads(await request.read())
                head.applications = [str(each.get("name", "default") if isinstance(each, dict) else each)
                                     for each in told.get("applications") or ()]  # fmt: skip
                head.capacity, head.deployed = told.get("target_capacity"), head.deployed or time.monotonic()
                return web.Response()
            state = "RUNNING" if time.monotonic() - head.deployed >= SERVES_S else "DEPLOYING"
            shown = {name: {"name": name, "status": state, "message": "", "deployments": {}}
                     for name in head.applications}  # fmt: skip
            return web.json_response({"applications": shown, "target_capacity": head.capacity})
        if path.startswith(JOBS):
            return await self._job(request, head, path.removeprefix(JOBS))
        return web.Response(status=404)

    async def _job(self, request: web.BaseRequest, head: Head, rest: str) -> web.StreamResponse:
        job, _, more = rest.partition("/")
        if request.method == "POST" and not job:
            job = json.loads(await request.read())["submission_id"]
            head.jobs.setdefault(job, time.monotonic())
            return web.json_response({"job_id": job, "submission_id": job})
        if more == "stop":
            return web.json_response({"stopped": True})
        if request.method == "DELETE":
            head.jobs.pop(job, None)
            return web.Response()
        if not job:
            return web.json_response([self._shown(job, began) for job, began in head.jobs.items()])
        return web.json_response(self._shown(job, head.jobs.setdefault(job, time.monotonic())))

    def _shown(self, job: str, began: float) -> dict[str, Any]:
        over = time.monotonic() - began >= self._lasts(job)
        started = int((time.time() - (time.monotonic() - began)) * 1_000)
        ends = {"end_time": started + int(self._lasts(job) * 1_000)} if over else {}
        status = "SUCCEEDED" if over else "RUNNING"
        return {"job_id": job, "submission_id": job, "status": status, "start_time": started, **ends}
