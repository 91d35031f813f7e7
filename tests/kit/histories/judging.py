"""Whether a recorded history is still decided as it was, and if not, which decision differs first and what led to it.

Two judges that share nothing: the replay decides everything again; the audit keeps accounts of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kit.audits import audit
from kit.histories.files import FOLDER, line_of, path_of, read, read_lines
from muster.core.cell.deciders import DECIDERS
from muster.core.cell.seats import AnySeat, Seat
from muster.events.base import Cause, Event
from muster.events.envelope import Stored
from muster.events.system import TimeReached
from muster.runtime.logkeeping.logfile import LogFileError
from muster.runtime.replaying.replay import Divergence, replay
from muster.told.views.narrator import Narrator
from muster.told.views.tellings import NarratedEvent

WIDTH = 240
"""Of a line about the state, which may hold all of it."""
BEFORE = 8
"""How many sentences about the same object are shown before a decision that differs."""


def judge(name: str, folder: Path = FOLDER) -> str:
    """What is wrong with a history; empty when nothing is."""
    line = read_lines(folder).get(name)
    if line is None:
        return f"{path_of(name, folder)} has no line in digests.txt; write it with: make histories ARGS={name}"
    try:
        log = read(name, folder)
    except LogFileError as err:
        return f"{err}; where the wire has changed, record it anew: make histories ARGS={name}"
    return judged(name, line.manner, line.digest, log, folder)


def judged(name: str, manner: str, digest: str, log: list[Stored], folder: Path = FOLDER) -> str:
    """What is wrong with a log; ``digest``: of its decisions, as it is recorded. Empty when nothing is."""
    report = replay(log, silences=manner == "calm")
    if report.divergences:
        return _told(name, folder, len(report.divergences), first_difference(log, report.divergences[0]))
    if manner == "calm" and (late := next(missed(log), "")):
        return _told(name, folder, 1, late)
    wrong = [str(each) for each in report.violations]
    wrong += [str(each) for each in audit(log).violations if manner != "wild" or each.invariant != "I11"]
    if wrong:
        return f"{path_of(name, folder)} breaks {len(wrong)} invariants, first {wrong[0]}"
    if (found := line_of(name, manner, log).digest) != digest:
        return (
            f"{path_of(name, folder)} is not the file that digests.txt is about: its decisions have the digest "
            f"{found}, and the line says {digest}; write both with: make histories ARGS={name}"
        )
    return ""


def _told(name: str, folder: Path, count: int, first: str) -> str:
    return (
        f"history {name}: {count} decisions differ from {path_of(name, folder)}. The first:\n{first}\n"
        f"If this is what you want, write the history with\n    make histories ARGS={name}\n"
        "and say in the commit which decision changed, and why."
    )


# --- deadlines -------------------------------------------------------------------------------------------------------


def missed(log: list[Stored]) -> Iterator[str]:
    """Where time was reached for a stage whose deadline is another now; for logs that meet each one exactly."""
    seats: dict[str, AnySeat] = {name: Seat(make()) for name, make in DECIDERS.items()}
    for stored in log:
        commit = stored.commit
        if commit.stage in seats and any(isinstance(event, TimeReached) for event in commit.events):
            now = seats[commit.stage].deadline()
            if now != commit.at:
                before = f"{commit.stage} at {stored.seq}: its deadline was {commit.at}, and is {now} (log time, ms)"
                yield "\n".join([before, *_around(log, stored.seq, "")])
        for seat in seats.values():
            seat.fold(stored)


# --- the story of a difference ---------------------------------------------------------------------------------------


def first_difference(log: list[Stored], found: Divergence) -> str:
    """The decision as it was and as it is, field by field, and what led to it."""
    recorded, decided = (msgspec.json.decode(text) if text else {} for text in found.first_difference())
    lines = [f"{found.stage} at {found.seq}, decided on {found.in_seq}:"]
    for path, old, new in differing(recorded, decided):
        lines += [f"    {path}", f"        was {old}", f"        is  {new}"]
    lines += [f"  as it was: {_json(recorded)}", f"  as it is:  {_json(decided)}"]
    after = [f"    {each.path}: {each.one} -> {each.other}"[:WIDTH] for each in found.state[:BEFORE]]
    lines += ["  the state after it:", *after] if after else []
    one = recorded or decided
    cause = one.get("cause")
    about = one.get("ref") or {}
    chain = [*_chain(log, Cause(*cause) if cause else None)]
    if chain:
        lines += ["  what caused it, the newest first:", *chain]
    key = f"{about.get('namespace', '')}/{about.get('name', '')}" if isinstance(about, dict) and about else ""
    return "\n".join(lines + _around(log, found.seq, key))


def differing(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """(path, old, new) of each value that differs."""
    if isinstance(old, dict) and isinstance(new, dict) and old.get("type") == new.get("type"):
        for name in dict.fromkeys([*old, *new]):
            yield from differing(old.get(name), new.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differing(one, other, f"{path}[{index}]")
    elif old != new:
        yield path or "the decision", _json(old), _json(new)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode() if value not in (None, {}) else "nothing"


def _chain(log: list[Stored], cause: Cause | None) -> Iterator[str]:
    """The event that was answered, the one which that answered, and so on."""
    while cause is not None and 0 < cause.seq <= len(log):
        stored = log[cause.seq - log[0].seq]
        event: Event = stored.commit.events[cause.item]
        sentence = next((each.text for each in narrated(log, cause.seq) if each.item == cause.item), "")
        subject = getattr(event, "ref", "")
        yield f"    {cause.seq} {stored.commit.stage} {type(event).__name__} {subject} {sentence}".rstrip()
        cause = getattr(event, "cause", None)


def _around(log: list[Stored], seq: int, key: str) -> list[str]:
    """What was told last before a position: of one job or gang, or of everything."""
    found: list[NarratedEvent] = []
    narrator = Narrator()
    for stored in log[: seq - log[0].seq]:
        found += [each for each in narrator.feed(stored) if not key or key in (each.subject, each.gang)]
    told = [f"    {each.seq} {each.subject} {each.word}: {each.text}" for each in found[-BEFORE:]]
    return [f"  what was told of {key or 'the cell'} before:", *told] if told else []


def narrated(log: list[Stored], seq: int) -> list[NarratedEvent]:
    """What the narrator tells of one commit."""
    narrator = Narrator()
    for stored in log[: seq - log[0].seq]:
        narrator.feed(stored)
    return narrator.feed(log[seq - log[0].seq])
