"""What is resumed and evicted, for each kind, under a controller that hears of our writes late: no pods above max.

The judge counts what the pods on the nodes ask for, and knows nothing else of Muster.
"""

from __future__ import annotations

import pytest

from kit.slowcontroller import Eviction
from muster.core.workloads.registry import KINDS
from muster.events.decisions import QuotaReleased

each_kind = pytest.mark.parametrize("kind", KINDS)
WHEN = ("resumed", "a second later", "acted on", "runs")
"""How far the victim has come when its quota is claimed."""
SLOW = [
    *((lag_s, "always", fresh, when) for lag_s in (0, 1, 10, 60) for fresh in (False, True) for when in WHEN[::3]),
    *((lag_s, "always", False, when) for lag_s in (1, 60) for when in WHEN[1:3]),
    *((lag_s, since, False, when) for lag_s in (10, 60) for since in ("resume", "eviction") for when in WHEN[::2]),
]


@pytest.mark.parametrize(("lag_s", "since", "fresh", "when"), SLOW)
@each_kind
def test_who_is_evicted_while_it_starts_is_released_once_its_pods_cannot_come_any_more(
    kind: str, lag_s: int, since: str, fresh: bool, when: str
) -> None:
    play = Eviction(kind, lag_s, since, fresh=fresh)
    patience_s = 10 * lag_s + 60
    if when == "a second later":
        play.cell.advance(1_000)
    elif when == "acted on":
        play.until(play.is_acted_on, patience_s, "its controller to act")
    elif when == "runs":
        play.until(lambda: play.has_run("victim"), patience_s, "its pods to run")
    play.claim()
    play.until(lambda: play.has_run("claimant"), 2 * patience_s, "the claimant to run")
    assert not play.judge.above
    assert not play.adoptions()
    assert len(play.effects("suspend")) == 1


@pytest.mark.parametrize("lag_s", [0, 10, 60])
@each_kind
def test_who_is_suspended_by_others_before_its_controller_acts_is_released_after_its_time(
    kind: str, lag_s: int
) -> None:
    """No controller writes anything then. One that is later than that time runs its pods above max (the limit of these
    kinds), and nobody is told that another client has started them.
    """
    play = Eviction(kind, lag_s, "resume")
    play.suspend()
    play.claim()
    play.until(lambda: play.has_run("claimant"), 4 * lag_s + 120, "the claimant to run")
    assert [each.reason for each in play.happened(QuotaReleased)][:1] == ["suspended_outside"]
    assert lag_s > 30 or not play.judge.above
    assert {*play.adoptions()} <= {"not_stopped"}
