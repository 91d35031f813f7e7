"""The processes that do not do their work, in their own words: those that ended, and those that are not ready."""

from __future__ import annotations

from collections.abc import Mapping

from muster.model.language import say
from muster.model.text import span
from muster.runtime.endings import AGAIN_S, ProcessEnd
from muster.runtime.layouts import members
from muster.runtime.opening import openings
from muster_cli.findings import Finding, Grade
from muster_cli.state import CellState

RECENT_MS = 600_000
"""A process that ends again and again is started every five minutes at least."""
WAITS_MS = int(AGAIN_S * 3_000)
"""A process that is not ready says so more often."""


def end_findings(state: CellState, ended: Mapping[str, ProcessEnd]) -> list[Finding]:
    """The ends of processes, and what those lack that run and are not ready: bad where no process does their work."""
    findings: list[Finding] = []
    for user, ending in sorted(ended.items()):
        age = max(0, state.usage.broker_ms - ending.at)
        missed = _missed(state, user, age)
        if age > WAITS_MS if ending.waits else age > RECENT_MS and not missed:
            continue
        grade: Grade = "bad" if missed else "note"
        service = members(user)[0].replace("_", "-")
        logs = say("kubectl -n muster-system logs deploy/muster-{service}", service=service)
        if ending.waits:
            findings.append(
                Finding(grade, user.replace("_", "-"), say("a process waits, not ready: {why}", why=ending.why), logs)
            )
        else:
            detail = f"ended {span(age)} ago: {ending.why}"
            findings.append(Finding(grade, user.replace("_", "-"), detail, f"{logs} -p"))
    return findings


def _missed(state: CellState, user: str, age_ms: int) -> bool:
    """Whether no process does what a process of the user did."""
    leases = {opening.lease for opening in openings(user).values() if opening.lease}
    return any(not lead.process for lead in state.leads if lead.stage in leases) if leases else age_ms < RECENT_MS
