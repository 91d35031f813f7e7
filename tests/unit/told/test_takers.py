"""The jobs that took what a waiting job waits for, as the end of its refusal tells them."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.queueing.queues import Job, job_from
from muster.events.base import Cause
from muster.events.decisions import WorkloadQueued
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.told.codes.happenings import Taker
from muster.told.views.story import Takers

REFUSAL = Shortfall("root", "cpu", asked=1, used=8, limit=8)


class _Kept(list[Taker]):
    """Counts how often it is looked through."""

    looks = 0

    def __iter__(self) -> Iterator[Taker]:
        self.looks += 1
        return super().__iter__()


def _took(seq: int, job: str, queue: str = "root/a", resource: str = "cpu") -> Taker:
    return Taker(seq, f"team/{job}", queue, {resource: 1}, (0, seq, f"team/{job}", job))


def _waits(name: str) -> Job:
    ref = Ref("RayJob", "team", name, name)
    queued = WorkloadQueued(cause=Cause(1, 0), ref=ref, attempt=1, queue="root/a", request={"cpu": 1})
    return job_from(queued, queued.cause)


def test_many_jobs_are_told_who_took_their_quota_by_one_look_at_those() -> None:
    kept = _Kept(_took(seq, f"j{seq}") for seq in range(100))
    takers = Takers(kept)
    told = [takers.told(seq, _waits(f"w{seq}"), REFUSAL) for seq in range(90)]
    assert kept.looks == 1
    assert "team/j99" in told[0]
    assert [each.rpartition(" and ")[2] for each in (told[0], told[89])] == ["96 before them", "7 before them"]


def test_a_job_is_not_told_of_itself_nor_of_what_it_does_not_wait_for() -> None:
    kept = [_took(1, "old"), _took(2, "w"), _took(3, "other", "side/b"), _took(4, "gpu", resource="nvidia.com/gpu")]
    assert not Takers(kept).told(1, _waits("w"), REFUSAL)
    kept += [_took(5, "w"), _took(6, "x"), _took(7, "w")]
    told = Takers(kept).told(1, _waits("w"), REFUSAL)
    assert "team/x" in told
    assert "before them" not in told
    assert "team/w" not in told
