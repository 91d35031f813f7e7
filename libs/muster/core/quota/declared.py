"""What a workload declares: its priority and whether it may be preempted (labels of KAI), how long it runs at most."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.objects.labels import KAI_PREEMPTIBILITY, KAI_PREEMPTION_DELAY, KAI_PRIORITY, KAI_QUEUE, RUN_TIME
from muster.core.quota.trees.rules import span_or
from muster.model.workload import Workload

CLASSES: Mapping[str, int] = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The PriorityClasses that are shipped (deploy/kai): in force under these names also where they are not applied."""
DEFAULT_CLASS = "train"
FIRM = 100
"""From this priority on, work is not preemptible, and stays within its quota."""
PREEMPTIBILITY = ("preemptible", "non-preemptible")

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

AROUND_MS = 2 * MINUTE_MS
"""To start and to stop take so long beside each declared run time: its charge begins before and ends after it."""


def kai_class(workload: Workload) -> str:
    """The PriorityClass by name: of the label on the workload, else of its pods, else ``train``."""
    return workload.labels.get(KAI_PRIORITY, "") or workload.priority_class or DEFAULT_CLASS


def kai_priority(workload: Workload, classes: Mapping[str, int]) -> int:
    """Its priority: of the label's class, else the number in its pods, else of their class, else that of ``train``.

    ``classes``: the PriorityClasses that exist. One that does not, and is not shipped either, counts as ``train``.
    """
    name = kai_class(workload)
    if not workload.labels.get(KAI_PRIORITY) and workload.priority is not None:
        return workload.priority
    found = classes.get(name, CLASSES.get(name))
    return CLASSES[DEFAULT_CLASS] if found is None else found


def kai_preemptible(workload: Workload, priority: int | None) -> bool:
    """What its label says, else whether its priority is below FIRM."""
    said = workload.labels.get(KAI_PREEMPTIBILITY, "")
    if said in PREEMPTIBILITY:
        return said == PREEMPTIBILITY[0]
    return (kai_priority(workload, {}) if priority is None else priority) < FIRM


def preemption_delay_ms(labels: Mapping[str, str]) -> int:
    """How long work waits before others may be suspended for it; 0 unless it says a time, and outside KAI queues."""
    said = labels.get(KAI_PREEMPTION_DELAY, "")
    return span_or(said, 0) if labels.get(KAI_QUEUE) else 0


def run_time_ms(labels: Mapping[str, str]) -> int:
    """How long a job declares to run, rounded up to few steps: jobs of one request and one step are refused together.

    Minutes up to an hour, five minutes up to six, half hours up to a day, then hours. 0 where it declares nothing that
    can be read.
    """
    declared = span_or(labels.get(RUN_TIME, ""), 0)
    step = HOUR_MS
    if declared <= HOUR_MS:
        step = MINUTE_MS
    elif declared <= 6 * HOUR_MS:
        step = 5 * MINUTE_MS
    elif declared <= DAY_MS:
        step = 30 * MINUTE_MS
    return -(-declared // step) * step


def left_by(at: int, run_ms: int) -> int:
    """Log time (ms) by which a job that takes its quota at ``at`` has left; 0 where it declares no run time."""
    return at + run_ms + AROUND_MS if run_ms else 0
