"""A cell's log and its leaders."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from muster.model.language import listed, say
from muster.model.text import counted, instant, moment
from muster_cli.console import BAD, DIM, STRONG, WARN, columns, styled
from muster_cli.state import CellState

ALARM_PERCENT = 80
"""From here on a log wants to be rolled over."""


def size(number: int) -> str:
    """Bytes for people: ``812 B``, ``3.4 MiB``."""
    if number < 1024:
        return f"{number} B"
    units = ["KiB", "MiB", "GiB", "TiB"]
    tenths = number * 10 // 1024
    while tenths >= 10_240 and len(units) > 1:
        tenths //= 1024
        del units[0]
    return f"{tenths // 10}.{tenths % 10} {units[0]}"


def cell_lines(state: CellState) -> list[Text]:
    """The cell for people."""
    usage = state.usage
    limit = size(usage.max_bytes) if usage.max_bytes > 0 else say("no limit")
    full = styled(
        say("{bytes} of {limit} ", bytes=size(usage.bytes), limit=limit),
        (f"({state.percent} %)", WARN if _is_full(state) else DIM),
    )
    lines = columns(
        [
            ("Cell", styled((state.cell, STRONG))),
            ("NATS", state.url),
            (
                "Log",
                say(
                    "{log_id}, generation {generation}, stream {stream}",
                    log_id=state.log_id,
                    generation=state.generation,
                    stream=state.stream,
                ),
            ),
            ("End", f"sequence {usage.last_seq}, {counted(usage.messages, 'commit')}"),
            ("Size", full),
            ("Broker", f"{moment(usage.broker_ms)} UTC"),
        ]
    )
    lines += [Text(), styled((say("Leaders:"), STRONG))]
    for stage in dict.fromkeys(lead.stage for lead in state.leads):
        holders = [lead for lead in state.leads if lead.stage == stage]
        processes = sorted({lead.process for lead in holders if lead.process})
        missing = [lead.shard for lead in holders if not lead.process]
        names = ", ".join(processes)
        if missing and processes:
            names += say("; none for {missing}", missing=listed(missing))
        lines.append(styled(f"  {stage.ljust(18)}", (names, "") if names else (say("none"), BAD)))
    return lines


def _is_full(state: CellState) -> bool:
    return state.percent >= ALARM_PERCENT


def cell_record(state: CellState) -> dict[str, Any]:
    """The cell for programs."""
    return {
        "cell": state.cell,
        "url": state.url,
        "stream": state.stream,
        "log_id": state.log_id,
        "generation": state.generation,
        "last_sequence": state.usage.last_seq,
        "commits": state.usage.messages,
        "bytes": state.usage.bytes,
        "max_bytes": state.usage.max_bytes,
        "percent_full": state.percent,
        "broker_time": instant(state.usage.broker_ms),
        "leaders": [{"stage": lead.stage, "shard": lead.shard, "process": lead.process} for lead in state.leads],
    }
