"""A whole log, audited at once."""

from __future__ import annotations

from msgspec import Struct, field

from muster.audit.auditor import Auditor
from muster.core.stage import Violation
from muster.events.envelope import Stored


class AuditReport(Struct):
    """What an audit found."""

    commits: int
    checks: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)


def audit(log: list[Stored]) -> AuditReport:
    """Audit a whole log."""
    auditor = Auditor()
    for stored in log:
        auditor.feed(stored)
    violations = auditor.finish()
    return AuditReport(auditor.commits, dict(auditor.counts), dict(auditor.broken), violations)
