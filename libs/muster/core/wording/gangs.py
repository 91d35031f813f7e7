"""The status of a gang of pods in English, and the texts that its pods and its PodGroup show."""

from __future__ import annotations

from muster.core.codes.values import GangStatus
from muster.core.wording import events_nodes, explain_nodes, problems
from muster.core.wording.explain_nodes import no_room, pods_of
from muster.events.gangs import GangHeldBack
from muster.model.text import counted

TRIED = ("no_nodes", "timed_out", "gave_way")
"""Reasons that end a round; their texts are those of the documents."""
NO_PLACE = ("no_nodes", "timed_out")


def text(status: GangStatus) -> str:
    """One sentence, without a full stop."""
    found, held = status.pods, status.held
    sizes = f"{counted(found.pods, 'pod')}, {found.bound} with a node, {found.running} running"
    if held is not None:
        round_ = f" in round {held.cycle}" if held.cycle else ""
        return f"It waits{round_}: {events_nodes.held_back(held)} ({sizes})"
    match status.code:
        case "Gone":
            return "All of its pods are gone"
        case "OtherScheduler":
            return f"None of its pods names our scheduler: spec.schedulerName places them ({sizes})"
        case "KubeScheduler":
            return f"kube-scheduler places it: {_verdict(status)} ({sizes})"
        case "Finished":
            return f"It finished: {found.succeeded} of its pods succeeded, of {status.minimum} that it needs"
        case "Failed":
            return f"It failed: {counted(found.failed, 'pod')} failed ({sizes})"
        case "Running":
            return f"All of its pods have a node, and {found.running} of them run ({sizes})"
        case "Bound":
            return f"All of its pods have a node, and none runs yet ({sizes})"
        case "Starting":
            return f"Its pods are being bound ({sizes})"
        case _:
            return f"It was observed, and no decision about it exists yet ({sizes}, it needs {status.minimum})"


def _verdict(status: GangStatus) -> str:
    said = status.verdict
    if said is None:
        takes = f"needs {status.minimum}" if status.minimum else "requests no gang or is missing"
        return f"it has not said yet whether it has places, and its PodGroup {takes}"
    return explain_nodes.judged(said)


def event_text(event: GangHeldBack, alive: int, minimum: int) -> str:
    """The text of an Event on pods that wait, after their names.

    ``alive``: how many pods of the gang have a node, of the ``minimum`` that it needs.
    """
    said = _event_text(event)
    if event.gang and event.reason != "broken" and 0 < alive < minimum:
        return f"{said}; {explain_nodes.half_bound(alive, minimum)}"
    return said


def _event_text(event: GangHeldBack) -> str:
    if not event.gang and event.reason in NO_PLACE and event.shortage is not None:
        return f"finds no node: {no_room(event.shortage, pods_of(event))}"
    if event.reason not in TRIED:
        return f"in gang waits: {events_nodes.held_back(event)}"
    why = f"rejected by podgroup {event.by}" if event.reason == "gave_way" else lack(event)
    return f"in gang failed to be scheduled in cycle {max(event.cycle, 1)}: {why}"


def lacks(event: GangHeldBack) -> str:
    """The message of a pod's condition: the nodes first, as in all schedulers, then the gang that took the room."""
    return f"{lack(event)}; rejected by podgroup {event.by}" if event.by else lack(event)


def lack(event: GangHeldBack) -> str:
    """The places that a gang lacks, and the nodes that pools could add."""
    if event.shortage is None:
        return problems.line(event.problem) if event.problem is not None else ""
    return no_room(event.shortage, pods_of(event)) + explain_nodes.from_pools(event.growth, event.refusals)
