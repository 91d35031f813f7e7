"""Findings for people: the object, the state, and the way out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.language import marked, say
from muster.model.text import counted
from muster_cli.console import BAD, DIM, GOOD, WARN, styled
from muster_cli.findings import Finding

NOTHING = marked(
    "nothing was examined: name a log with --url nats://HOST:PORT and a cluster with "
    "--context NAME, or start both with `muster up`"
)
_MARKS = {"ok": (marked("ok   "), GOOD), "note": (marked("note "), WARN), "bad": (marked("fix  "), BAD)}


def findings_lines(findings: Sequence[Finding]) -> list[Text]:
    """One line for each finding, and one more for the advice."""
    lines = []
    for finding in findings:
        mark, colour = _MARKS[finding.grade]
        text = say("{title}: {detail}", title=finding.title, detail=finding.detail) if finding.detail else finding.title
        lines.append(styled("  ", (say(mark), colour), text))
        if finding.fix:
            lines.append(styled("       ", ("→ ", DIM), finding.fix))
    return lines


def verdict(findings: Sequence[Finding], *, examined: bool = True) -> Text:
    """The last line. ``examined``: there was a log or a cluster to look at."""
    bad = sum(finding.grade == "bad" for finding in findings)
    if bad:
        return styled((say("{bad} to fix", bad=counted(bad, "problem")), BAD))
    if not examined:
        return styled((say(NOTHING), WARN))
    notes = sum(finding.grade == "note" and bool(finding.fix) for finding in findings)
    return styled(
        (say("no problem found"), GOOD), say("; {notes} above", notes=counted(notes, "note")) if notes else ""
    )
