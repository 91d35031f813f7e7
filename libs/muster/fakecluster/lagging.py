"""A controller that hears of everything late, as one does whose informers lag or that has much to do.

It looks at objects as they were, and writes as they were: pods that it makes exist, and a status that it writes on an
older version of its object is refused by the server, as for a real controller. Then it looks again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import Controller, WorkQueue
from muster.fakecluster.operations import Create, DeleteObject, OperationPlan
from muster.model.api import ApiResource


class Lag:
    """How late, in ms; may be changed at any time, for the changes that come from then on."""

    def __init__(self, ms: int = 0) -> None:
        self.ms = ms


class LateController:
    """``controller``, with everything that it hears as late as ``lag`` says. ``now``: the clock, ms."""

    def __init__(self, controller: Controller, lag: Lag, now: Callable[[], int]) -> None:
        self._controller, self._lag, self._now = controller, lag, now
        self._news: deque[tuple[int, ChangeType, ApiResource, Obj]] = deque()
        """(when it is heard, what), in the order in which it happened."""
        self._expects: dict[str, int] = {}
        """key -> when it will have heard of its own creations and deletions: until then it makes no others"""
        self._put_off: dict[str, None] = {}
        """Keys that are looked at then."""
        self.queue: WorkQueue = _LateQueue(self)

    @property
    def watches(self) -> Sequence[ApiResource]:
        return self._controller.watches

    def heard(self, kind: ChangeType, resource: ApiResource, obj: Obj) -> None:
        """Keep a change until its time has come; nothing overtakes what happened before."""
        last = self._news[-1][0] if self._news else 0
        self._news.append((max(self._now() + self._lag.ms, last), kind, resource, obj))

    def plan(self, key: str, now: int) -> OperationPlan:
        if not self._has_heard(key, now):
            self._put_off[key] = None
            return OperationPlan()
        plan = self._controller.plan(key, now)
        if any(isinstance(operation, Create | DeleteObject) for operation in plan.operations):
            self._expects[key] = now + self._lag.ms
        return plan

    def _has_heard(self, key: str, now: int) -> bool:
        """Whether it has heard of all pods and objects that it made or deleted for a key."""
        until = self._expects.get(key, 0)
        return now >= until and not (self._news and self._news[0][0] <= until)

    def catch_up(self, now: int) -> WorkQueue:
        """The queue of the controller, once it has heard the first news that are due: up to the second version of an
        object, since it acts on each version that it hears of.
        """
        inner = self._controller.queue
        while self._news and self._news[0][0] <= now and ((at := inner.next_at(now)) is None or at > now):
            heard = set[str]()
            while self._news and self._news[0][0] <= now and self._news[0][3]["metadata"]["uid"] not in heard:
                _, kind, resource, obj = self._news.popleft()
                heard.add(obj["metadata"]["uid"])
                self._controller.heard(kind, resource, obj)
        for key in [key for key in self._put_off if self._has_heard(key, now)]:
            del self._put_off[key]
            inner.mark(key)
        return inner

    def next_news(self) -> int | None:
        """When it hears something next, or looks at what it has put off, ms."""
        times = [self._expects[key] for key in self._put_off]
        return min([*times, self._news[0][0]] if self._news else times, default=None)


class _LateQueue(WorkQueue):
    """The controller's own queue, behind its news."""

    def __init__(self, late: LateController) -> None:
        super().__init__()
        self._late = late

    def take(self, now: int) -> str | None:
        return self._late.catch_up(now).take(now)

    def next_at(self, now: int) -> int | None:
        own, news = self._late.catch_up(now).next_at(now), self._late.next_news()
        return min((at for at in (own, news) if at is not None), default=None)

    def done(self, key: str, plan: OperationPlan, now: int) -> None:
        self._late.catch_up(now).done(key, plan, now)

    def failed(self, key: str, now: int) -> None:
        self._late.catch_up(now).failed(key, now)
