"""The story of a gang of pods: where it stands, and what was decided of it.

Pure: a view of the read model, asked by the name of a gang or of a pod in one.
"""

from __future__ import annotations

from msgspec import Struct

from muster.core.narrator import Entry, entry_of
from muster.core.readmodel.gangs import GangShown
from muster.core.readmodel.state import ReadState
from muster.core.wording import explain_nodes, telling_nodes
from muster.model.text import counted


class GangTale(Struct, frozen=True):
    """A gang's story. ``name``: namespace/name of the gang, or of the pod where it is of none."""

    name: str
    code: str
    text: str
    pods: dict[str, str]
    """name -> where it is: its node, or what it has come to"""
    entries: list[Entry]
    seq: int
    now: int


def gangs_named(state: ReadState, wanted: str) -> list[str]:
    """Names of the gangs there are or were that ``NAMESPACE/NAME`` or NAME means: its own or a pod's.

    A pod in no gang has its own name.
    """
    found = {record.name for record in state.gang_records.values() if _is(wanted, record.name)}
    for key, gang in state.gangs.gangs.items():
        if key in state.gang_records and any(_is(wanted, pod.ref.key) for pod in gang.pods.values()):
            found.add(state.gang_records[key].name)
    return sorted(found)


def _is(wanted: str, name: str) -> bool:
    return wanted in (name, name.rpartition("/")[2])


def gang_tale(state: ReadState, name: str) -> GangTale:
    """The story of one of ``gangs_named``; of several pods that had the name the newest."""
    key = next(each for each, record in reversed(state.gang_records.items()) if record.name == name)
    gang = state.gangs.gangs.get(key)
    code, text = stand(gang)
    return GangTale(
        name=name,
        code=code,
        text=text,
        pods=_pods(gang) if gang is not None else {},
        entries=[entry_of(None, each) for each in state.gang_records[key].happenings],
        seq=state.seq,
        now=state.now,
    )


def _pods(gang: GangShown) -> dict[str, str]:
    found = {}
    for pod in sorted(gang.pods.values(), key=lambda each: each.ref.key):
        if pod.over:
            word = "succeeded" if pod.succeeded else "failed"
        elif pod.node:
            word = f"{'runs' if pod.running else 'bound'} on {pod.node}"
        else:
            word = "waits"
        found[pod.ref.name] = word
    return found


def stand(gang: GangShown | None) -> tuple[str, str]:
    """Where a gang stands: (code, sentence)."""
    if gang is None or not gang.pods:
        return "Gone", "none of its pods exists any more"
    found = gang.counted()
    sizes = f"{counted(found.pods, 'pod')}, {found.bound} with a node, {found.running} running"
    if gang.held is not None:
        event = gang.held.event
        round_ = f" in round {event.cycle}" if event.cycle else ""
        return explain_nodes.held_back_code(event), f"It waits{round_}: {telling_nodes.held_back(event)} ({sizes})"
    if not gang.ours:
        return "OtherScheduler", f"none of its pods names our scheduler: spec.schedulerName places them ({sizes})"
    if gang.ended == "Finished":
        return gang.ended, f"it is over: {found.succeeded} of its pods have succeeded, and it took {gang.minimum}"
    if gang.ended:
        return gang.ended, f"it is over: {counted(found.failed, 'pod')} of it failed ({sizes})"
    if found.pods and found.bound == found.pods:
        if found.running:
            return "Running", f"all of its pods have a node, and {found.running} of them run ({sizes})"
        return "Bound", f"all of its pods have a node, and none runs yet ({sizes})"
    if found.bound:
        return "Starting", f"its pods are being bound ({sizes})"
    return "Waiting", f"it has been seen, and nothing has been decided of it yet ({sizes}, it takes {gang.minimum})"
