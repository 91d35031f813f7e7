"""The story of a gang of pods, and pods by name.

For a pod of a job: the job, and the node or the reason why the pod does not run.

Pure: a view of the read model, by the name of a gang or of a pod in a gang.
"""

from __future__ import annotations

from msgspec import Struct

from muster.model.keys import Ref
from muster.told.codes.codetable import HeldUp
from muster.told.readmodel.gangsshown import GangShown
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import gang_status
from muster.told.views.narrator import entry_of
from muster.told.views.tellings import GangTale
from muster.told.wording import nodewords, pods

# --- pods by their names ----------------------------------------------------------------------------------------------


class PodNamed(Struct, frozen=True):
    """A pod that has a node, or has a known trouble."""

    key: str
    """namespace/name"""
    job: Ref
    text: str


def pods_named(state: ReadState, wanted: str, now: int) -> dict[str, PodNamed]:
    """The pods that ``NAMESPACE/NAME`` or NAME means, by namespace/name. ``now``: ms since the epoch."""
    name = wanted.rpartition("/")[2]
    named: dict[str, PodNamed] = {}
    for placed in state.nodes.pods.values():
        if placed.ref.name == name:
            _add(state, named, name, placed.owner, pods.placed(name, placed.node))
    for owner, codes in state.pods.live.items():
        for troubled_pod in (pod for troubled in codes.values() for pod in troubled.values() if pod.name == name):
            _add(state, named, name, owner, pods.since(HeldUp(troubled_pod), now))
    return {key: pod for key, pod in sorted(named.items()) if wanted in (key, name)}


def _add(state: ReadState, named: dict[str, PodNamed], name: str, owner: str, text: str) -> None:
    record = state.records.get(state.presence.owner_of.get(owner, owner))
    if record is not None:
        key = f"{record.ref.namespace}/{name}"
        named[key] = PodNamed(key, record.ref, text)


# --- the story --------------------------------------------------------------------------------------------------------


def gangs_named(state: ReadState, wanted: str) -> list[str]:
    """Names of present and past gangs that ``NAMESPACE/NAME`` or NAME means, as the name of the gang or of a pod.

    A pod in no gang has its own name.
    """
    names = {record.name for record in state.gang_records.values() if _is(wanted, record.name)}
    for key, gang in state.gangs.gangs.items():
        if key in state.gang_records and any(_is(wanted, pod.ref.key) for pod in gang.pods.values()):
            names.add(state.gang_records[key].name)
    return sorted(names)


def _is(wanted: str, name: str) -> bool:
    return wanted in (name, name.rpartition("/")[2])


def gang_tale(state: ReadState, name: str) -> GangTale:
    """The story of a gang of ``gangs_named``; of several pods with the name, the newest."""
    key = next(gang for gang, record in reversed(state.gang_records.items()) if record.name == name)
    gang = state.gangs.gangs.get(key)
    status = gang_status(gang)
    return GangTale(
        name=name,
        code=status.code,
        text=nodewords.gang_text(status),
        pods=_pods(gang) if gang is not None else {},
        entries=[entry_of(None, happening) for happening in state.gang_records[key].past.all()],
        seq=state.seq,
        now=state.now,
    )


def _pods(gang: GangShown) -> dict[str, str]:
    return {
        pod.ref.name: nodewords.whereabouts(pod.node, running=pod.running, over=pod.over, succeeded=pod.succeeded)
        for pod in sorted(gang.pods.values(), key=lambda member: member.ref.key)
    }
