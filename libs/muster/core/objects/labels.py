"""Labels on workloads that quota knows: which quota it belongs to, and whether it may be preempted.

Both families count, the first before the second: ``quota.scheduling.alibabacloud.com/`` and
``quota.scheduling.koordinator.sh/``.
"""

from __future__ import annotations

from collections.abc import Mapping

_FAMILIES = ("quota.scheduling.alibabacloud.com", "quota.scheduling.koordinator.sh")
_NAMES = tuple(f"{family}/name" for family in _FAMILIES)
QUOTA_NAME = _NAMES[0]
"""Label that names a quota."""
_PREEMPTIBLE = tuple(f"{family}/preemptible" for family in _FAMILIES)
KAI_QUEUE = "kai.scheduler/queue"
"""Label that names a queue of KAI Scheduler."""
KAI_PRIORITY = "priorityClassName"
"""Label on a workload of such a queue: its PriorityClass, before what its pods say."""
KAI_PREEMPTIBILITY = "kai.scheduler/preemptibility"
KAI_PREEMPTION_DELAY = "kai.scheduler/preemption-delay"
"""Label or annotation: how long work waits before others may be suspended for it."""
KAI_STALENESS = "kai.scheduler/staleness-grace-period"
"""Label or annotation: how long a gang may run with less than its minimum; negative: for ever."""
RAY_NODE, RAY_CLUSTER, RAY_GROUP = "ray.io/is-ray-node", "ray.io/cluster", "ray.io/group"
RAY_NODE_TYPE, RAY_HEAD, RAY_WORKER = "ray.io/node-type", "head", "worker"
"""Labels that KubeRay gives its pods, and the values of the last one."""
RAY_PRIORITY = "ray.io/priority-class-name"
"""Label on what KubeRay runs: the PriorityClass of its gang, before what its pods say."""
RECLAIM_GRACE = "muster.dev/reclaim-grace"
"""How long the job waits for the quota it is owed before others are evicted for it."""
RUN_TIME = "muster.dev/run-time"
"""How long the job runs at most, as its owner declares: from when its quota is reserved until it has left."""
TIMES = (KAI_PREEMPTION_DELAY, KAI_STALENESS, RECLAIM_GRACE, RUN_TIME)
KAI_OF_PODS = (KAI_QUEUE, KAI_PRIORITY, KAI_PREEMPTIBILITY)
"""Labels that count on a pod template where the workload has none."""
KEPT = (*_NAMES, *_PREEMPTIBLE, KAI_QUEUE, KAI_PRIORITY, KAI_PREEMPTIBILITY)
"""The labels that are kept of a workload."""
KAI = "kai:"
"""In front of the queue that a workload asks for: its name, and after a slash the quota it names as well."""


def quota_name(labels: Mapping[str, str]) -> str:
    """The bare name of the quota a workload asks for, or KAI and a queue; empty when its namespace decides."""
    if not labels:
        return ""
    named = next(filter(None, map(labels.get, _NAMES)), "")
    queue = labels.get(KAI_QUEUE, "")
    if not queue:
        return named
    return f"{KAI}{queue}/{named}" if named else KAI + queue


def queue_and_quota(named: str) -> tuple[str, str]:
    """(the queue of KAI Scheduler, the quota) that ``quota_name`` found, empty where there is none."""
    if not named.startswith(KAI):
        return "", named
    queue, _, quota = named[len(KAI) :].partition("/")
    return queue, quota


def is_ray_head(labels: Mapping[str, str]) -> bool:
    """Whether these are the labels of the head of a Ray cluster."""
    return labels.get(RAY_NODE_TYPE) == RAY_HEAD


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Whether a workload may be suspended to release quota; true unless a label says ``false``."""
    return not labels or "false" not in map(labels.get, _PREEMPTIBLE)
