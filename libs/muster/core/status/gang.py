"""The status of a gang of pods: a pure function of its record. A pod in no gang is one of its own."""

from __future__ import annotations

from muster.core.codes.values import Counted, GangCode, GangStatus
from muster.core.readmodel.gangs import GangShown
from muster.events.gangs import HELD_AS, GangHeldBack, HeldAs

_ALONE: dict[HeldAs, GangCode] = {"GangWaits": "Waits", "GangBindRefused": "BindRefused"}


def held_back_code(event: GangHeldBack) -> GangCode:
    """The code of a gang by the event that says why it waits; a pod in none has a code of its own."""
    code = HELD_AS[event.reason]
    return code if event.gang else _ALONE.get(code, "FailedScheduling")


def gang_status(gang: GangShown | None) -> GangStatus:
    """The status of a gang; ``None``: one that is not known any more."""
    if gang is None or not gang.pods:
        return GangStatus("Gone")
    found, held = gang.counted(), gang.held.event if gang.held is not None else None
    group = gang.pod_group
    verdict = group.verdict if group is not None else None
    return GangStatus(_code(gang, found, held), found, gang.minimum, held, verdict)


def _code(gang: GangShown, found: Counted, held: GangHeldBack | None) -> GangCode:
    if held is not None:
        return held_back_code(held)
    if not gang.ours:
        return "KubeScheduler" if gang.native and gang.by_default else "OtherScheduler"
    if gang.ended:
        return "Finished" if gang.ended == "Finished" else "Failed"
    if found.pods and found.bound == found.pods:
        return "Running" if found.running else "Bound"
    return "Starting" if found.bound else "Waiting"
