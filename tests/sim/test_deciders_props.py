"""The deciders under random histories: limits, conservation, no double charge, quiescence, replay."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kit.chaos import Chaos
from kit.histories import goes_on_from_a_snapshot
from muster.runtime.replaying.replay import replay

SETTINGS = settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(st.integers(0, 2**32))
def test_any_history_keeps_the_invariants_and_comes_to_rest(seed: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run()
    chaos.audit()


@SETTINGS
@given(st.integers(0, 2**32))
@example(48197)  # two heads that can never be helped took turns with a claim for age
def test_after_peace_the_ledger_is_what_runs(seed: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run()
    charged = set(chaos.bench.states["quota_accountant"].entries)
    occupies = {
        job.ref.uid
        for name, job in chaos.jobs.items()
        if name in chaos.clusters or (not job.suspended and job.phase != "finished")
    }
    assert charged == occupies


@SETTINGS
@given(st.integers(0, 2**32))
def test_after_peace_nobody_waits_who_would_fit(seed: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run()
    sorter = chaos.bench.states["queue_sorter"]
    ledger = chaos.bench.states["quota_accountant"].ledger
    for job in sorter.queues.jobs.values():
        if job.status == "waiting":
            assert ledger.shortfall(job.queue, job.demand) is not None, f"{job.ref} waits and would fit"


@SETTINGS
@given(st.integers(0, 2**32))
def test_replay_makes_the_same_decisions(seed: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run()
    report = replay(chaos.bench.log, silences=False)
    assert report.decisions > 0
    assert not report.divergences, report.divergences[0]
    assert not report.violations


@SETTINGS
@given(st.integers(0, 2**32), st.integers(0, 10_000))
def test_snapshot_and_tail_equal_the_whole_log(seed: int, cut: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run(steps=250)
    for name in chaos.bench.seats:
        goes_on_from_a_snapshot(chaos.bench, name, cut % len(chaos.bench.log))


@pytest.mark.parametrize("seed", range(3))
def test_chaos_reaches_what_it_should(seed: int) -> None:
    """The histories are worth something: jobs are denied, released, adopted, suspended and edited in them."""
    seen: set[str] = set()
    for each in range(seed * 20, seed * 20 + 20):
        chaos = Chaos(Random(each))
        chaos.run()
        seen |= {type(event).__name__ for stored in chaos.bench.log for event in stored.commit.events}
    wanted = {
        "QuotaDenied",
        "QuotaReleased",
        "WorkloadAdopted",
        "SuspensionRecorded",
        "EffectFailed",
        "WorkloadDequeued",
    }
    assert wanted <= seen
