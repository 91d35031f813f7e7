"""Putting a rule set in force: once every live replica supports it, and all have for as long as a lease lasts.

Until then nothing has changed, and going back to the version before is safe. It is said once, by the leader of the
quota accountant, and holds for every stage from that sequence on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from muster.bus.beat import beat
from muster.events.speakers import DECIDING
from muster.events.system import RulesetActivated
from muster.ports import Replica, Replicas
from muster.runtime.runners.follower import AnyFollower
from muster.runtime.runners.leader import AnyLeader
from muster.runtime.runners.leasing import LEASE_RENEWAL_S

SURE_S = 15.0
"""So long all must have supported it: longer than a replica that has ended counts as alive."""


async def announce(replicas: Replicas, runners: Sequence[AnyFollower], process: str) -> None:
    """Announce the stages that decide here, and their supported rule sets, for ever."""
    while True:
        for runner in runners:
            newest = getattr(runner.stage, "newest_ruleset", None)
            if newest is not None:
                await replicas.announce(Replica(runner.stage.name, runner.shard, process, newest))
        await beat(LEASE_RENEWAL_S)


class Activator:
    """Has ``runner`` put rule set ``wanted`` in force when it is time."""

    def __init__(self, runner: AnyLeader, replicas: Replicas, wanted: int) -> None:
        self._runner = runner
        self._replicas = replicas
        self._wanted = wanted
        self._since: float | None = None
        self._told: list[str] = []
        self._said = False

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self._look()
            await beat(LEASE_RENEWAL_S)

    async def _look(self) -> None:
        runner, now = self._runner, asyncio.get_running_loop().time()
        if not runner.leading() or runner.state.ruleset >= self._wanted or self._said:
            self._since = None
            return
        against = self._against(await self._replicas.live())
        if against:
            self._since = None
            if against != self._told:
                self._told = against
                runner.hooks.note("info", "ruleset_waits", ruleset=self._wanted, why=against)
            return
        self._since = now if self._since is None else self._since
        if now - self._since >= SURE_S:
            self._said = True
            runner.announce(RulesetActivated(number=self._wanted))
            runner.hooks.note("warning", "ruleset_activated", ruleset=self._wanted)

    def _against(self, live: Sequence[Replica]) -> list[str]:
        """What speaks against it now."""
        stages = {replica.stage for replica in live}
        missing = [f"no process runs {name}" for name in DECIDING if name not in stages]
        behind = [
            f"{replica.process} runs {replica.stage}/{replica.shard} up to rule set {replica.ruleset}"
            for replica in live
            if replica.ruleset < self._wanted
        ]
        return [*missing, *behind]
