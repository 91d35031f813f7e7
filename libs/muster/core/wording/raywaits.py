"""What waits in a Ray cluster, in words: each piece, and below it what each worker group says to it."""

from __future__ import annotations

from collections.abc import Callable

from muster.core.codes.raywaits import Fate, GroupFate, RayPiece, RayWaits
from muster.core.objects.meta import rfc3339
from muster.core.wording import events_ray, pods, reasons
from muster.model.closed import total
from muster.model.text import counted

FILE = "libs/muster/core/wording/raywaits.py"


def heading(found: RayWaits) -> str:
    """``Waits in RayCluster a/one, as its head said at 12:00:05``."""
    old = f"; {reasons.RAY_TROUBLE[found.trouble]} since" if found.trouble else ""
    return f"Waits in {found.cluster}, as its head said at {rfc3339(found.read_at)}{old}"


def piece(found: RayPiece) -> str:
    """``3 x CPU 1``, ``placement group 4f2a (PACK): 2 x GPU 1``."""
    shapes = events_ray.shapes(found.shapes)
    if found.kind == "alone":
        return shapes
    if found.kind == "explicit":
        return f"asked for with request_resources: {shapes}"
    return f"placement group {found.name[:12]} ({found.strategy}): {shapes}".replace("  ", " ")


def fate(found: GroupFate) -> str:
    """What becomes of it in one worker group."""
    return f"{found.group}: {_WORDS[found.fate](found)}"


def _too_small(found: GroupFate) -> str:
    if not found.resource:
        return "what one worker offers cannot be read: set num-cpus in its rayStartParams, or a cpu limit"
    asked, offers = events_ray.amount(found.asked), events_ray.amount(found.offers)
    return f"too small: {found.resource} {asked} is asked for, and one worker offers {offers}"


def _no_nodes(found: GroupFate) -> str:
    said = pods.matter(found.pod.trouble) if found.pod is not None else ""
    name = found.pod.name if found.pod is not None else ""
    return f"{counted(found.count, 'pod')} without a node: {name}: {said}"


def _refused(found: GroupFate) -> str:
    return f"refused: {events_ray.refused_by(found.short)}" if found.short is not None else "refused"


_WORDS: dict[Fate, Callable[[GroupFate], str]] = {
    "too_small": _too_small,
    "other_labels": lambda _: "its nodes do not have these labels",
    "no_nodes": _no_nodes,
    "refused": _refused,
    "asked": lambda found: f"{counted(found.count, 'more replica')} asked for, not answered yet",
    "coming": lambda found: f"{counted(found.count, 'replica')} granted, of which {found.joined} have joined",
    "at_most": lambda found: f"its owner allows {counted(found.count, 'replica')} (maxReplicas), and all are granted",
    "elsewhere": lambda _: "nothing is asked of it: other workers come first",
}

total(_WORDS, Fate, f"{FILE} (_WORDS)")
