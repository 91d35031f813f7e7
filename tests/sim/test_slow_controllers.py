"""What is resumed and evicted, for each kind, under a controller that hears of our writes late: no pods above max.

The judge counts what the pods on the nodes ask for, and knows nothing else of Muster.
"""

from __future__ import annotations

from random import Random

import pytest

from kit import jobs
from kit.disorder import Disorder
from kit.slowcontroller import BORROWER, LENDER, Eviction
from muster.events.charges import ChargeChanged
from muster.events.decisions import QuotaReleased, QuotaReserved, SuspensionOrdered
from muster.fakecluster.apiserver.deletion import DeleteOptions
from muster.model import api

each_kind = pytest.mark.parametrize("kind", jobs.FORMS)
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


@pytest.mark.parametrize("seed", range(2))
@each_kind
def test_nothing_runs_above_max_whatever_else_goes_wrong(kind: str, seed: int) -> None:
    """Stages that crash and decide late, observations that come late and twice, answers that are lost."""
    rng = Random(f"{kind} {seed}")
    lag_s, since = rng.choice((1, 3, 10, 60)), rng.choice(("always", "resume", "eviction"))
    disorder = Disorder(late=0.1, crash=0.03, unseen=0.3, repeat=0.1, lost_answer=0.2, outage=0.1)
    play = Eviction(kind, lag_s, since, fresh=rng.random() < 0.3, disorder=disorder, seed=seed)
    play.cell.advance(rng.choice((0, 500, lag_s * 1000, lag_s * 2000)))
    play.claim()
    play.until(lambda: play.has_run("claimant"), 40 * lag_s + 200, "the claimant to run")
    assert not play.judge.above
    assert not play.adoptions()


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


@pytest.mark.parametrize("lag_s", [0, 10])
def test_a_job_that_was_suspended_half_way_is_charged_for_the_rest_and_uses_no_more(lag_s: int) -> None:
    """One of its two pods is done; where the tree suspends what is used beyond a grant, the rest runs on."""
    play, patience_s = Eviction("Job", lag_s), 10 * lag_s + 60
    objects = play.cluster.server.objects
    rule = {"metadata": {"annotations": {"muster.dev/overuse-timeout": "1s"}}}
    objects.patch(api.QUOTA_TREES, "kube-system", "tree", rule)
    play.until(lambda: play.has_run("victim"), patience_s, "its pods to run")
    done = next(name for name in sorted(play.judge.ran) if name.startswith("victim"))
    objects.patch(api.PODS, BORROWER, done, {"status": {"phase": "Succeeded"}}, subresource="status")
    play.cell.advance(2 * play.lag.ms + 1_000)
    play.claim()
    play.until(lambda: play.has_run("claimant"), patience_s, "the claimant to run")
    objects.delete(api.JOBS, LENDER, "claimant", DeleteOptions(propagation="Background"))
    before = {*play.judge.ran}
    play.until(lambda: bool({*play.judge.ran} - before), 2 * patience_s, "the rest of it to run")
    play.cell.advance(30_000)
    grants = [each.request["cpu"] for each in play.happened(QuotaReserved) if each.ref.name == "victim"]
    assert grants == [2_000, 1_000]
    assert not [event for event in play.happened(ChargeChanged) if event.over]
    assert not play.happened(SuspensionOrdered)
    assert not play.judge.above
