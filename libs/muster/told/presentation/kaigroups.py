"""The PodGroup of KAI Scheduler that shows a workload of a KAI queue: parts, requests of each part, why the workload
waits.

Muster writes the PodGroup for readers and reads nothing from the PodGroup. The workload owns the PodGroup, so both are
deleted together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from muster.core.objects.kaiqueue import pod_group_name
from muster.core.objects.meta import KAI_PREEMPTIBILITY, KAI_PREEMPTION_DELAY, KAI_QUEUE, KAI_STALENESS, digest, rfc3339
from muster.core.quota.demand import PREEMPTIBILITY, kai_class
from muster.core.quota.ledger.quotaledger import leaf_of
from muster.core.workloads.registry import is_job
from muster.model import api
from muster.model.quota import KAI_ROOT
from muster.model.resources import texts
from muster.model.workload import Workload, least
from muster.told.codes.codetable import CODES
from muster.told.codes.values import NotQueued
from muster.told.presentation.desired import Body, DesiredObject, labels_and_texts, owner_of, shown_text
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.wording import jobs

_LABEL = re.compile(r"[^a-z0-9]+")
_OF_QUEUES = ("queue_label_missing", "queue_unknown", "two_quotas")


def pod_group(state: ReadState, uid: str) -> DesiredObject | None:
    """The PodGroup of a workload. None for a workload that belongs to no KAI queue."""
    workload = state.queues.workloads.get(uid)
    if (
        workload is None
        or workload.deleting
        or not is_job(workload.ref.kind)
        or KAI_ROOT not in state.queues.ledger.trees
    ):
        return None
    queue, reason, message = _waits(state, workload)
    if queue is None:
        return None
    spec, charge = _spec(workload, queue), state.queues.ledger.charges.get(uid)
    labels, free = labels_and_texts({KAI_QUEUE: queue} if queue else {})
    stamp = rfc3339(state.now // 1000 * 1000)
    condition = {
        "type": "UnschedulableOnNodePool",
        "status": "True",
        "nodePool": "default",
        "reason": reason,
        "message": message,
        "reasons": [{"reason": reason, "message": message}],
        "lastTransitionTime": stamp,
    }
    asked = texts(state.queues.demand_of(workload).request)
    charged = texts(charge.request) if charge is not None else dict.fromkeys(asked, "0")
    firm = charge is not None and not charge.preemptible
    status: Body = {
        "schedulingConditions": [condition] if reason else [],
        "resourcesStatus": {
            "requested": asked,
            "allocated": charged,
            "allocatedNonPreemptible": charged if firm else dict.fromkeys(charged, "0"),
        },
    }
    return DesiredObject(
        key=f"kaigroup/{uid}",
        resource=api.KAI_POD_GROUPS,
        namespace=workload.ref.namespace,
        name=pod_group_name(workload.ref),
        seen=None,
        shown=digest((spec, reason, message, status["resourcesStatus"])),
        metadata={"ownerReferences": [owner_of(workload)], "labels": labels, "annotations": free},
        spec=spec,
        status=status,
    )


def key_of(state: ReadState, metadata: Mapping[str, Any]) -> str:
    """The key of the PodGroup of a known workload; empty for other PodGroups."""
    owners = [owner.get("uid", "") for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    uid = owners[0] if owners else ""
    workload = state.queues.workloads.get(uid)
    named = workload is not None and metadata.get("name") == pod_group_name(workload.ref)
    return f"kaigroup/{uid}" if named else ""


def _waits(state: ReadState, workload: Workload) -> tuple[str | None, str, str]:
    """(the queue, empty where the workload names none; the reason and the sentence of a wait). None as queue: not
    KAI's.
    """
    charge = state.queues.ledger.charges.get(workload.ref.uid)
    leaf = charge.queue if charge is not None else leaf_of(state.queues.ledger, workload) or ""
    named = workload.labels.get(KAI_QUEUE, "")
    if leaf.startswith(f"{KAI_ROOT}/"):
        status = job_status(state, workload.ref.uid)
        if status.phase not in ("waiting", "refused"):
            return leaf.rpartition("/")[2], "", ""
        told = jobs.reason(status)
        return leaf.rpartition("/")[2], CODES[status.code].kai or told.code, shown_text(told.text)
    status = job_status(state, workload.ref.uid)
    if leaf or not isinstance(status.values, NotQueued) or status.values.refusal.reason not in _OF_QUEUES:
        return None, "", ""
    told = jobs.reason(status)
    return named, told.code, shown_text(told.text)


def _spec(workload: Workload, queue: str) -> Body:
    labels = workload.labels
    names = _parts([pods.name for pods in workload.pod_sets])
    groups = [{"name": name, "minMember": least((pods,))} for name, pods in zip(names, workload.pod_sets, strict=True)]
    spec: dict[str, Any] = {
        "minMember": sum(group["minMember"] for group in groups),
        "priorityClassName": kai_class(workload),
        "subGroups": groups if len(groups) > 1 else [],
        **({"queue": queue} if queue else {}),
        **({"preemptionDelay": labels[KAI_PREEMPTION_DELAY]} if KAI_PREEMPTION_DELAY in labels else {}),
        **({"stalenessGracePeriod": labels[KAI_STALENESS]} if KAI_STALENESS in labels else {}),
    }
    if labels.get(KAI_PREEMPTIBILITY) in PREEMPTIBILITY:
        spec["preemptibility"] = labels[KAI_PREEMPTIBILITY]
    levels = {
        "requiredTopologyLevel": workload.topology.required,
        "preferredTopologyLevel": workload.topology.preferred,
    }
    constraint = {key: level for key, level in levels.items() if level}
    return spec | ({"topologyConstraint": constraint} if constraint else {})


def _parts(names: Sequence[str]) -> list[str]:
    """The names of pod sets in a PodGroup, all different; the head has KAI's name."""
    parts: list[str] = []
    for name in names:
        wanted = "headgroup" if name == "head" else _LABEL.sub("-", name).strip("-")[:63].strip("-") or "main"
        part, number = wanted, 1
        while part in parts:
            number += 1
            part = f"{wanted[:56]}-{number}"
        parts.append(part)
    return parts
