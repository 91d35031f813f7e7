"""Labels on workloads that quota knows: which quota it belongs to, and whether it may be preempted.

Both families count, the first before the second: ``quota.scheduling.alibabacloud.com/`` and
``quota.scheduling.koordinator.sh/``.
"""

from __future__ import annotations

from collections.abc import Mapping

_FAMILIES = ("quota.scheduling.alibabacloud.com", "quota.scheduling.koordinator.sh")
KEPT = tuple(f"{family}/{name}" for name in ("name", "preemptible") for family in _FAMILIES)
"""The labels that are kept of a workload."""


def quota_name(labels: Mapping[str, str]) -> str:
    """The bare name of the quota a workload asks for; empty when its namespace decides."""
    return next((labels[key] for family in _FAMILIES if labels.get(key := f"{family}/name")), "")


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Whether a workload may be suspended to give quota back; true unless a label says ``false``."""
    return all(labels.get(f"{family}/preemptible", "") != "false" for family in _FAMILIES)
