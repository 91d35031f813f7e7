"""The deletions after the end of a RayJob: cluster, workers, the RayJob itself, and when.

Pure. Of three settings the first present setting counts: deletion rules, the older onSuccess and onFailure policies,
the oldest flag shutdownAfterJobFinishes. Without any setting the cluster stays up.
"""

from __future__ import annotations

from muster.fakecluster.apiserver.names import moment
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import words
from muster.fakecluster.operations import ApiOperation, DeleteObject, Replace
from muster.model.api import RAYCLUSTERS, RAYJOBS

_MOST_DESTRUCTIVE_FIRST = ("DeleteSelf", "DeleteCluster", "DeleteWorkers")

Due = tuple[list[ApiOperation], int | None]
"""(what to do now, when to look again)."""


def deletions_due(job: Obj, cluster: Obj | None, now: int) -> Due:
    """What of a finished RayJob is to be deleted now, and when more will be."""
    spec, status = job["spec"], job["status"]
    ended = moment(status["endTime"])
    strategy = spec.get("deletionStrategy")
    ttl_at = ended + spec.get("ttlSecondsAfterFinished", 0) * 1000
    if strategy is not None and strategy.get("deletionRules") is not None:
        return _by_rules(job, cluster, ended, now)
    if strategy is not None:
        on = {words.JOB_SUCCEEDED: "onSuccess", words.JOB_FAILED: "onFailure"}.get(status.get("jobStatus", ""), "")
        policy = (strategy.get(on) or {}).get("policy", "DeleteNone")
    else:
        policy = "DeleteCluster" if spec.get("shutdownAfterJobFinishes") else "DeleteNone"
    if policy == "DeleteNone" or _is_done(policy, job, cluster):
        return [], None
    return ([], ttl_at) if now < ttl_at else (_carry_out(policy, job, cluster), None)


def _by_rules(job: Obj, cluster: Obj | None, ended: int, now: int) -> Due:
    """Of all overdue rules the most destructive is carried out; look again for the next one."""
    overdue: list[str] = []
    again_at: int | None = None
    for rule in job["spec"]["deletionStrategy"]["deletionRules"]:
        condition = rule["condition"]
        fields = [field for field in ("jobStatus", "jobDeploymentStatus") if condition.get(field)]
        if any(condition[field] != job["status"].get(field) for field in fields):
            continue
        at = ended + condition.get("ttlSeconds", 0) * 1000
        if now < at:
            again_at = at if again_at is None else min(again_at, at)
        elif not _is_done(rule["policy"], job, cluster):
            overdue.append(rule["policy"])
    for policy in _MOST_DESTRUCTIVE_FIRST:
        if policy in overdue:
            return _carry_out(policy, job, cluster), again_at
    return [], again_at


def _is_done(policy: str, job: Obj, cluster: Obj | None) -> bool:
    if policy == "DeleteSelf":
        return bool(job["metadata"].get("deletionTimestamp"))
    if cluster is None or cluster["metadata"].get("deletionTimestamp") or policy == "DeleteNone":
        return True
    groups = cluster["spec"].get("workerGroupSpecs") or ()
    return policy == "DeleteWorkers" and all(group.get("suspend") for group in groups)


def _carry_out(policy: str, job: Obj, cluster: Obj | None) -> list[ApiOperation]:
    if policy == "DeleteSelf":
        meta = job["metadata"]
        return [DeleteObject(RAYJOBS, meta["namespace"], meta["name"], meta["uid"])]
    assert cluster is not None, f"policy {policy} is done when there is no cluster"
    if policy == "DeleteCluster":
        meta = cluster["metadata"]
        return [DeleteObject(RAYCLUSTERS, meta["namespace"], meta["name"], meta["uid"])]
    groups = [{**group, "suspend": True} for group in cluster["spec"].get("workerGroupSpecs") or ()]
    return [Replace(RAYCLUSTERS, {**cluster, "spec": {**cluster["spec"], "workerGroupSpecs": groups}})]
