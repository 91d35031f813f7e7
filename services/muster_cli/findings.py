"""What an examination found: values, and whether something must be fixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

Grade = Literal["ok", "note", "bad"]
"""``note``: worth knowing, and nothing stops working for it."""


class Finding(Struct, frozen=True):
    """A checked fact. ``fix``: the next step, empty if there is nothing to do."""

    grade: Grade
    title: str
    detail: str = ""
    fix: str = ""


def must_fix(findings: Sequence[Finding]) -> bool:
    """Whether something is bad."""
    return any(finding.grade == "bad" for finding in findings)


def record(findings: Sequence[Finding], *, examined: bool = True) -> dict[str, Any]:
    """The findings for programs. ``examined``: there was a log or a cluster to look at."""
    return {
        "examined": examined,
        "healthy": examined and not must_fix(findings),
        "findings": [
            {"grade": finding.grade, "title": finding.title, "detail": finding.detail, "fix": finding.fix}
            for finding in findings
        ],
    }
