"""The story of a gang of pods: the status, the pods, and the decisions about the gang."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from muster.model.language import say
from muster.model.text import instant
from muster.told.views.tellings import GangTale, StoryEntry
from muster_cli.console import BAD, DIM, GOOD, STRONG, WARN, styled, wrapped
from muster_cli.render.why import happening_lines

MAX_PODS = 20
_COLOURS = {"Running": GOOD, "Bound": GOOD, "Finished": GOOD, "Starting": GOOD, "Waiting": WARN, "GangWaits": WARN}


def tale_lines(tale: GangTale, *, every: bool = False, width: int = 100) -> list[Text]:
    """For people. ``every``: with the small steps."""
    lines = [styled((say("Gang "), DIM), (tale.name, STRONG), "  ", (tale.code, _COLOURS.get(tale.code, BAD)))]
    lines += [Text(f"  {line}") for line in wrapped(tale.text + say(". ").rstrip(), max(width - 2, 40))]
    size = max((len(name) for name in tale.pods), default=0)
    lines += [Text(f"    {name.ljust(size)}  {where}") for name, where in list(tale.pods.items())[:MAX_PODS]]
    if len(tale.pods) > MAX_PODS:
        lines.append(Text("    " + say("and {number} more", number=len(tale.pods) - MAX_PODS)))
    lines.append(Text())
    shown = [StoryEntry(entry) for entry in tale.entries if every or entry.weight != "detail"]
    lines += happening_lines(shown, width)
    return [*lines, Text()] if shown else lines


def tale_record(tale: GangTale) -> dict[str, Any]:
    """For programs."""
    namespace, _, name = tale.name.partition("/")
    events = [
        {"at": instant(entry.at), "sequence": entry.seq, "index": entry.item, "what": entry.word, "text": entry.text}
        for entry in tale.entries
    ]
    return {
        "kind": "Gang",
        "namespace": namespace,
        "name": name,
        "sequence": tale.seq,
        "at": instant(tale.now),
        "standing": {"code": tale.code, "text": tale.text},
        "pods": tale.pods,
        "events": events,
    }
