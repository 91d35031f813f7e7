"""Days drawn from published shapes of GPU clusters: a family, a seed, and options; equal wishes give equal days.

Run times are log-normal. Published means: Helios 6,652 s, Seren 1,414 s, Philly 18,006 s (the cluster summary of the
Acme paper), Helios' median 206 s. The other medians, the sizes and the loads are estimates. With ``linked`` an owner's
runs of one size resemble each other, as on clusters where people run the same thing again; otherwise no run says
anything about the next run. An elastic job is a core of half the GPUs, and workers of lower priority that come with the
core; each is a job.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from muster.events.system import PlacementMode
from muster.model.language import listed, say
from muster.tracesim.clusterfile import PLACEMENTS
from muster.tracesim.faults import Fault, FaultSchedule
from muster.tracesim.model import GPU, WHOLE, NodeGroup, Trace, TraceCluster, TraceError, TraceJob, TraceQueue

PER_NODE = 8
DAY_S = 86_400
LONGEST_S = 5 * DAY_S
SHORTEST_S = 5
EVENING_S = 75_600
"""21:00, when nightly jobs come."""
BETWEEN = 0.8
"""The part of the variance of linked run times between owners and sizes; the rest is within."""
CHECKPOINT_MS = 1_800_000
WORKERS = 8
"""GPUs of a worker of an elastic job, at most."""

Sizes = Mapping[int, int]
"""GPUs -> jobs of a hundred."""
HELIOS: Sizes = {1: 51, 2: 14, 4: 10, 8: 16, 16: 5, 32: 3, 64: 1}
SEREN: Sizes = {1: 40, 8: 45, 16: 6, 32: 5, 64: 3, 128: 1}


class DayWish(Struct, frozen=True, kw_only=True):
    """A day to draw; parts are thousandths of the jobs."""

    family: str
    seed: int = 1
    jobs: int = 500
    nodes: int = 16
    linked: bool = False
    inner: bool = False
    """Queues below inner nodes, which pool half of each guarantee."""
    max: int = 0
    """Each queue's max as a multiple of the min; 0: no max."""
    checkpoints: int = 0
    """Jobs that save their work every half hour."""
    lost: int = 0
    """Nodes lost during the day, for one to four hours each."""
    elastic: int = 0
    """Elastic jobs among jobs of 8 GPUs and more."""
    placement: PlacementMode = "off"


class Day(Struct, frozen=True, kw_only=True):
    """A cluster, the jobs, and the nodes lost."""

    wish: DayWish
    trace: Trace
    faults: FaultSchedule


class _Drawn(Struct):
    """A job of the day; times in seconds."""

    queue: str
    gpus: int
    submit: float
    lasts: float
    priority: int = 0


class _Dice:
    """Draws one day."""

    def __init__(self, wish: DayWish) -> None:
        self.wish = wish
        self.gpus = wish.nodes * PER_NODE
        self.rng = Random(f"{wish.family}:{wish.seed}:{wish.linked}")  # noqa: S311 -- repeatable on purpose
        self._habits: dict[tuple[str, int], float] = {}

    def size(self, sizes: Sizes) -> int:
        return min(self.rng.choices(list(sizes), list(sizes.values()))[0], self.gpus)

    def lasts(self, median: float, mean: float, owner: str, gpus: int) -> float:
        """A run time; the ratio of mean and median of a log-normal is exp(sigma² / 2)."""
        sigma = math.sqrt(2 * math.log(mean / median))
        if not self.wish.linked:
            return _within(median * math.exp(self.rng.gauss(0, sigma)))
        if (owner, gpus) not in self._habits:
            self._habits[owner, gpus] = math.exp(self.rng.gauss(0, sigma * math.sqrt(BETWEEN)))
        rest = math.exp(self.rng.gauss(0, sigma * math.sqrt(1 - BETWEEN)))
        return _within(median * self._habits[owner, gpus] * rest)

    def queues(self, count: int) -> dict[str, int]:
        """Guarantees of nine tenths of the cluster, the k-th queue a k-th of the first."""
        parts = [1 / place for place in range(1, count + 1)]
        return {f"team-{place}": int(0.9 * self.gpus * part / sum(parts)) for place, part in enumerate(parts, 1)}

    def stream(
        self, count: int, load: float, sizes: Sizes, times: tuple[float, float], demand: Mapping[str, float]
    ) -> tuple[list[_Drawn], float]:
        """Jobs at random moments of a span in which they ask for ``load`` times the cluster; (jobs, span)."""
        drawn = []
        for queue in self.rng.choices(list(demand), list(demand.values()), k=count):
            gpus = self.size(sizes)
            drawn.append(_Drawn(queue, gpus, 0, self.lasts(*times, queue, gpus)))
        span = sum(job.gpus * job.lasts for job in drawn) / (self.gpus * load)
        for job in drawn:
            job.submit = self.rng.uniform(0, span)
        return drawn, span


def _within(seconds: float) -> float:
    return min(max(seconds, SHORTEST_S), LONGEST_S)


Drawn = tuple[dict[str, int], list[_Drawn]]
"""(queue -> GPUs guaranteed, jobs)"""


def _helios(dice: _Dice) -> Drawn:
    queues = dice.queues(8)
    demand = dict(zip(queues, dice.rng.sample(list(queues.values()), len(queues)), strict=True))
    return queues, dice.stream(dice.wish.jobs, 1.1, HELIOS, (206, 6652), demand)[0]


def _seren(dice: _Dice) -> Drawn:
    queues = dice.queues(6)
    return queues, dice.stream(dice.wish.jobs, 1.1, SEREN, (120, 1414), queues)[0]


def _nightly(dice: _Dice) -> Drawn:
    queues, half = dice.queues(5), dice.wish.jobs // 2
    jobs, span = dice.stream(dice.wish.jobs - half, 0.6, HELIOS, (300, 5000), queues)
    nights = max(int(span // DAY_S), 1)
    for number in range(half):
        queue, gpus = dice.rng.choice(list(queues)[:2]), dice.size({4: 50, 8: 40, 16: 10})
        at = number % nights * DAY_S + EVENING_S + dice.rng.uniform(0, 600)
        jobs.append(_Drawn(queue, gpus, at, dice.lasts(1800, 3600, queue, gpus)))
    return queues, jobs


def _flood(dice: _Dice) -> Drawn:
    queues, half = {f"team-{place}": dice.gpus * 3 // 16 for place in range(1, 6)}, dice.wish.jobs // 2
    calm = dict.fromkeys(list(queues)[1:], 1.0)
    jobs, span = dice.stream(dice.wish.jobs - half, 0.55, HELIOS, (400, 5000), calm)
    for _ in range(half):
        gpus = dice.size({1: 57, 2: 29, 8: 14})
        jobs.append(_Drawn("team-1", gpus, dice.rng.uniform(0, span / 20), dice.lasts(3000, 14_000, "team-1", gpus)))
    return queues, jobs


def _services(dice: _Dice) -> Drawn:
    teams = {f"team-{place}": dice.gpus * 3 // 16 for place in range(1, 5)}
    count = max(dice.wish.jobs // 25, 1)
    jobs, span = dice.stream(dice.wish.jobs - count, 1.0, HELIOS, (400, 6000), dict.fromkeys(teams, 1.0))
    for _ in range(count):
        gpus = dice.size({1: 34, 2: 33, 4: 33})
        jobs.append(_Drawn("serve", gpus, dice.rng.uniform(0, span * 0.8), span * 3, 10))
    return {"serve": dice.gpus // 4, **teams}, jobs


def _tiny(dice: _Dice) -> Drawn:
    queues = {f"user-{place:03}": place % 2 for place in range(min(200, dice.gpus * 25 // 16))}
    demand = dict.fromkeys(queues, 1.0)
    return queues, dice.stream(dice.wish.jobs, 1.1, {1: 60, 2: 20, 4: 10, 8: 10}, (300, 5000), demand)[0]


def _prio(dice: _Dice) -> Drawn:
    queues = dice.queues(6)
    jobs, _ = dice.stream(dice.wish.jobs, 1.15, HELIOS, (300, 6000), queues)
    for job in jobs:
        job.priority = dice.rng.choices((0, 50, 100), (3, 1, 1))[0]
    return queues, jobs


def _pareto(dice: _Dice) -> Drawn:
    queues = {f"team-{place}": dice.gpus // 8 for place in range(1, 7)}
    jobs = []
    for queue in dice.rng.choices(list(queues), k=dice.wish.jobs):
        lasts = min(60 * dice.rng.paretovariate(0.8), 3 * DAY_S)
        jobs.append(_Drawn(queue, dice.size(HELIOS), 0, lasts))
    span = sum(job.gpus * job.lasts for job in jobs) / (dice.gpus * 1.05)
    for job in jobs:
        job.submit = dice.rng.uniform(0, span)
    return queues, jobs


FAMILIES: Mapping[str, tuple[str, Callable[[_Dice], Drawn]]] = {
    "helios": ("eight teams whose demand differs from their guarantees; a tenth of the jobs is wide", _helios),
    "seren": ("short runs, half of them of whole nodes; six teams", _seren),
    "nightly": ("a calm day, and as many jobs at once every evening", _nightly),
    "flood": ("one of five teams submits half of all jobs in the first twentieth of the day", _flood),
    "services": ("services of priority 10 that run on and on, beside four teams", _services),
    "tiny": ("200 queues of one person each, with a guarantee of one GPU or none", _tiny),
    "prio": ("three priorities in each of six queues", _prio),
    "pareto": ("run times without a mean: most of a minute or two, some of days", _pareto),
}
"""name -> (the day in words, how to draw one)"""
OPTIONS = {
    "linked": "run times depend on owner and size",
    "inner": "queues below inner nodes",
    "jobs=N": "so many jobs (500)",
    "nodes=N": "so many nodes of 8 GPUs (16)",
    "max=N": "no queue above N times the min",
    "lost=N": "so many nodes lost for hours",
    "checkpoints=PART": "this part of the jobs saves work every half hour",
    "elastic=PART": "this part of the jobs of 8 GPUs and more is elastic",
    "placement=MODE": "off, pack or spread",
}


def parse(text: str) -> DayWish:
    """``FAMILY[:SEED][,OPTION...]``. Raises TraceError naming the wrong part and the right ones."""
    head, *options = text.split(",")
    family, _, seed = head.partition(":")
    if family not in FAMILIES:
        raise TraceError(
            say("there is no family {family!r}; there are {families}", family=family, families=listed(FAMILIES))
        )
    wish = DayWish(family=family, seed=_number(seed, f"the seed {seed!r}", 0, 10**9) if seed else 1)
    for option in options:
        wish = _with(wish, option)
    return wish


def _with(wish: DayWish, option: str) -> DayWish:
    name, _, value = option.partition("=")
    told = f"{name}={value}"
    match name:
        case "linked" | "inner" if not value:
            return replace(wish, **{name: True})
        case "jobs":
            return replace(wish, jobs=_number(value, told, 2, 200_000))
        case "nodes":
            return replace(wish, nodes=_number(value, told, 1, 10_000))
        case "max":
            return replace(wish, max=_number(value, told, 1, 1000))
        case "lost":
            return replace(wish, lost=_number(value, told, 0, 1000))
        case "checkpoints":
            return replace(wish, checkpoints=_part(value, told))
        case "elastic":
            return replace(wish, elastic=_part(value, told))
        case "placement" if value in PLACEMENTS:
            return replace(wish, placement=PLACEMENTS[value])
    known = "; ".join(f"{name} ({text})" for name, text in OPTIONS.items())
    raise TraceError(say("{option!r} is no option of a day; there are {known}", option=option, known=known))


def _number(value: str, told: str, low: int, high: int) -> int:
    if not value.isdecimal() or not low <= int(value) <= high:
        raise TraceError(say("{told} is not a whole number from {low} to {high}", told=told, low=low, high=high))
    return int(value)


def _part(value: str, told: str) -> int:
    try:
        part = float(value)
    except ValueError:
        part = -1.0
    if not 0 <= part <= 1:
        raise TraceError(say("{told} is not a part from 0 to 1", told=told))
    return round(part * 1000)


def draw(wish: DayWish) -> Day:
    """The day."""
    dice = _Dice(wish)
    queues, jobs = FAMILIES[wish.family][1](dice)
    jobs.sort(key=lambda job: job.submit)
    widest = {name: max((job.gpus for job in jobs if job.queue == name), default=0) for name in queues}
    root = _tree(wish, queues, widest, dice.gpus)
    paths = {queue.name: queue.path for queue in root.walk()}
    nodes = NodeGroup(wish.nodes, {GPU: PER_NODE * WHOLE})
    cluster = TraceCluster((nodes,), root, placement=wish.placement)
    listed = [part for number, job in enumerate(jobs) for part in _jobs(dice, number, job, paths[job.queue])]
    listed.sort(key=lambda job: job.submit)
    return Day(wish=wish, trace=Trace(cluster, tuple(listed)), faults=_losses(dice, jobs))


def _tree(wish: DayWish, queues: Mapping[str, int], widest: Mapping[str, int], gpus: int) -> TraceQueue:
    """Queues of equal rank; with ``inner`` in groups of about as many as there are groups. A max leaves room for the
    widest job of the queue.
    """
    whole = {GPU: gpus * WHOLE}

    def leaf(above: str, name: str, least: int) -> TraceQueue:
        limit = {GPU: min(max(queues[name] * wish.max, widest[name]), gpus) * WHOLE} if wish.max else {}
        return TraceQueue(name=name, path=f"{above}/{name}", min={GPU: least * WHOLE}, max=limit)

    if not wish.inner:
        children = tuple(leaf("root", name, least) for name, least in queues.items())
        return TraceQueue(name="root", path="root", min=whole, max=whole, children=children)
    size = math.isqrt(len(queues) - 1) + 1
    names, groups = list(queues), []
    for number, first in enumerate(range(0, len(names), size), 1):
        inside = names[first : first + size]
        path = f"root/group-{number}"
        least = {GPU: sum(queues[name] for name in inside) * WHOLE}
        below = tuple(leaf(path, name, queues[name] // 2) for name in inside)
        groups.append(TraceQueue(name=f"group-{number}", path=path, min=least, children=below))
    return TraceQueue(name="root", path="root", min=whole, max=whole, children=tuple(groups))


def _jobs(dice: _Dice, number: int, job: _Drawn, path: str) -> Sequence[TraceJob]:
    """The job as one job of the trace, or the core and the workers of an elastic job."""
    whole = TraceJob(
        id=f"job-{number:05}",
        queue=path,
        request={GPU: job.gpus * WHOLE},
        submit=round(job.submit * 1000),
        duration=round(job.lasts * 1000),
        priority=job.priority,
        members=max(job.gpus // PER_NODE, 1),
    )
    if not dice.wish.elastic or job.gpus < PER_NODE or dice.rng.random() * 1000 >= dice.wish.elastic:
        return [whole]
    core = job.gpus // 2
    gpus = min(core, WORKERS)
    parts = [replace(whole, request={GPU: core * WHOLE}, members=max(core // PER_NODE, 1))]
    for worker in range(1, core // gpus + 1):
        request = {GPU: gpus * WHOLE}
        parts.append(replace(whole, id=f"{whole.id}-w{worker}", request=request, members=1, priority=job.priority - 1))
    return parts


def _losses(dice: _Dice, jobs: Sequence[_Drawn]) -> FaultSchedule:
    """Nodes that go during the day and come back."""
    last = jobs[-1].submit
    rows = []
    for _ in range(dice.wish.lost):
        at = round(dice.rng.uniform(0, last)) * 1000
        node = f"node-{dice.rng.randrange(dice.wish.nodes):04}"
        rows.append(Fault("node_loss", at, at + round(dice.rng.uniform(3600, 4 * 3600)) * 1000, (node,)))
    return FaultSchedule(tuple(sorted(rows, key=lambda fault: fault.at)))


def write(folder: Path, day: Day) -> list[str]:
    """The day as files for ``--cluster``, ``--jobs`` and ``--faults``; their names."""
    cluster = day.trace.cluster
    nodes = [{"count": group.count, "gpus": group.capacity[GPU] // WHOLE} for group in cluster.groups]
    content = {"nodes": nodes, "placement": cluster.placement, "queues": _written(cluster.root)}
    (folder / "cluster.json").write_text(json.dumps(content, indent=2) + "\n")
    with (folder / "arrivals.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("job_id", "queue", "gpus", "submit_s", "duration_s", "priority", "min_member"))
        for job in day.trace.jobs:
            times = [f"{(ms or 0) / 1000:.3f}" for ms in (job.submit, job.duration)]
            table.writerow((job.id, job.queue, job.gpus // WHOLE, *times, job.priority, job.members))
    if not day.faults.rows:
        return ["cluster.json", "arrivals.csv"]
    rows = [
        {"kind": fault.kind, "at_s": fault.at // 1000, "for_s": (until - fault.at) // 1000, "nodes": fault.nodes}
        for fault in day.faults.rows
        if (until := fault.until) is not None
    ]
    (folder / "faults.json").write_text(json.dumps({"faults": rows}, indent=2) + "\n")
    return ["cluster.json", "arrivals.csv", "faults.json"]


def _written(queue: TraceQueue) -> dict[str, dict[str, object]]:
    written: dict[str, dict[str, object]] = {}
    for child in queue.children:
        amounts: dict[str, object] = {"min": child.min.get(GPU, 0) // WHOLE}
        if GPU in child.max:
            amounts["max"] = child.max[GPU] // WHOLE
        if child.children:
            amounts["children"] = _written(child)
        written[child.name] = amounts
    return written
