"""A RayCluster: from its observed objects to the operator's next writes. Pure.

Pods first, then the status of the observed pods; the next look describes the results.
"""

from __future__ import annotations

from msgspec import Struct

from muster.fakecluster.apiserver.names import derived_suffix, moment
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.clusterstatus import cluster_status, is_true
from muster.fakecluster.kuberay.events import warning
from muster.fakecluster.kuberay.groups import config_hash, hosts_of, replicas, rests
from muster.fakecluster.kuberay.raypods import head_pod, surroundings, worker_pod
from muster.fakecluster.kuberay.settings import OperatorSettings
from muster.fakecluster.kuberay.validation import raycluster_problem
from muster.fakecluster.operations import ApiOperation, Create, DeleteObject, OperationPlan, Replace
from muster.model.api import PODS, RAYCLUSTERS

OVER = ("Succeeded", "Failed")


class RayClusterSeen(Struct, frozen=True):
    """A RayCluster and its pods, oldest first."""

    cluster: Obj
    pods: tuple[Obj, ...] = ()


def reconcile_raycluster(seen: RayClusterSeen, now: int, settings: OperatorSettings) -> OperationPlan:
    """What the operator does about a RayCluster at ``now`` (ms)."""
    cluster = seen.cluster
    if cluster["spec"].get("managedBy") not in (None, words.MANAGER):
        return OperationPlan()
    if cluster["metadata"].get("deletionTimestamp"):
        return OperationPlan(_let_go(cluster, now))
    problem = raycluster_problem(cluster)
    if problem:
        # From here on the operator does not look at the cluster at all until its spec is changed.
        return OperationPlan((warning(cluster, "InvalidRayClusterSpec", problem, now),))
    old = cluster.get("status") or {}
    operations: list[ApiOperation] = []
    if settings.services and "endpoints" not in old:
        operations.extend(surroundings(cluster))
    left_ms = 0
    if settings.pods:
        operations.extend(_pod_operations(cluster, seen.pods, settings))
        status = cluster_status(cluster, seen.pods, now)
    else:
        left_ms = max(moment(cluster["metadata"]["creationTimestamp"]) + settings.ready_ms - now, 0)
        status = cluster_status(cluster, (), now, imagined=not left_ms)
    if status != old:
        operations.append(Replace(RAYCLUSTERS, {**cluster, "status": status}, "status"))
    return OperationPlan(tuple(operations), left_ms or None)


def _let_go(cluster: Obj, now: int) -> tuple[ApiOperation, ...]:
    """What its autoscaler deletes for idleness waits for the operator to say so."""
    finalizers = cluster["metadata"].get("finalizers") or []
    if words.IDLE_FINALIZER not in finalizers:
        return ()
    left = [finalizer for finalizer in finalizers if finalizer != words.IDLE_FINALIZER]
    gone = {**cluster, "metadata": {**cluster["metadata"], "finalizers": left}}
    message = "the cluster was idle for the time of idleTerminationOptions"
    return warning(cluster, "DeletedIdleRayCluster", message, now), Replace(RAYCLUSTERS, gone)


def _pod_operations(cluster: Obj, pods: tuple[Obj, ...], settings: OperatorSettings) -> list[ApiOperation]:
    status = cluster.get("status") or {}
    if is_true(status, words.CLUSTER_SUSPENDING):
        return [_delete(pod) for pod in pods if not _going(pod)]
    if is_true(status, words.CLUSTER_SUSPENDED) or rests(cluster):
        return []
    lost = [pod for pod in pods if (pod.get("status") or {}).get("phase") in OVER]
    if lost:
        # Nothing is made in the pass that removes a broken pod.
        return [_delete(pod) for pod in lost if not _going(pod)]
    heads = [pod for pod in pods if pod["metadata"]["labels"].get(words.NODE_TYPE) == "head"]
    if heads and _made_of_another(cluster, heads[0]):
        return [_delete(pod) for pod in pods if not _going(pod)]
    operations: list[ApiOperation] = []
    if not heads and _may_make_head(cluster, status):
        operations.append(Create(PODS, cluster["metadata"]["namespace"], head_pod(cluster, settings)))
    for group in cluster["spec"].get("workerGroupSpecs") or ():
        operations.extend(_group_operations(cluster, group, pods, settings))
    return operations


def _made_of_another(cluster: Obj, head: Obj) -> bool:
    """All pods are replaced where the spec says so, and has changed since the head was made."""
    made_of = (head["metadata"].get("annotations") or {}).get(words.RECREATE_HASH)
    strategy = (cluster["spec"].get("upgradeStrategy") or {}).get("type")
    return strategy == "Recreate" and made_of is not None and made_of != config_hash(cluster["spec"])


def _may_make_head(cluster: Obj, status: Obj) -> bool:
    """The head of a RayJob that submits inside it is not replaced once it was up."""
    annotations = cluster["metadata"].get("annotations") or {}
    return annotations.get(words.NO_HEAD_RESTART) != "true" or not is_true(status, words.PROVISIONED)


def _group_operations(
    cluster: Obj, group: Obj, pods: tuple[Obj, ...], settings: OperatorSettings
) -> list[ApiOperation]:
    """Bring a worker group to its size. Leaving pods still count until they are gone."""
    namespace = cluster["metadata"]["namespace"]
    workers = [
        pod
        for pod in pods
        if pod["metadata"]["labels"].get(words.GROUP) == group["groupName"]
        and pod["metadata"]["labels"].get(words.NODE_TYPE) == "worker"
    ]
    hosts = hosts_of(group)
    if hosts > 1:
        return _multi_host_operations(cluster, group, workers, hosts, settings)
    named = tuple((group.get("scaleStrategy") or {}).get("workersToDelete") or ())
    # Whatever pod has the name is deleted, every time: the operator does not check that it is a worker of this group.
    going = {pod["metadata"]["name"] for pod in workers if _going(pod)}
    operations: list[ApiOperation] = [DeleteObject(PODS, namespace, name) for name in named if name not in going]
    left = [pod for pod in workers if pod["metadata"]["name"] not in named]
    missing = replicas(group) - len(left)
    if missing > 0:
        for index in _free_indexes(left, missing):
            body = worker_pod(cluster, group, settings, {words.REPLICA_INDEX: str(index)})
            operations.append(Create(PODS, namespace, body))
    elif missing < 0 and not cluster["spec"].get("enableInTreeAutoscaling"):
        operations.extend(_delete(pod) for pod in left[:-missing] if not _going(pod))
    return operations


def _multi_host_operations(
    cluster: Obj, group: Obj, workers: list[Obj], hosts: int, settings: OperatorSettings
) -> list[ApiOperation]:
    """The hosts of a replica come and go together; a replica that lacks one goes."""
    named = set((group.get("scaleStrategy") or {}).get("workersToDelete") or ())
    by_replica: dict[str, list[Obj]] = {}
    for pod in workers:
        by_replica.setdefault(pod["metadata"]["labels"].get(words.REPLICA_NAME, ""), []).append(pod)
    doomed: list[Obj] = []
    whole: list[list[Obj]] = []
    for members in by_replica.values():
        ends = any(pod["metadata"]["name"] in named or _going(pod) for pod in members)
        if ends or len(members) < hosts:
            doomed.extend(pod for pod in members if not _going(pod))
        else:
            whole.append(members)
    if doomed:
        return [_delete(pod) for pod in doomed]
    surplus = len(whole) - replicas(group)
    if surplus > 0 and not cluster["spec"].get("enableInTreeAutoscaling"):
        return [_delete(pod) for members in whole[:surplus] for pod in members]
    missing = replicas(group) - len(by_replica)
    operations: list[ApiOperation] = []
    for index in _free_indexes([members[0] for members in by_replica.values()], missing):
        serial = cluster["metadata"]["resourceVersion"]
        name = f"{group['groupName']}-{derived_suffix(cluster['metadata']['uid'], group['groupName'], index, serial)}"
        for host in range(hosts):
            marks = {
                words.REPLICA_NAME: name,
                words.REPLICA_INDEX: str(index),
                words.HOST_INDEX: str(host),
            }
            body = worker_pod(cluster, group, settings, marks)
            operations.append(Create(PODS, cluster["metadata"]["namespace"], body))
    return operations


def _free_indexes(replicas_there: list[Obj], count: int) -> list[int]:
    """The lowest indexes that no replica has."""
    taken = {pod["metadata"]["labels"].get(words.REPLICA_INDEX, "") for pod in replicas_there}
    free = (index for index in range(len(taken) + max(count, 0)) if str(index) not in taken)
    return [next(free) for _ in range(max(count, 0))]


def _delete(pod: Obj) -> DeleteObject:
    meta = pod["metadata"]
    return DeleteObject(PODS, meta["namespace"], meta["name"], meta["uid"])


def _going(pod: Obj) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
