"""The judge of promised starts: promises shown at random moments of a log, held against the later log.

Moments are drawn uniformly over log time, and jobs among those that wait then; of a wait each age counts once, so that
the cases do not repeat each other. Ages double, from two minutes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random

from msgspec import Struct

from muster.core.stage import Folder
from muster.events.decisions import GangAdmitted
from muster.events.envelope import Stored
from muster.told.readmodel.model import ReadModel
from muster.told.status.statuses import promises_of

GPU = "nvidia.com/gpu"
YOUNG_MS = 120_000
SURE = 2.968
"""Standard deviations of an interval that holds the truth in 99.7 of 100 cases."""


class Shown(Struct, frozen=True):
    """A promise as a reader saw it."""

    age: int
    gpus: int
    load: int
    """The number of doublings from no waiting job to as many as waited then."""
    kept: bool


class KeptJudge(Struct):
    """``cases``: the promises whose outcome is known. ``reasons``: how often no start was promised, by reason."""

    cases: list[Shown]
    reasons: dict[str, int]

    def percent(self) -> float:
        return 100 * sum(case.kept for case in self.cases) / len(self.cases)

    def missed(self, percent: int = 90, least: int = 50) -> list[str]:
        """The ages, sizes and loads with at least so many cases whose interval does not hold the percentage."""
        return [
            f"{name}: {sum(kept)} of {len(kept)}"
            for name, kept in self._buckets(least)
            if not holds(sum(kept), len(kept), percent / 100)
        ]

    def shares(self, least: int = 50) -> list[tuple[str, float]]:
        """The kept share of each age, size and load with at least so many cases."""
        return [(name, sum(kept) / len(kept)) for name, kept in self._buckets(least)]

    def _buckets(self, least: int) -> list[tuple[str, list[bool]]]:
        buckets: dict[str, list[bool]] = defaultdict(list)
        for case in self.cases:
            buckets[f"age {case.age}"].append(case.kept)
            buckets[f"{case.gpus} GPUs"].append(case.kept)
            buckets[f"load {case.load}"].append(case.kept)
        return sorted((name, kept) for name, kept in buckets.items() if len(kept) >= least)


def holds(kept: int, total: int, share: float) -> bool:
    """Whether Wilson's interval of 99.7 % around ``kept`` of ``total`` holds the share."""
    part, spread = kept / total, SURE * SURE / total
    middle = (part + spread / 2) / (1 + spread)
    half = (spread * (part * (1 - part) + spread / 4)) ** 0.5 / (1 + spread)
    return middle - half <= share <= middle + half


def judged(log: Sequence[Stored], seed: int, moments: int, jobs: int) -> KeptJudge:
    """The promises of so many jobs at each of so many moments."""
    admitted: dict[str, list[int]] = defaultdict(list)
    for stored in log:
        for event in stored.commit.events:
            if isinstance(event, GangAdmitted):
                admitted[event.ref.uid].append(stored.commit.at)
    rng, end = Random(seed), max(stored.commit.at for stored in log)
    ahead = sorted(rng.randint(log[0].commit.at, end) for _ in range(moments))
    model = ReadModel()
    state, folder = model.initial(), Folder(model)
    judge, known = KeptJudge([], defaultdict(int)), set[tuple[str, int, int]]()
    for stored in log:
        while ahead and ahead[0] < stored.commit.at:
            now = ahead.pop(0)
            waiting = sorted(uid for uid, job in state.queues.jobs.items() if job.status != "charged")
            for uid, promise in promises_of(state, _some(rng, waiting, jobs), now).items():
                job = state.queues.jobs[uid]
                age = (max(now - job.queued_at, 0) // YOUNG_MS).bit_length()
                start = next((at for at in admitted[uid] if at >= now), None)
                if (uid, job.queued_at, age) in known or (start is None and end <= promise.latest):
                    continue
                known.add((uid, job.queued_at, age))
                if promise.why:
                    judge.reasons[promise.why] += 1
                else:
                    gpus = job.demand.request.get(GPU, 0) // 1000
                    kept = start is not None and start <= promise.latest
                    judge.cases.append(Shown(age, gpus, len(waiting).bit_length(), kept))
        folder.fold(state, stored)
    return judge


def _some(rng: Random, uids: Sequence[str], most: int) -> Iterable[str]:
    return rng.sample(uids, min(most, len(uids)))
