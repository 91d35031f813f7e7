"""What KAI's rules say of one workload: its priority, and whether it may be preempted."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.objects.labels import KAI_PREEMPTIBILITY, KAI_PREEMPTION_DELAY, KAI_PRIORITY, KAI_QUEUE
from muster.core.quota.rules import RuleError, span_ms
from muster.model.workload import Workload

CLASSES: Mapping[str, int] = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The PriorityClasses that are shipped (deploy/kai): in force under these names also where they are not applied."""
DEFAULT_CLASS = "train"
FIRM = 100
"""From this priority on, work is not preemptible, and stays within its quota."""
PREEMPTIBILITY = ("preemptible", "non-preemptible")


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
    if not said or not labels.get(KAI_QUEUE):
        return 0
    try:
        return span_ms(said)
    except RuleError:
        return 0
