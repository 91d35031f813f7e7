"""The log for people and for programs: one line, or one record, per event."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.text import Text

from muster.events.envelope import Stored
from muster.events.registry import encode
from muster.model.language import say
from muster.model.text import instant, moment
from muster.told.wording.events import tell_of
from muster_cli.console import DIM, STRONG, WORDS, padded, styled

POSITION_WIDTH = 9
WORD_WIDTH = 12


class EventLines:
    """Turns commits into lines. A line with the day comes whenever the day changes."""

    def __init__(self) -> None:
        self._day = ""

    def lines(self, stored: Stored, wanted: set[int]) -> list[Text]:
        """The lines of the events of a commit whose index is wanted."""
        at = moment(stored.commit.at)
        day, _, time = at.partition(" ")
        lines = []
        if wanted and day != self._day:
            self._day = day
            lines.append(styled((f"— {day} (UTC) —", DIM)))
        lines += [_line(stored, index, time) for index in sorted(wanted)]
        return lines


def _line(stored: Stored, index: int, time: str) -> Text:
    told = tell_of(stored.commit, index)
    position = f"{stored.seq}.{index}" if index else str(stored.seq)
    return styled(
        (position.ljust(POSITION_WIDTH), DIM),
        (f"{time}  ", DIM),
        (padded(say(told.word), WORD_WIDTH), WORDS.get(told.word, "")),
        (f"{told.subject}  ", STRONG) if told.subject else "",
        told.text,
    )


def record(stored: Stored, index: int, cell: str, generation: int) -> dict[str, Any]:
    """One event with its position, for programs."""
    commit = stored.commit
    return {
        "cell": cell,
        "generation": generation,
        "sequence": stored.seq,
        "index": index,
        "at": instant(commit.at),
        "stage": commit.stage,
        "shard": commit.shard,
        "kind": commit.kind,
        "event": msgspec.json.decode(encode(commit.events[index])),
    }
