"""``muster check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.audit.auditor import Auditor
from muster_cli.console import Output
from muster_cli.exits import OK, VIOLATED
from muster_cli.logfiles import complete, existing, progress
from muster_cli.options import Document
from muster_cli.render.verdicts import audit_lines, audit_record


def check(
    *,
    log: Annotated[Path, Parameter(help="Exported log, plain or .gz.")],
    output: Document = "text",
) -> int:
    """Audit a recorded log."""
    auditor = Auditor()
    with progress(existing(log), "Checking") as commits:
        for stored in complete(log, commits):
            auditor.feed(stored)
    violations = auditor.finish()
    out = Output()
    if output == "text":
        out.lines(audit_lines(auditor, violations))
    else:
        out.data(audit_record(auditor, violations), output)
    return VIOLATED if violations else OK
