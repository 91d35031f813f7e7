"""Queues as stories, and what a waiting job may expect."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from rich.text import Text

from muster.core.learned import Estimate
from muster.model.language import listed, say
from muster.model.text import counted, instant, moment, shorten, span
from muster.serving.promises import promise_record
from muster.told.codes.values import Promise
from muster.told.views.tellings import JobStory, QueueTale
from muster.told.wording import queuewords
from muster_cli.console import DIM, STRONG, WARN, WORDS, columns, padded, styled, wrapped

SHOWN = 60
NARROW = 100
"""Columns up to which the text of an entry begins a line of its own."""


class Expected(Struct, frozen=True):
    """The place of a job, and the expected start; ``why`` without an estimate.

    The estimate tells only how fast the queue moves; the estimate is for jobs without a promise.
    """

    story: JobStory
    promise: Promise
    estimate: Estimate
    why: str = ""


def expecting(story: JobStory, promise: Promise, pace: Estimate | None) -> Expected:
    """The expectation of known values. ``pace``: by the speed of the queue, None where the speed does not apply."""
    if pace is not None:
        return Expected(story, promise, pace, queuewords.no_estimate(pace))
    standing = story.standing
    why = say("how long {code} lasts does not follow from the speed of its queue", code=standing.code)
    return Expected(story, promise, Estimate(), why if standing.position else say("it does not wait in a queue"))


def position_lines(expected: Expected, width: int = 110) -> list[Text]:
    """One job: the place, and the promised start; else why no start is promised, and the estimate or why there is
    none.
    """
    story, standing = expected.story, expected.story.standing
    place = (
        say(
            "position {position} of {length} in {queue}",
            position=standing.position,
            length=standing.length,
            queue=standing.queue,
        )
        if standing.position
        else standing.code
    )
    lines = [styled((f"{story.ref.kind} ", DIM), (story.ref.key, STRONG), f"  {place}")]
    if not expected.promise.why:
        lines += _wrapped(f"{queuewords.promised_start(expected.promise, story.now)}.", width)
    elif expected.promise.why != "not_waiting":
        lines += _wrapped(
            say("No promise: {why}.", why=queuewords.no_promise(expected.promise.why, standing.code)),
            width,
        )
    if expected.promise.why and expected.estimate.known:
        lines += _wrapped(queuewords.estimate(expected.estimate, standing.position, standing.queue), width)
    elif expected.promise.why and standing.position:
        first, *rest = _wrapped(say("No estimate: {why}.", why=expected.why), width)
        first.stylize(WARN, 0, len(say("  No estimate:")))
        lines += [first, *rest]
    text = standing.text if standing.text.endswith((".", "。")) else standing.text + say(". ").rstrip()
    return [*lines, *_wrapped(text, width)]


def position_record(expected: Expected) -> dict[str, Any]:
    """For programs."""
    story, standing, estimate = expected.story, expected.story.standing, expected.estimate
    return {
        "kind": story.ref.kind,
        "namespace": story.ref.namespace,
        "name": story.ref.name,
        "uid": story.ref.uid,
        "sequence": story.seq,
        "at": instant(story.now),
        "standing": standing.code,
        "queue": standing.queue,
        "position": standing.position,
        "length": standing.length,
        "estimate": (
            {"low_ms": estimate.low, "median_ms": estimate.middle, "high_ms": estimate.high, "rows": estimate.rows}
            if estimate.known
            else None
        ),
        "why_no_estimate": expected.why,
        "promise": promise_record(expected.promise),
        "why_no_promise": queuewords.no_promise(expected.promise.why, standing.code),
        "text": standing.text,
    }


def tale_lines(tale: QueueTale, width: int = 200) -> list[Text]:
    """A queue: the usage, the tally, the waiting jobs, and then one line for each entry."""
    lines = [styled((tale.queue, STRONG)), *_wrapped(say("uses {usage}", usage=tale.usage), width)]
    lines += _wrapped(
        say(
            "guaranteed: {guaranteed}; {now} UTC, sequence {seq}",
            guaranteed=tale.guaranteed,
            now=moment(tale.now),
            seq=tale.seq,
        ),
        width,
        DIM,
    )
    lines += [line for pause in tale.pauses for line in _wrapped(f"{pause}.", width, WARN)]
    lines += _wrapped(_numbers(tale), width)
    if tale.length:
        lines += [Text(), styled((f"{counted(tale.length, 'job')} {'waits' if tale.length == 1 else 'wait'}", STRONG))]
        rows: list[list[Text | str]] = [
            [
                f"{waiter.position}",
                waiter.job,
                say("priority {priority}", priority=waiter.priority),
                say("for {waited}", waited=span(waiter.waited)),
                *([waiter.reason] if width > NARROW else []),
            ]
            for waiter in tale.waiting
        ]
        lines += columns(rows, indent=2)
        if tale.length > len(tale.waiting):
            lines.append(Text("  " + say("and {number} more", number=tale.length - len(tale.waiting))))
        start = tale.next_start
        text = say("no estimate for the next: {why}", why=queuewords.no_estimate(start))
        lines += _wrapped(
            say("next: {estimate}", estimate=queuewords.estimate(start, 1, tale.queue)) if start.known else text,
            width,
            DIM,
        )
    if tale.entries:
        lines += [Text(), styled((say("What happened"), STRONG))]
    hidden = tale.left_out + max(0, len(tale.entries) - SHOWN)
    if hidden:
        lines.append(
            styled((say("  ({hidden} before these; --from and --until choose, -o json has more)", hidden=hidden), DIM))
        )
    for entry in tale.entries[-SHOWN:]:
        subject = f"{entry.ref.key}: " if entry.ref is not None else ""
        head = (f"  {moment(entry.at)}  ", DIM), (padded(say(entry.word), 11), WORDS.get(entry.word, "")), " "
        text = shorten(f"{subject}{entry.text}", 300)
        if width > NARROW:
            lines.append(styled(*head, text))
        else:
            lines += [styled(*head[:2]), *_wrapped(text, width, indent=4)]
    return lines


def _wrapped(text: str, width: int, style: str = "", indent: int = 2) -> list[Text]:
    """A paragraph."""
    return [styled((" " * indent + line, style)) for line in wrapped(text, max(width - indent, 40))]


def _numbers(tale: QueueTale) -> str:
    tally = tale.tally
    parts = [
        say("{queued} queued", queued=tally.queued),
        say("{admitted} admitted", admitted=tally.admitted),
        say("{finished} finished", finished=tally.finished),
        say("{evicted} evicted", evicted=tally.evicted),
        say("{released} released", released=tally.released),
        counted(tally.denied, "refusal"),
    ]
    text = listed(parts)
    if tally.admitted:
        mean = tally.waits // tally.admitted
        text += say(
            "; waited {mean} on average, at most {longest_wait} ({longest_waiter})",
            mean=span(mean),
            longest_wait=span(tally.longest_wait),
            longest_waiter=tally.longest_waiter,
        )
    return text


def tale_record(tale: QueueTale) -> dict[str, Any]:
    """For programs."""
    record: dict[str, Any] = msgspec.to_builtins(tale)
    record["entries"] = [
        {
            "at": instant(entry.at),
            "sequence": entry.seq,
            "index": entry.item,
            "job": entry.ref.key if entry.ref is not None else "",
            "what": entry.word,
            "text": entry.text,
        }
        for entry in tale.entries
    ]
    return record
