"""Users who keep submitting RayJobs, whatever happens to the cluster meanwhile."""

import asyncio
import itertools

import aiohttp

from kit import facts
from kit.cluster import RAY, SCHEDULING, Cluster
from kit.kubeclient import ApiError, Object
from kit.story import rayjob
from muster.core.quota.endings import CHILD_GRACE_MS
from muster.events.facts import TreeNodeSpec

TEAMS = ("video", "text", "devops")
CPU = 2
"""What each job asks for: head and one worker, 1 cpu each."""
SILENT_S = 60 + CHILD_GRACE_MS / 1000
"""Where jobs began and ended while no watcher ran, their quota stays charged for that long: no cluster was seen go."""


def tree(at_once: int) -> TreeNodeSpec:
    """A queue for each team; so many jobs at once, all of them or one team's."""
    most = {"cpu": CPU * at_once}
    return facts.node("root", most, most, children=tuple(facts.node(team, {}, most, (team,)) for team in TEAMS))


class Traffic:
    """A small RayJob every `every_s`, for each team in turn; run it with `cluster.keep(traffic.run())`."""

    def __init__(self, cluster: Cluster, *, every_s: float = 0.6, runtime: str = "1s", name: str = "job") -> None:
        self._cluster = cluster
        self._every_s = every_s
        self._runtime = runtime
        self._name = name
        self._over = asyncio.Event()
        self.names: list[str] = []
        """namespace/name of every job that was accepted"""

    async def run(self) -> None:
        for number in itertools.count():
            if self._over.is_set():
                break
            await self._submit(TEAMS[number % len(TEAMS)], f"{self._name}-{number}")
            await asyncio.sleep(self._every_s)
        await asyncio.Event().wait()

    async def _submit(self, team: str, name: str) -> None:
        job = rayjob(name, team, cpu="1", memory="1G", replicas=1, runtime=self._runtime, ttl_s=0)
        while True:
            try:
                await self._cluster.submit(job)
            except ApiError as err:
                if err.status == 409:  # Accepted before, and the answer was lost.
                    break
                if err.status < 500 and err.status != 429:
                    raise
            except (aiohttp.ClientError, OSError):
                pass
            else:
                break
            await asyncio.sleep(self._every_s)
        self.names.append(f"{team}/{name}")

    async def over(self) -> None:
        """Submit no more; return once every job is complete and shown so. A slow machine has a long line of them: what
        fails is that none completes for SILENT_S.
        """
        self._over.set()
        left = await self._left()

        async def fewer() -> bool:
            nonlocal left
            before, left = left, await self._left()
            return len(left) < len(before) or not left

        while left:
            try:
                await self._cluster.until(fewer, SILENT_S, "one more job to complete")
            except AssertionError as err:
                first = dict(list(left.items())[:3])
                raise AssertionError(f"{err}; {len(left)} are left: {list(left)}; the first of them: {first}") from err

    async def _left(self) -> dict[str, str]:
        """{job: what is shown of it} of those that are not complete, or not shown as such."""
        kube = self._cluster.kube
        jobs = {key(found): found for found in await kube.list_objects(RAY, "RayJob")}
        units = {key(found): found for found in await kube.list_objects(SCHEDULING, "QueueUnit")}
        left: dict[str, str] = {}
        for name in self.names:
            state = (jobs[name].get("status") or {}).get("jobDeploymentStatus") if name in jobs else "lost"
            shown = (units.get(f"{name}-ray-qu") or {}).get("status") or {}
            if (state, shown.get("phase")) != ("Complete", "Succeed"):
                left[name] = f"{state}, shown as {shown.get('phase')}: {shown.get('message')}"
        return left


def key(found: Object) -> str:
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"
