"""The story of one job: the status first, then the history, one line for each entry."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.text import Text

from muster.model.language import say
from muster.model.text import counted, instant, moment, span
from muster.told.codes.codetable import CODES
from muster.told.views.tellings import JobStory, Standing, StoryEntry
from muster_cli.console import DIM, STRONG, TONES, WARN, WORDS, padded, styled, wrapped

WORD_WIDTH = 12


def story_lines(story: JobStory, pod: str = "", *, every: bool = False, width: int = 100) -> list[Text]:
    """The story for people. ``pod``: text about the pod that the user named; ``every``: with the small steps."""
    standing = story.standing
    tone = TONES[CODES[standing.code].tone]
    lines = [styled((f"{story.ref.kind} ", DIM), (story.ref.key, STRONG), "  ", (standing.code, tone))]
    lines += [Text(f"  {line}") for line in wrapped(_sentence(standing.text), max(width - 2, 40))]
    lines += [Text(f"  {line}") for line in wrapped(_sentence(pod) if pod else "", max(width - 2, 40))]
    for pause in story.pauses:
        lines += [styled((f"  {line}", WARN)) for line in wrapped(_sentence(pause), max(width - 2, 40))]
    lines += _waits(story, max(width, 60))
    lines += _holders(standing)
    lines.append(Text())
    shown = [happening for happening in story.happenings if every or happening.entry.weight != "detail"]
    lines += happening_lines(shown, width, story.happenings[0].entry.at if story.happenings else 0)
    hidden = len(story.happenings) - len(shown)
    if hidden:
        lines.append(styled((say("  ({hidden} left out: --all)", hidden=counted(hidden, "small step")), DIM)))
    lines.append(Text())
    lines += [styled((f"  {note}", DIM)) for note in _notes(story)]
    return lines


def _sentence(text: str) -> str:
    return text if text.endswith((".", "…", "。")) else text + say(". ").rstrip()


def _waits(story: JobStory, width: int) -> list[Text]:
    lines: list[Text] = []
    for cluster in story.waits:
        lines.append(styled((f"  {cluster.text}:", DIM)))
        for piece, fates in cluster.pieces:
            lines += _indented(piece, 4, width)
            lines += [line for fate in fates for line in _indented(fate, 6, width)]
    return lines


def _indented(text: str, by: int, width: int) -> list[Text]:
    return [
        Text(line) for line in textwrap.wrap(text, width, initial_indent=" " * by, subsequent_indent=" " * (by + 2))
    ]


def _holders(standing: Standing) -> list[Text]:
    wanting = standing.wanting
    if wanting is None or not wanting.holders:
        return []
    lines = [styled((say("  In use at {quota}:", quota=wanting.quota), DIM))]
    size = max(len(holder.job) for holder in wanting.holders)
    lines += [
        Text(f"    {holder.job.ljust(size)}  {wanting.resource} {holder.amount}  {holder.text}")
        for holder in wanting.holders
    ]
    if wanting.held_by > len(wanting.holders):
        lines.append(Text("    " + say("and {number} more", number=wanting.held_by - len(wanting.holders))))
    return lines


def happening_lines(shown: list[StoryEntry], width: int, begin: int = 0) -> list[Text]:
    """The happenings, one line or more for each; ``begin``: the origin of times, by default the first happening."""
    lines: list[Text] = []
    day = ""
    for happening in shown:
        at = moment(happening.entry.at)
        if at[:10] != day:
            day = at[:10]
            lines.append(styled((say("  — {day} (UTC) —", day=day), DIM)))
        lines += _happening(happening, at[11:], begin or shown[0].entry.at, width)
    return lines


def _happening(happening: StoryEntry, time: str, begin: int, width: int) -> list[Text]:
    entry = happening.entry
    since = f"+{span(entry.at - begin)}"
    text = entry.text
    if happening.times > 1:
        text += say(
            " ({times} times, last at {last_at})", times=happening.times, last_at=moment(happening.last_at)[11:]
        )
    before = f"  {time}  {' ' * max(0, 14 - cell_len(since))}{since}  "
    word = padded(say(entry.word), WORD_WIDTH)
    indent = cell_len(before + word)
    lines = wrapped(text, max(width - indent, 40)) or [""]
    first = styled((before, DIM), (word, WORDS.get(entry.word, "")), lines[0])
    return [first, *(Text(" " * indent + line) for line in lines[1:])]


def _notes(story: JobStory) -> list[str]:
    notes = [
        say(
            "uid {uid}; told from log {log_id}, generation {generation}, up to {seq}",
            uid=story.ref.uid,
            log_id=story.log_id,
            generation=story.generation,
            seq=story.seq,
        )
    ]
    if story.earlier:
        notes.append(
            say("{earlier} had the same name; this is the newest one", earlier=counted(story.earlier, "earlier job"))
        )
    return notes


def record(story: JobStory) -> dict[str, Any]:
    """The story for programs."""
    standing = msgspec.to_builtins(story.standing)
    happenings = [
        {
            "at": instant(happening.entry.at),
            "sequence": happening.entry.seq,
            "index": happening.entry.item,
            "what": happening.entry.word,
            "text": happening.entry.text,
            "weight": happening.entry.weight,
            **({"times": happening.times, "last_at": instant(happening.last_at)} if happening.times > 1 else {}),
        }
        for happening in story.happenings
    ]
    return {
        "kind": story.ref.kind,
        "namespace": story.ref.namespace,
        "name": story.ref.name,
        "uid": story.ref.uid,
        "generation": story.generation,
        "log_id": story.log_id,
        "sequence": story.seq,
        "at": instant(story.now),
        "earlier": story.earlier,
        "standing": standing,
        "pauses": story.pauses,
        "waits": [
            {
                "text": wait.text,
                "pieces": [{"text": piece, "groups": groups} for piece, groups in wait.pieces],
            }
            for wait in story.waits
        ],
        "events": happenings,
    }
