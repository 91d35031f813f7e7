"""Labels on workloads that quota knows: which quota it belongs to, and whether it may be preempted.

Both families count, the first before the second: ``quota.scheduling.alibabacloud.com/`` and
``quota.scheduling.koordinator.sh/``.
"""

from __future__ import annotations

from collections.abc import Mapping

_FAMILIES = ("quota.scheduling.alibabacloud.com", "quota.scheduling.koordinator.sh")
_NAMES = tuple(f"{family}/name" for family in _FAMILIES)
_PREEMPTIBLE = tuple(f"{family}/preemptible" for family in _FAMILIES)
KEPT = (*_NAMES, *_PREEMPTIBLE)
"""The labels that are kept of a workload."""


def quota_name(labels: Mapping[str, str]) -> str:
    """The bare name of the quota a workload asks for; empty when its namespace decides."""
    if not labels:
        return ""
    return next((labels[key] for key in _NAMES if labels.get(key)), "")


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Whether a workload may be suspended to give quota back; true unless a label says ``false``."""
    return not labels or all(labels.get(key, "") != "false" for key in _PREEMPTIBLE)
