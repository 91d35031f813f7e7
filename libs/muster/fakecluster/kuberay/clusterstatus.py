"""The status of a RayCluster: counts, conditions, state. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.groups import hosts_of, replicas, rests
from muster.model.resources import Vector, add_into, format_quantity, parse_quantity, scaled

MAX_INT32 = 2147483647


def cluster_status(cluster: Obj, pods: tuple[Obj, ...], now: int, *, imagined: bool = False) -> Obj:
    """The status that describes a cluster with these pods; equal to the old one when nothing has changed.

    ``imagined``: all its pods run, though there are none.
    """
    old = cluster.get("status") or {}
    status = {**old, **_amounts(cluster, old), **_counts(cluster, pods)}
    heads = [pod for pod in pods if _node_type(pod) == "head"]
    status["head"] = _head(cluster, heads)
    status["endpoints"] = {key: str(port) for key, port in words.PORTS.items()}
    status["observedGeneration"] = cluster["metadata"]["generation"]
    everything = len(heads) == 1 and len(pods) == status["desiredWorkerReplicas"] + 1
    complete = imagined or (everything and all(_is_running(pod) for pod in pods))
    if imagined:
        desired = status["desiredWorkerReplicas"]
        status |= {"availableWorkerReplicas": desired, "readyWorkerReplicas": desired}
    conditions = _Conditions(old.get("conditions") or (), now)
    _suspension(cluster, old, pods, conditions)
    suspended = conditions.is_true(words.CLUSTER_SUSPENDED)
    if not suspended and not conditions.is_true(words.CLUSTER_SUSPENDING):
        head_runs = imagined or bool(heads and _is_running(heads[0]))
        _provisioning(conditions, head_exists=imagined or bool(heads), head_runs=head_runs, complete=complete)
    status["conditions"] = conditions.entries
    state = words.STATE_SUSPENDED if rests(cluster) and not pods else _state(old, complete=complete)
    if state:
        status["state"] = state
    else:
        status.pop("state", None)
    return _with_times(status, old, now)


def is_true(status: Obj, condition: str) -> bool:
    """Whether a status has the condition, and it is true."""
    return any(entry["type"] == condition and entry["status"] == "True" for entry in status.get("conditions") or ())


def _state(old: Obj, *, complete: bool) -> str:
    """``ready`` once all pods ran together; it stays as it was until then, also after a suspension."""
    return words.READY if complete else str(old.get("state", ""))


def _with_times(status: Obj, old: Obj, now: int) -> Obj:
    if status == old:
        return old
    state = status.get("state")
    if state and state != old.get("state"):
        status["stateTransitionTimes"] = {**(old.get("stateTransitionTimes") or {}), state: stamp(now)}
    status["lastUpdateTime"] = stamp(now)
    return status


def _suspension(cluster: Obj, old: Obj, pods: tuple[Obj, ...], conditions: _Conditions) -> None:
    """Suspending is over when no pod is left, not before, whatever the spec says meanwhile."""
    wanted = rests(cluster)
    if is_true(old, words.CLUSTER_SUSPENDING):
        if not pods:
            conditions.set(words.PROVISIONED, "False", "RayClusterPodsDeleted", "the cluster was suspended")
            conditions.set(words.CLUSTER_SUSPENDING, "False", "RayClusterSuspended")
            conditions.set(words.CLUSTER_SUSPENDED, "True", "RayClusterSuspended")
    elif is_true(old, words.CLUSTER_SUSPENDED):
        if not wanted:
            conditions.set(words.CLUSTER_SUSPENDED, "False", "UserRequestResume")
    elif wanted:
        conditions.set(words.CLUSTER_SUSPENDED, "False", "UserRequestSuspend")
        conditions.set(words.CLUSTER_SUSPENDING, "True", "UserRequestSuspend")


def _provisioning(conditions: _Conditions, *, head_exists: bool, head_runs: bool, complete: bool) -> None:
    if not head_exists:
        conditions.set(words.HEAD_POD_READY, "False", "HeadPodNotFound", "Head Pod not found")
    elif head_runs:
        conditions.set(words.HEAD_POD_READY, "True", "HeadPodRunningAndReady")
    else:
        conditions.set(words.HEAD_POD_READY, "False", "ContainersNotReady", "the head pod does not run yet")
    if conditions.is_true(words.PROVISIONED):
        return
    if complete:
        reason = "AllPodRunningAndReadyFirstTime"
        conditions.set(words.PROVISIONED, "True", reason, "All Ray Pods are ready for the first time")
    else:
        reason = "RayClusterPodsProvisioning"
        conditions.set(words.PROVISIONED, "False", reason, "RayCluster Pods are being provisioned for first time")


class _Conditions:
    """The conditions of a status, changed one by one; a transition time is set only when the status flips."""

    def __init__(self, entries: Iterable[Obj], now: int) -> None:
        self.entries: list[Obj] = list(entries)
        self._now = now

    def is_true(self, kind: str) -> bool:
        return any(entry["type"] == kind and entry["status"] == "True" for entry in self.entries)

    def set(self, kind: str, status: str, reason: str, message: str = "") -> None:
        entry = {"type": kind, "status": status, "reason": reason, "message": message}
        for place, condition in enumerate(self.entries):
            if condition["type"] == kind:
                same = condition["status"] == status
                entry["lastTransitionTime"] = condition["lastTransitionTime"] if same else stamp(self._now)
                self.entries[place] = entry
                return
        self.entries.append({**entry, "lastTransitionTime": stamp(self._now)})


def _counts(cluster: Obj, pods: tuple[Obj, ...]) -> Obj:
    """Pods, not replicas."""
    desired = lowest = highest = 0
    for group in cluster["spec"].get("workerGroupSpecs") or ():
        hosts = hosts_of(group)
        desired += replicas(group) * hosts
        lowest += group.get("minReplicas", 0) * hosts
        highest += group.get("maxReplicas", 0) * hosts
    workers = [pod for pod in pods if _node_type(pod) == "worker"]
    running = sum(1 for pod in workers if (pod.get("status") or {}).get("phase") == "Running")
    return {
        "desiredWorkerReplicas": desired,
        "minWorkerReplicas": lowest,
        "maxWorkerReplicas": min(highest, MAX_INT32),
        "availableWorkerReplicas": running,
        "readyWorkerReplicas": sum(1 for pod in workers if _is_running(pod)),
    }


def _amounts(cluster: Obj, old: Obj) -> Obj:
    """What the pods ask for in all, counted as KubeRay does: requests, else limits; replicas as written."""
    if old.get("observedGeneration") == cluster["metadata"]["generation"] and "desiredCPU" in old:
        return {}
    spec = cluster["spec"]
    total = _template_amounts(spec["headGroupSpec"])
    for group in spec.get("workerGroupSpecs") or ():
        if not group.get("suspend"):
            times = (group.get("replicas") or 0) * hosts_of(group)
            add_into(total, scaled(_template_amounts(group), times))
    gpus = sum(amount for name, amount in total.items() if name.endswith("/gpu"))
    return {
        "desiredCPU": format_quantity(total.get("cpu", 0), "cpu"),
        "desiredMemory": format_quantity(total.get("memory", 0), "memory"),
        "desiredGPU": format_quantity(gpus, "nvidia.com/gpu"),
        "desiredTPU": format_quantity(total.get("google.com/tpu", 0), "google.com/tpu"),
    }


def _template_amounts(group: Obj) -> Vector:
    total: Vector = {}
    for container in group["template"]["spec"]["containers"]:
        resources = container.get("resources") or {}
        for name, text in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            total[name] = total.get(name, 0) + parse_quantity(str(text), name)
    return total


def _head(cluster: Obj, heads: list[Obj]) -> Obj:
    head = {"serviceName": words.head_service(cluster)}
    if heads:
        head["podName"] = heads[0]["metadata"]["name"]
        address = (heads[0].get("status") or {}).get("podIP")
        if address:
            head["podIP"] = address
    return head


def _node_type(pod: Obj) -> str:
    return str(pod["metadata"]["labels"].get(words.NODE_TYPE, ""))


def _is_running(pod: Obj) -> bool:
    """Running and ready, as the kubelet says."""
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and any(
        entry["type"] == "Ready" and entry["status"] == "True" for entry in status.get("conditions") or ()
    )
