"""The processes that ended for a reason that a restart does not correct, or wait for a person."""

from __future__ import annotations

from collections.abc import Mapping

from muster.model.text import span
from muster.runtime.endings import ProcessEnd
from muster.runtime.layouts import members
from muster.runtime.opening import openings
from muster_cli.findings import Finding
from muster_cli.state import CellState

RECENT_MS = 600_000
"""A process that ends again and again is started every five minutes at least."""


def end_findings(state: CellState, ended: Mapping[str, ProcessEnd], now: int) -> list[Finding]:
    """The ends of processes whose work no process does now, and processes that wait; ``now``: ms since the epoch."""
    findings: list[Finding] = []
    for user, ending in sorted(ended.items()):
        age = now - ending.at
        if age < RECENT_MS if ending.waits else _missed(state, user, age):
            service = members(user)[0].replace("_", "-")
            detail = f"{'waits, written' if ending.waits else 'ended'} {span(max(0, age))} ago: {ending.why}"
            findings.append(
                Finding(
                    "bad", user.replace("_", "-"), detail, f"kubectl -n muster-system logs deploy/muster-{service} -p"
                )
            )
    return findings


def _missed(state: CellState, user: str, age_ms: int) -> bool:
    """Whether no process does what a process of the user did."""
    leases = {opening.lease for opening in openings(user).values() if opening.lease}
    return any(not lead.process for lead in state.leads if lead.stage in leases) if leases else age_ms < RECENT_MS
