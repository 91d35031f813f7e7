"""The doctor on processes that ended or are not ready: bad where no process does their work, else a note."""

import pytest

from muster.bus.shares import LogUsage
from muster.runtime.endings import ProcessEnd
from muster_cli.endchecks import end_findings
from muster_cli.state import CellState, Lead

NOW = 1_000_000_000


@pytest.mark.parametrize(
    ("leads", "age_ms", "waits", "grades"),
    [
        (False, 20_000, False, ["bad"]),
        (True, 20_000, False, ["note"]),
        (False, 900_000, False, ["bad"]),
        (True, 900_000, False, []),
        (False, 5_000, True, ["bad"]),
        (True, 5_000, True, ["note"]),
        (False, 60_000, True, []),
    ],
)
def test_an_end_is_as_bad_as_its_work_is_missed(*, leads: bool, age_ms: int, waits: bool, grades: list[str]) -> None:
    seats = [Lead(stage, "0", "p" if leads else "") for stage in ("actuator", "presenter")]
    usage = LogUsage(last_seq=1, messages=1, bytes=1, max_bytes=9, broker_ms=NOW)
    state = CellState("main", "nats://x", "S", "log", 1, usage, seats)
    found = end_findings(state, {"actuator": ProcessEnd(NOW - age_ms, "why", waits=waits)})
    assert [finding.grade for finding in found] == grades
    assert all("why" in finding.detail and "deploy/muster-actuator" in finding.fix for finding in found)
