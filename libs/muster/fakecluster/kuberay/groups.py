"""The size of a worker group, the need of a cluster for pods, and the changes of a spec that need new pods."""

from __future__ import annotations

from typing import Any

from muster.fakecluster.apiserver.names import derived_suffix
from muster.fakecluster.apiserver.status import Obj


def replicas(group: Obj) -> int:
    """How many replicas a worker group is to have: none while it is suspended."""
    if group.get("suspend"):
        return 0
    lowest, highest = group.get("minReplicas", 0), group.get("maxReplicas", 0)
    wanted = group.get("replicas")
    return int(max(lowest, min(lowest if wanted is None else wanted, highest)))


def hosts_of(group: Obj) -> int:
    """How many pods make one replica."""
    return max(int(group.get("numOfHosts", 1)), 1)


def rests(cluster: Obj) -> bool:
    """Whether the spec of a cluster wants no pods: by its owner, or by its autoscaler without any use."""
    return bool(cluster["spec"].get("suspend") or cluster["spec"].get("idleSuspend"))


SCALED = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")
"""What of a worker group changes in place."""


def config_hash(spec: Obj, groups: int | None = None) -> str:
    """A hash of the part of a cluster's spec that makes its pods; ``groups``: of the first groups only."""
    told: list[Any] = [
        {key: value for key, value in group.items() if key not in SCALED}
        for group in (spec.get("workerGroupSpecs") or ())[:groups]
    ]
    kept = {key: value for key, value in spec.items() if key not in ("suspend", "upgradeStrategy")}
    return derived_suffix("hash", repr({**kept, "workerGroupSpecs": told}))
