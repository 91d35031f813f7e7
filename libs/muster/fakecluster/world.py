"""A whole cluster in memory: API server, nodes, scheduler, kubelets, Job controller and the KubeRay operator.

`SimCluster` is stepped by a virtual clock (the simulator) or runs in an event loop, as fast as wanted (`run`: the
demo, and tests of services). Muster is no part of it: it comes from outside, through `transport` like every client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from muster.fakecluster.apiserver import FaultDraw, SimApiServer, SimTransport
from muster.fakecluster.apiserver.journal import Saved, restore
from muster.fakecluster.apiserver.kinds import KINDS, kinds_of_definition
from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.controllers import Controller
from muster.fakecluster.jobcontroller import JobController
from muster.fakecluster.kubelet import Kubelet, KubeletSettings
from muster.fakecluster.kuberay import KubeRayOperator, OperatorSettings, RayServiceOperator
from muster.fakecluster.lagging import Lag, LateController
from muster.fakecluster.policies import suspended_at_birth
from muster.fakecluster.scheduler import DefaultScheduler
from muster.fakecluster.syncdriver import SyncDriver
from muster.model.api import NODES

BEGINNING_MS = 1_736_472_984_000
"""When simulated time begins by default: 2025-01-10T01:36:24Z."""


BOOT_STRIDE = 1_000_003
"""Added to the seed for every time a kept cluster was started before: names and uids are never given out twice."""


class VirtualClock:
    """A clock that moves only when it is set, or follows another; ms since the epoch."""

    def __init__(self, at: int = BEGINNING_MS) -> None:
        self._at = at
        self._source: Callable[[], int] | None = None

    def now(self) -> int:
        if self._source is not None:
            self._at = max(self._at, self._source())
        return self._at

    def follow(self, source: Callable[[], int] | None) -> None:
        """Show the time of ``source`` from here on, never less than before; None: stop again."""
        self._source = source

    def set(self, at: int) -> None:
        """Move on to ``at``; time does not run backwards."""
        assert at >= self._at, f"the clock is at {self._at} and cannot go back to {at}"
        self._at = at


class SimCluster:
    """A simulated cluster.

    ``nodes``: name -> {resource: quantity}. ``scheduler``: have the default scheduler, for pods that name it or none.
    ``others``: more controllers, and the ``definitions`` of the kinds they watch. ``saved``: go on from a
    cluster that was kept in a journal; its nodes count, not ``nodes``. The same arguments and the same requests give
    the same cluster, name by name; ``identity`` tells its uids from those of other clusters of the same seed.
    ``suspend_new``: jobs begin suspended, as the policy of deploy/policies has it. ``lag``: how late everything that
    keeps jobs hears of changes; kubelets and the scheduler are on time.
    """

    def __init__(
        self,
        nodes: Mapping[str, Mapping[str, str]],
        *,
        seed: int = 0,
        clock: VirtualClock | None = None,
        kuberay: OperatorSettings | None = None,
        kubelet: KubeletSettings | None = None,
        scheduler: bool = True,
        auto_namespaces: bool = True,
        history: int = 10_000,
        saved: Saved | None = None,
        others: Sequence[Controller] = (),
        definitions: Sequence[Obj] = (),
        identity: str = "",
        suspend_new: bool = False,
        lag: Lag | None = None,
    ) -> None:
        self.clock = clock or VirtualClock()
        boots = saved.boots if saved is not None else 0
        self.server = SimApiServer(
            self.clock.now,
            seed=seed + boots * BOOT_STRIDE,
            kinds=(*KINDS, *(kind for definition in definitions for kind in kinds_of_definition(definition))),
            auto_namespaces=auto_namespaces,
            history=history,
            identity=identity,
            mutate=suspended_at_birth if suspend_new else None,
        )
        if saved is not None:
            restore(self.server, saved)
        else:
            for name, capacity in nodes.items():
                self.server.objects.create(NODES, "", node(name, capacity, self.clock.now()))
        self.operator = KubeRayOperator(kuberay)
        self.kubelet = Kubelet(kubelet)
        controllers: list[Controller] = [RayServiceOperator(kuberay), self.operator, self.kubelet]
        if self.operator.settings.submitter_pods:
            controllers.append(JobController())
        if scheduler:
            controllers.append(DefaultScheduler())
        controllers += others
        if lag is not None:
            on_time = (Kubelet, DefaultScheduler)
            controllers = [
                controller if isinstance(controller, on_time) else LateController(controller, lag, self.clock.now)
                for controller in controllers
            ]
        self.driver = SyncDriver(self.server, controllers)

    def transport(self, faults: FaultDraw | None = None) -> SimTransport:
        """A client's connection to the cluster's API server."""
        return SimTransport(self.server, faults)

    def step(self) -> None:
        """Let the cluster do everything that is due now."""
        self.driver.step()

    def advance(self, ms: int) -> None:
        """Let that much time pass, stopping wherever something is due on the way."""
        self.driver.run(self.clock.set, self.clock.now() + ms)

    def advance_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        """Let time pass until the condition holds, at most ``limit_ms``; whether it holds then."""
        end = self.clock.now() + limit_ms
        self.driver.step()
        while not condition():
            at = self.driver.next_at()
            if at is None or at > end:
                self.clock.set(end)
                self.driver.step()
                return condition()
            self.clock.set(max(at, self.clock.now()))
            self.driver.step()
        return True

    async def run(self, *, speed: float = 1.0) -> None:
        """Let the cluster live in the event loop, ``speed`` times as fast as the loop's clock, until cancelled."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        began, first = loop.time(), self.clock.now()
        # Time passes between the steps too: what clients write then is stamped with the time it is written.
        self.clock.follow(lambda: first + int((loop.time() - began) * 1000 * speed))
        stop = self.server.subscribe(lambda _: changed.set())
        try:
            while True:
                self.driver.step()
                changed.clear()
                at = self.driver.next_at()
                delay_s = None if at is None else max(at - self.clock.now(), 1) / 1000 / speed
                try:
                    async with asyncio.timeout(delay_s):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            stop()
            self.clock.follow(None)


def node(name: str, capacity: Mapping[str, str], now: int) -> Obj:
    """A node that is ready, with room for 110 pods unless it says otherwise."""
    resources = {"pods": "110", **capacity}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": stamp(now)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [ready]},
    }
