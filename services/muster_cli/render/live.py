"""The log as it grows: the lines under the banner of ``muster up``."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from muster.model.language import say
from muster.told.views.tellings import NarratedEvent
from muster_cli.console import DIM, STRONG, WORDS, padded, styled, wrapped

WORD_WIDTH = 12
MIN_JOB_WIDTH = 24
MAX_JOB_WIDTH = 44


class LiveLines:
    """Makes lines of entries. ``began``: log time that counts as 0; ``width``: columns, 0 for no limit."""

    def __init__(self, began: int, *, acting: bool = True, width: int = 0) -> None:
        self._began = began
        self._acting = acting
        self._width = width
        self._job_width = MIN_JOB_WIDTH

    def lines(self, entry: NarratedEvent) -> list[Text]:
        """The lines of one entry; none for an unimportant entry."""
        if entry.weight != "turn" and (entry.word, entry.weight) != ("tried", "step"):
            return []
        name = "would admit" if entry.word == "admitted" and not self._acting else entry.word
        word = say("would admit") if name == "would admit" else say(name)
        subject = entry.subject
        self._job_width = min(max(self._job_width, len(subject)), MAX_JOB_WIDTH)
        head = [
            (f"{elapsed(entry.at - self._began):>9}  ", DIM),
            (padded(word, WORD_WIDTH), WORDS.get(name, "")),
            (subject.ljust(self._job_width) + "  ", STRONG),
        ]
        indent = sum(cell_len(part) for part, _ in head)
        room = self._width - indent
        if not self._width or len(entry.text) <= room or room < 30:
            return [styled(*head, entry.text)]
        first, *rest = wrapped(entry.text, room)
        return [styled(*head, first), *(Text(" " * indent + line) for line in rest)]


def elapsed(ms: int) -> str:
    """``0:03.1`` since the beginning."""
    tenths = max(ms, 0) // 100
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours}:{minutes:02d}" if hours else f"{minutes}"
    return f"{clock}:{rest // 10:02d}.{rest % 10}"
