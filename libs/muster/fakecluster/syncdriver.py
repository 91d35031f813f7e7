"""Runs controllers on the simulated server directly, stepped by the holder of the clock.

Event-driven: a step looks only at what was marked or is due. Nothing is encoded, copied or scanned on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.fakecluster.apiserver.deletion import DeleteOptions
from muster.fakecluster.apiserver.server import SimApiServer
from muster.fakecluster.apiserver.status import StatusError
from muster.fakecluster.apiserver.store import StoredChange
from muster.fakecluster.controllers import Controller
from muster.fakecluster.operations import ApiOperation, BindPod, Create, DeleteObject, Merge, Replace

MAX_PLANS = 1_000_000
"""In one step; more means that controllers undo each other's work without end."""


class SyncDriver:
    """Controllers on a simulated server. ``step`` after the clock has moved or an object was written."""

    def __init__(self, server: SimApiServer, controllers: Sequence[Controller]) -> None:
        self._server = server
        self._controllers = tuple(controllers)
        self.down: list[Controller] = []
        """Controllers that do nothing now: they hear of changes, and look at them when they are up again."""
        self.plans = 0
        """Plans made so far."""
        for controller in self._controllers:
            for resource in controller.watches:
                for obj in list(server.store.table(resource).objects.values()):
                    controller.heard("ADDED", resource, obj)
                server.subscribe(_listener(controller), resource)

    def step(self) -> int:
        """Do everything that is due now; returns how many plans that took."""
        now, before = self._server.now(), self.plans
        busy = True
        while busy:
            busy = False
            for controller in self._up():
                while (key := controller.queue.take(now)) is not None:
                    busy = True
                    self._carry_out(controller, key, now)
            assert self.plans - before < MAX_PLANS, f"controllers are still busy after {MAX_PLANS} plans at {now}"
        return self.plans - before

    def next_at(self) -> int | None:
        """When something is due next, in ms; None when nothing will be without a write."""
        now = self._server.now()
        times = [at for controller in self._up() if (at := controller.queue.next_at(now)) is not None]
        return min(times, default=None)

    def run(self, set_clock: Callable[[int], None], until: int) -> None:
        """Step from one due time to the next, moving the clock along, and leave it at ``until`` (ms)."""
        self.step()
        while (at := self.next_at()) is not None and at <= until:
            set_clock(max(at, self._server.now()))
            self.step()
        set_clock(until)
        self.step()

    def _up(self) -> Sequence[Controller]:
        return (
            [controller for controller in self._controllers if controller not in self.down]
            if self.down
            else self._controllers
        )

    def _carry_out(self, controller: Controller, key: str, now: int) -> None:
        self.plans += 1
        plan = controller.plan(key, now)
        try:
            for operation in plan.operations:
                self._apply(operation)
        except StatusError:
            controller.queue.failed(key, now)
        else:
            controller.queue.done(key, plan, now)

    def _apply(self, operation: ApiOperation) -> None:
        objects = self._server.objects
        try:
            match operation:
                case Create(resource, namespace, body):
                    objects.create(resource, namespace, body)
                case Replace(resource, body, subresource):
                    objects.replace(resource, operation.namespace, operation.name, body, subresource)
                case Merge(resource, namespace, name, patch, subresource):
                    objects.patch(resource, namespace, name, patch, subresource=subresource)
                case DeleteObject(resource, namespace, name, uid, grace_s, propagation):
                    options = DeleteOptions(uid=uid, grace_s=grace_s, propagation=propagation)
                    objects.delete(resource, namespace, name, options)
                case BindPod(namespace, name, uid, node):
                    objects.bind(namespace, name, {"metadata": {"uid": uid}, "target": {"name": node}})
        except StatusError as err:
            if not as_good(operation, err.code):
                raise


def as_good(operation: ApiOperation, status: int) -> bool:
    """Whether a refusal leaves the world as the operation wanted it."""
    match operation:
        case Create():
            return status == 409
        case DeleteObject():
            # 409 is another object of the same name.
            return status in (404, 409)
        case Merge():
            return status == 404
        case _:
            return False


def _listener(controller: Controller) -> Callable[[StoredChange], None]:
    heard = controller.heard

    def listen(change: StoredChange) -> None:
        heard(change.type, change.resource, change.object)

    return listen
