"""Findings for people: what was looked at, how it is, and how to mend it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.text import counted
from muster_cli.console import BAD, DIM, GOOD, WARN, styled
from muster_cli.findings import Finding

_MARKS = {"ok": ("ok   ", GOOD), "note": ("note ", WARN), "bad": ("mend ", BAD)}


def findings_lines(findings: Sequence[Finding]) -> list[Text]:
    """One line each, and one more for what to do."""
    lines = []
    for finding in findings:
        detail = f": {finding.detail}" if finding.detail else ""
        lines.append(styled("  ", _MARKS[finding.grade], f"{finding.title}{detail}"))
        if finding.fix:
            lines.append(styled("       ", ("→ ", DIM), finding.fix))
    return lines


def verdict(findings: Sequence[Finding]) -> Text:
    """The last line."""
    bad = sum(finding.grade == "bad" for finding in findings)
    if not bad:
        return styled(("nothing needs mending", GOOD))
    return styled((f"{counted(bad, 'thing')} to mend", BAD))
