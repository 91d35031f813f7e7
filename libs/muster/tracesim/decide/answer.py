"""The answer to a state file: admitted jobs with their nodes, evicted jobs with their claimants, waiting jobs with
reasons.

Devices are numbered from 0 on each node. Pods that share a device name the same number; a pod with whole devices names
devices of no other pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.model.placing import GPU
from muster.tracesim.decide.situation import Situation


class PodWhereabouts(Struct, frozen=True):
    """Where a pod runs; ``devices``: the shared ones, as the ledger numbers them."""

    node: str
    devices: tuple[int, ...] = ()


class PodMember(Struct, frozen=True):
    """A running pod; ``new``: started since the question."""

    job: str
    pod: str
    where: PodWhereabouts
    new: bool


class Eviction(Struct, frozen=True):
    """Pods evicted together.

    ``rule``: ``reclaim`` (the queue is over its share), ``preempt`` (a higher priority of the queue), ``gang`` (the
    rest of the gang was evicted).
    """

    job: str
    pods: list[str]
    claimant: str
    rule: str
    queue: str
    quota: str
    resource: str


class Moved(Struct, frozen=True):
    """Pods moved together to make room for ``claimant``: the former nodes, and the new nodes."""

    job: str
    pods: list[str]
    claimant: str
    before: list[str]
    after: list[str]


class PodsWaitingAnswer(Struct, frozen=True):
    """Pods that wait together, and why: ``code`` for programs, ``text`` for people."""

    job: str
    pods: list[str]
    code: str
    text: str


class PodPlacedAnswer(Struct, frozen=True):
    name: str
    node: str
    devices: list[int]


class Runs(Struct, frozen=True):
    """Pods of one job."""

    job: str
    queue: str
    pods: list[PodPlacedAnswer]


class Answer(Struct, frozen=True):
    """All of it; every list is in the order of the file."""

    admitted: list[Runs]
    """The jobs that have started, also those that were evicted before."""
    running: list[Runs]
    """What ran and runs on."""
    evicted: list[Eviction]
    moved: list[Moved]
    waiting: list[PodsWaitingAnswer]
    warnings: list[str]
    """What looks odd about the queues, and which are disabled and why."""


def answer_of(
    situation: Situation,
    members: Sequence[PodMember],
    evicted: list[Eviction],
    moved: list[Moved],
    waiting: list[PodsWaitingAnswer],
    warnings: list[str],
) -> Answer:
    """The answer, with a number for every device."""
    devices = _devices(situation, members)
    queues = {job.name: job.queue.partition("/")[2] for job in situation.jobs}

    def runs(*, new: bool) -> list[Runs]:
        by_job: dict[str, Runs] = {}
        for member in members:
            if member.new == new:
                job = by_job.setdefault(member.job, Runs(member.job, queues[member.job], []))
                job.pods.append(PodPlacedAnswer(member.pod, member.where.node, devices[member.job, member.pod]))
        return list(by_job.values())

    return Answer(runs(new=True), runs(new=False), evicted, moved, waiting, warnings)


def _devices(situation: Situation, members: Sequence[PodMember]) -> dict[tuple[str, str], list[int]]:
    """(job, pod) -> devices: shared devices keep their numbers, whole devices are counted off from the others."""
    shared: dict[str, set[int]] = {}
    for placed in members:
        shared.setdefault(placed.where.node, set()).update(placed.where.devices)
    free = {
        node: iter([number for number in range(count) if number not in shared.get(node, ())])
        for node, count in situation.gpus.items()
    }
    whole = {
        (job.name, pod.name): pod.request.get(GPU, 0) // 1000
        for job in situation.jobs
        for unit in job.units
        for pod in unit.pods
    }
    by_node: dict[tuple[str, str], list[int]] = {}
    for placed in sorted(members, key=lambda member: (member.new, member.job, member.pod)):
        own = [next(free[placed.where.node]) for _ in range(whole[placed.job, placed.pod])]
        by_node[placed.job, placed.pod] = own or list(placed.where.devices)
    return by_node
