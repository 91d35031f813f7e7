"""KAI queues and workloads that name them, for tests."""

from __future__ import annotations

from typing import Any

from kit.facts import job, next_rv
from muster.core.objects.kaiqueue import KIND, RESOURCES
from muster.events.facts import KaiQueueGone, KaiQueueObserved
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.workload import Workload

Amounts = tuple[float | int, float | int, float | int]
"""(quota, limit, weight), as a Queue writes them"""
FREE: Amounts = (-1, -1, 1)


def queue(
    name: str,
    parent: str = "",
    *,
    gpu: Amounts = FREE,
    cpu: Amounts = FREE,
    memory: Amounts = FREE,
    **changes: Any,
) -> KaiQueueObserved:
    """A queue as it is observed; unlimited in everything unless said."""
    given = {RESOURCES["gpu"]: gpu, "cpu": cpu, "memory": memory}
    columns = [{resource: str(amounts[place]) for resource, amounts in given.items()} for place in range(3)]
    fields: dict[str, Any] = {
        "ref": Ref(KIND, "", name, f"queue-{name}"),
        "rv": next_rv(),
        "parent": parent,
        "quota": columns[0],
        "limit": columns[1],
        "weight": columns[2],
    }
    return KaiQueueObserved(queue=KaiQueue(**(fields | changes)))


def queue_gone(name: str) -> KaiQueueGone:
    return KaiQueueGone(ref=Ref(KIND, "", name, f"queue-{name}"), rv=next_rv())


def work(
    name: str, queue: str = "", namespace: str = "default", *, priority_class: str = "", **changes: Any
) -> Workload:
    """A suspended job that names a queue and a PriorityClass by label."""
    labels = {"kai.scheduler/queue": queue} if queue else {}
    if priority_class:
        labels["priorityClassName"] = priority_class
    labels |= changes.pop("labels", {})
    return job(name, namespace, labels=labels, **changes)
