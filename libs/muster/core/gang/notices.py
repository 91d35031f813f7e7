"""When it is said again that a gang waits, or has lost a part, and by which code of the closed list."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.gang.podgang import PodGang
from muster.core.gang.state import AdmitterState
from muster.events.gangs import LACKS_NODES, MAX_PODS_NAMED, GangHeldBack, HeldBackReason
from muster.model.problem import problem

TELL_AGAIN_MS = 60_000
"""That a gang waits for the same reason, in other numbers, is said again no sooner than this."""
GRACE_MS = 10_000
"""How long the pods of a gang may take to come before it is said that some are missing."""
BROKEN_MS = 60_000
"""How long a gang that has lost pods may take to get others until it is said that it lacks them."""
STARVED_MS = 20 * 60_000
"""How long others may be admitted before a gang until that is called starving."""
LONGEST_ROUND = 6
"""Each round takes twice as long as the one before it, so many times."""


def told_lately(state: AdmitterState, gang: PodGang) -> bool:
    """Whether it was said a short while ago that a gang has found no place, and nothing is new."""
    told = gang.told
    if told is None or told.reason not in LACKS_NODES or state.now >= told.at + TELL_AGAIN_MS or over(state, gang):
        return False
    # That another gang took the room is said at once, also where it was said lately that there is none. So is what
    # became of the nodes that were named to it, and what others are declared now.
    return not (passed(gang) or elsewhere(state, gang))


def gave_way(state: AdmitterState, gang: PodGang) -> HeldBackReason:
    """What it is called that another gang was placed before it: for so long, it starves."""
    since = gang.claimant.since
    starved = since and state.now >= since + STARVED_MS
    return "starved" if starved else "gave_way"


def over(state: AdmitterState, gang: PodGang) -> bool:
    """Whether the time of its round is over."""
    return bool(gang.cycle_since) and state.now >= round_ends(gang)


def passed(gang: PodGang) -> bool:
    """Whether another gang took the room since it was said that there is none."""
    return gang.told is not None and gang.told.reason == "no_nodes" and bool(gang.by)


def elsewhere(state: AdmitterState, gang: PodGang) -> bool:
    """Whether nodes that were named to a gang come no more, or pools are declared that were not named to it."""
    told = gang.told
    if told is None or (told.growing and gang.growth is None):
        return told is not None
    return told.pools != state.pools_rv


def broken(state: AdmitterState) -> Iterator[GangHeldBack]:
    """Gangs that have started and lost so many pods that less than their minimum is left, told once."""
    for key in state.pods.broken:
        gang = state.pods.gangs[key]
        if state.now >= gang.changed + BROKEN_MS and (gang.told is None or gang.told.reason != "broken"):
            yield GangHeldBack(
                cause=gang.cause,
                gang=key,
                cycle=gang.cycle,
                reason="broken",
                problem=problem("", "pods_lost", running=gang.count("placed", "bound"), lacks=gang.lacks),
                minimum=gang.lacks,
            )


def named(state: AdmitterState, gang: PodGang) -> list[str]:
    """The pods that an event names, by uid."""
    pods = state.pods.pods
    return sorted(gang.waiting, key=lambda uid: pods[uid].ref.name)[:MAX_PODS_NAMED]


def round_ends(gang: PodGang) -> int:
    """Log time at which the round of a gang is over."""
    first = gang.declared.timeout_ms if gang.declared is not None else 600_000
    return gang.cycle_since + (first << min(max(gang.cycle - 1, 0), LONGEST_ROUND))
