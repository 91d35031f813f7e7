"""What the audit asks of workers that are deleted: what was asked of their operator justifies it until that is over."""

from __future__ import annotations

import pytest

from muster.audit.podaudit import PATIENCE_MS, WorkersAudit
from muster.events.base import Cause, Event
from muster.events.decisions import QuotaReleased
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GateSet, GrowthWithdrawn, WorkersKept, WorkersRemoved
from muster.events.envelope import Commit, Stored
from muster.model.keys import Ref

CLUSTER, OWNER = Ref("RayCluster", "ns", "auto", "uid-auto"), Ref("RayJob", "ns", "job", "uid-job")
WORKERS = {"small": (Ref("Pod", "ns", "w", "uid-w"),)}
ASKED = Cause(1, 0)
GATE = GateSet(
    cause=Cause(0, 0),
    ref=CLUSTER,
    owner=OWNER,
    attempt=1,
    groups=("small",),
    most={"small": 1},
    ceilings={"small": 10},
    granted={"small": 1},
    workers=WORKERS,
)
WRITTEN = EffectApplied(cause=ASKED, ref=CLUSTER, attempt=1, action="gate")
REMOVED = WorkersRemoved(cause=ASKED, ref=CLUSTER, owner=OWNER, attempt=1, workers=WORKERS, since=2)
ENDS = {
    "they are gone": GrowthWithdrawn(
        cause=ASKED,
        ref=OWNER,
        attempt=1,
        queue="root/ns",
        cluster=CLUSTER,
        groups={"small": 1},
        grant={},
        request={},
        removed={"small": 1},
    ),
    "nothing is charged": QuotaReleased(
        cause=ASKED, ref=OWNER, attempt=1, queue="root/ns", request={}, reason="finished"
    ),
    "they are used again": WorkersKept(cause=ASKED, ref=OWNER, attempt=1, reason="in_use", unasked=True),
}


def found(*log: tuple[Event, int, int]) -> list[bool]:
    """Whether each removal is justified. ``log``: (event, log time, what who decided it knew)."""
    audit = WorkersAudit()
    held = []
    for seq, (event, at, known) in enumerate(log, start=1):
        commit = Commit(commit_id=str(seq), stage="s", shard="0", kind="decision", at=at, in_seq=known, events=(event,))
        held += [holds for _, holds, _ in audit.feed(Stored(seq, commit))]
    if len(log) > 4:
        assert not audit._asked, "what is over is kept for a minute, and no longer"
    return held


def test_what_its_operator_was_asked_and_does_not_do_is_done() -> None:
    assert found((GATE, 0, 0), (WRITTEN, 1, 1), (REMOVED, PATIENCE_MS + 1, 2)) == [True]
    assert found((GATE, 0, 0), (WRITTEN, 1, 1), (REMOVED, PATIENCE_MS, 2)) == [False], "too early"


@pytest.mark.parametrize("end", ENDS)
def test_once_it_is_over_it_justifies_nothing(end: str) -> None:
    late = PATIENCE_MS + 1
    before = ((GATE, 0, 0), (WRITTEN, 1, 1), (ENDS[end], late, 2))
    assert found(*before, (REMOVED, late, 3)) == [False]
    assert found(*before, (REMOVED, late, 2)) == [True], "who decided it could not know"
    other = QuotaReleased(cause=ASKED, ref=CLUSTER, attempt=1, queue="root/ns", request={}, reason="finished")
    assert found(*before, (REMOVED, late, 3), (other, 3 * PATIENCE_MS, 4)) == [False]


def test_what_was_not_written_justifies_nothing() -> None:
    failed = EffectFailed(cause=ASKED, ref=CLUSTER, attempt=1, reason="spec_changed", action="gate")
    assert found((GATE, 0, 0), (failed, 1, 1), (REMOVED, 2 * PATIENCE_MS, 2)) == [False]
