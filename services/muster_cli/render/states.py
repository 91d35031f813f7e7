"""States of stages in readable lines, and where they differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.text import Text

from muster.core.queueing.sorterstate import SorterState
from muster.core.stage import StageState
from muster.model.language import listed, say
from muster.model.quota import COUNTED
from muster.model.resources import format_part, format_vector
from muster.model.text import counted, instant, moment, shorten
from muster.runtime.replaying.states import about, plain
from muster.runtime.replaying.stepping import Step
from muster.told.wording import events
from muster_cli.console import BAD, DIM, GOOD, STRONG, columns, styled
from muster_cli.render.differences import EVENT_WIDTH, SHOWN, state_difference_lines, where_differs

LINE_WIDTH = 110


def state_lines(name: str, state: StageState, names: Sequence[str] = ()) -> list[Text]:
    """A whole state without empty fields. ``names``: only the fields about these names."""
    fields = plain(state)
    if names:
        fields = about(fields, names) or {}
    head = styled((name, STRONG), (say("  at sequence {seq}, {now} UTC", seq=state.seq, now=moment(state.now)), DIM))
    return [head, *(Text(f"  {line}") for line in _tree(fields))]


def _tree(value: Any) -> list[str]:
    """Nested values, indented; a value that fits in a line is one line."""
    lines = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in items:
        # Keys without values are a set that keeps its order.
        shown = list(entry) if isinstance(entry, dict) and all(one is None for one in entry.values()) else entry
        if shown in ({}, [], "", None, False):
            continue
        label = f"{key}:" if isinstance(value, dict) else "-"
        short = json.dumps(shown, ensure_ascii=False, separators=(", ", ": ")) if not isinstance(shown, str) else shown
        if not isinstance(shown, dict | list) or len(short) + len(label) < LINE_WIDTH:
            lines.append(f"{label} {short}")
        else:
            lines += [label, *(f"  {line}" for line in _tree(shown))]
    return lines


def cell_lines(state: SorterState) -> list[Text]:
    """A cell at a position: the use of each queue, the waiting jobs, and the jobs that hold quota."""
    synced = (
        say("fully known")
        if state.synced
        else say("not fully known: {unsynced} not listed", unsynced=listed(sorted(state.unsynced)))
    )
    lines = [
        styled(
            (say("The cell"), STRONG),
            (say("  at sequence {seq}, {now} UTC; {synced}", seq=state.seq, now=moment(state.now), synced=synced), DIM),
        ),
    ]
    ledger = state.queues.ledger
    if ledger.tree is None:
        lines.append(Text(say("  no quota tree is in force")))
    rows: list[list[Text | str]] = []
    for path, node in ledger.nodes.items():
        used = ledger.used.get(path, {})
        amounts = [
            f"{name} {format_part(used.get(name, 0), node.limit.get(name), name)}"
            for name in sorted({*used, *node.limit})
            if name not in COUNTED or name in node.limit
        ]
        waiting = state.queues.book.length(path)
        rows.append([f"  {path}", listed(amounts), say("{number} waiting", number=waiting) if waiting else ""])
    lines += columns(rows)
    for path in ledger.nodes:
        for number, (place, _) in enumerate(state.queues.book.in_order(path), start=1):
            if number > SHOWN:
                lines.append(
                    Text(
                        say(
                            "    and {number} more wait in {path}",
                            number=state.queues.book.length(path) - SHOWN,
                            path=path,
                        )
                    )
                )
                break
            lines.append(
                Text(
                    say(
                        "    waits {number} in {path}: {key}, priority {priority}",
                        number=number,
                        path=path,
                        key=place.key,
                        priority=place.priority,
                    )
                )
            )
    for uid, charge in list(ledger.charges.items())[:SHOWN]:
        workload = state.queues.workloads.get(uid)
        subject = workload.ref.key if workload is not None else f"{charge.namespace}/(deleted)"
        phase = workload.phase if workload is not None else say("its pods are ending")
        lines.append(
            Text(
                say(
                    "    holds {request} at {queue}: {subject} ({phase})",
                    request=format_vector(charge.request),
                    queue=charge.queue,
                    subject=subject,
                    phase=phase,
                )
            )
        )
    if len(ledger.charges) > SHOWN:
        lines.append(Text(say("    and {charges} more hold quota", charges=len(ledger.charges) - SHOWN)))
    return lines


def step_lines(step: Step, *, whole: bool) -> list[Text]:
    """One decision, step by step. ``whole``: with all of the state."""
    decides = say("a decision of") if step.recorded is not None else say("no decision of")
    lines = [
        styled(
            (say("Sequence {seq}", seq=step.seq), STRONG),
            say(
                " is {decides} {stage}, {at} UTC; its state had folded up to {in_seq}, rule set {ruleset}",
                decides=decides,
                stage=step.stage,
                at=moment(step.at),
                in_seq=step.in_seq,
                ruleset=step.ruleset,
            ),
        )
    ]
    recorded = step.recorded
    if recorded is not None:
        lines += _decisions("Recorded", recorded)
    if recorded is not None and step.same:
        lines.append(styled((say("Decides now"), STRONG), ": ", (say("the same, byte for byte"), GOOD)))
    else:
        lines += _decisions(say("Decides now"), step.decided)
    if recorded is not None and not step.same:
        lines.append(styled((say("Different"), BAD), say(" in {recorded}", recorded=_where(recorded, step.decided))))
        lines.append(styled((say("State"), STRONG), say(" after both, where it differs")))
        lines += state_difference_lines(step.differs, "recorded", "decided")
    lines += [styled((f"{violation.invariant}  {violation.detail}", BAD)) for violation in step.violations]
    heard = [(stored.seq, stored.commit, index) for stored in step.folded for index in range(len(stored.commit.events))]
    lines.append(
        styled(
            (say("Folded"), STRONG),
            say(" since {before}: {events}", before=step.before, events=counted(len(heard), "event")),
        )
    )
    for seq, commit, index in heard[-SHOWN:]:
        told = events.tell_of(commit, index)
        subject = f"{told.subject}: " if told.subject else ""
        lines.append(Text(shorten(f"    {seq:>7}  {told.word:<12} {subject}{told.text}", EVENT_WIDTH)))
    if len(heard) > SHOWN:
        lines.append(Text(say("    (the last {shown} of them)", shown=SHOWN)))
    lines.append(
        styled(
            (say("Changed"), STRONG), say(" by that in its state: {places}", places=counted(len(step.changed), "place"))
        )
    )
    lines += state_difference_lines(step.changed, "before", "after")
    names = () if whole else named(step)
    if whole or names:
        lines.append(
            styled(
                (say("State"), STRONG), say(" it decides on") + ("" if whole else say(", as far as it is about these"))
            )
        )
        lines += [Text(f"  {line.plain}") for line in state_lines(step.stage, step.state, names)[1:]]
    if step.deadline is not None:
        lines.append(
            styled(
                (say("it looks again at {deadline} UTC, if nothing comes before", deadline=moment(step.deadline)), DIM)
            )
        )
    return lines


def _decisions(title: str, events: Sequence[Any]) -> list[Text]:
    lines = [styled((title, STRONG), f": {counted(len(events), 'event')}")]
    lines += [Text("    " + shorten(msgspec.json.encode(event).decode(), EVENT_WIDTH)) for event in events[:SHOWN]]
    return [
        *lines,
        *([Text("    " + say("and {number} more", number=len(events) - SHOWN))] if len(events) > SHOWN else []),
    ]


def _where(recorded: Sequence[Any], decided: Sequence[Any]) -> str:
    for index in range(max(len(recorded), len(decided))):
        one = msgspec.json.encode(recorded[index]).decode() if index < len(recorded) else ""
        other = msgspec.json.encode(decided[index]).decode() if index < len(decided) else ""
        if one != other:
            return f"event {index + 1}" + (f": {difference}" if (difference := where_differs(one, other)) else "")
    return "nothing"


def named(step: Step) -> tuple[str, ...]:
    """Uids and queues that the decisions of a step are about."""
    names: dict[str, None] = {}
    for event in [*(step.recorded or []), *step.decided]:
        for part in (event, *getattr(event, "candidates", ()), *getattr(event, "victims", ())):
            ref = getattr(part, "ref", None)
            if ref is not None:
                names[ref.uid] = None
            queue = getattr(part, "queue", "")
            if queue:
                names[queue] = None
    return tuple(names)


def step_record(step: Step) -> dict[str, Any]:
    """One decision for programs, with the whole state before the decision."""
    return {
        "stage": step.stage,
        "sequence": step.seq,
        "in_seq": step.in_seq,
        "at": instant(step.at),
        "ruleset": step.ruleset,
        "folded": [
            {"sequence": stored.seq, "events": msgspec.to_builtins(stored.commit.events)} for stored in step.folded
        ],
        "changed": msgspec.to_builtins(step.changed),
        "state": plain(step.state),
        "recorded": None if step.recorded is None else msgspec.to_builtins(step.recorded),
        "decided": msgspec.to_builtins(step.decided),
        "same": step.same,
        "differs": msgspec.to_builtins(step.differs),
        "deadline": step.deadline,
        "violations": msgspec.to_builtins(step.violations),
    }
