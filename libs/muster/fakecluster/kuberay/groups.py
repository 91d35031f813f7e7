"""The size of a worker group, and whether its cluster is to have pods at all."""

from __future__ import annotations

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
    """Whether the spec of a cluster wants no pods: its owner says so, or its autoscaler, since nothing uses it."""
    return bool(cluster["spec"].get("suspend") or cluster["spec"].get("idleSuspend"))
