"""How the queues follow objects that are no jobs: PriorityClasses, Queues and QueueUnits."""

from __future__ import annotations

from collections.abc import Iterable

from muster.core.queueing.queues import Queues
from muster.core.quota.trees.rules import union
from muster.events.facts import (
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    QueueUnitGone,
    QueueUnitObserved,
)
from muster.model.keys import Position


def class_observed(queues: Queues, at: Position, event: PriorityClassObserved) -> Iterable[str]:
    queues.priority_classes[event.ref.name] = event.value
    if event.is_default:
        queues.default_classes[event.ref.name] = None
    else:
        queues.default_classes.pop(event.ref.name, None)
    return queues.workloads


def class_gone(queues: Queues, at: Position, event: PriorityClassGone) -> Iterable[str]:
    queues.priority_classes.pop(event.ref.name, None)
    queues.default_classes.pop(event.ref.name, None)
    return queues.workloads


def queue_observed(queues: Queues, _at: Position, event: QueueObserved) -> Iterable[str]:
    before = queues.queue_paths.get(event.ref.uid, event.path)
    queues.queue_paths[event.ref.uid] = event.path
    queues.queue_specs[event.ref.uid] = event
    for path in dict.fromkeys((before, event.path)):
        _queue_says(queues, path)
    return ()


def queue_gone(queues: Queues, at: Position, event: QueueGone) -> Iterable[str]:
    path = queues.queue_paths.pop(event.ref.uid, "")
    queues.queue_specs.pop(event.ref.uid, None)
    _queue_says(queues, path)
    return ()


def _queue_says(queues: Queues, path: str) -> None:
    """What the Queue objects of a quota path say of its queue: of several the first by name, and what any pauses."""
    queues.book.stirred[path] = None
    objects = [event for event in queues.queue_specs.values() if event.path == path]
    if not objects:
        for told in (queues.queue_priorities, queues.policies, queues.backoffs, queues.paused, queues.pauses):
            told.pop(path, None)
        return
    event = min(objects, key=lambda each: (each.ref.name, each.ref.uid))
    queues.queue_priorities[path] = event.priority
    queues.policies[path] = event.policy
    if event.backoff_ms:
        queues.backoffs[path] = (event.backoff_ms[0], event.backoff_ms[-1])
    else:
        queues.backoffs.pop(path, None)
    pausing = min(
        (each for each in objects if each.paused), key=lambda each: (each.ref.name, each.ref.uid), default=event
    )
    queues.paused[path] = union(*(each.paused for each in objects))
    queues.pauses[path] = (pausing.paused_by, pausing.paused_reason)


def unit_observed(queues: Queues, at: Position, event: QueueUnitObserved) -> Iterable[str]:
    """A priority written into a QueueUnit by another client moves its job; ours only repeats the known one."""
    uid, job = event.owner_uid, queues.jobs.get(event.owner_uid)
    workload = queues.workloads.get(uid)
    if not uid:
        return ()
    queues.unit_owners[event.ref.uid] = uid
    known, before = uid in queues.unit_priorities, queues.unit_priorities.get(uid)
    queues.unit_priorities[uid] = event.priority
    if event.priority is None or (known and event.priority == before):
        return ()
    if job is not None and event.priority == job.priority:
        return ()
    if workload is not None and event.priority == queues.own_priority_of(workload):
        queues.unit_wishes.pop(uid, None)
    else:
        queues.unit_wishes[uid] = event.priority
    return (uid,)


def unit_gone(queues: Queues, at: Position, event: QueueUnitGone) -> Iterable[str]:
    """Its job keeps the priority that was asked for; what was seen of the unit is forgotten."""
    owner = queues.unit_owners.pop(event.ref.uid, "")
    if owner not in queues.workloads:
        queues.unit_priorities.pop(owner, None)
        queues.unit_wishes.pop(owner, None)
    return ()
