"""Builders of facts: what a watcher would report, in as few words as a test needs."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec

from muster.core.objects.meta import UnreadableError  # noqa: F401  (re-exported for tests)
from muster.core.workloads.common import basis_of
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    PodGone,
    PodObserved,
    QuotaTreeGone,
    QuotaTreeObserved,
    TreeNodeSpec,
    WorkloadGone,
    WorkloadObserved,
)
from muster.model.keys import Ref
from muster.model.resources import Vector, parse_quantity
from muster.model.workload import ChildState, PodSet, PodState, Workload

_rv = count(1000)


def next_rv() -> int:
    """A resourceVersion larger than every one before."""
    return next(_rv)


def vector(**texts: str | int) -> Vector:
    """``vector(cpu=12, memory="12G", gpu=2)`` in base units; gpu stands for nvidia.com/gpu."""
    named = {"nvidia.com/gpu" if name == "gpu" else name: str(text) for name, text in texts.items()}
    return {name: parse_quantity(text, name) for name, text in sorted(named.items())}


def node(
    name: str,
    min: dict[str, Any] | None = None,
    max: dict[str, Any] | None = None,
    namespaces: tuple[str, ...] = (),
    children: tuple[TreeNodeSpec, ...] = (),
    **attributes: str,
) -> TreeNodeSpec:
    """A node of a tree; ``gpu`` stands for nvidia.com/gpu, ``weight`` for the attribute muster.dev/weight."""
    return TreeNodeSpec(
        name=name,
        min=_texts(min or {}),
        max=_texts(max or {}),
        namespaces=namespaces,
        attributes={f"muster.dev/{key}": text for key, text in attributes.items()},
        children=children,
    )


def _texts(amounts: dict[str, Any]) -> dict[str, str]:
    return {("nvidia.com/gpu" if name == "gpu" else name): str(text) for name, text in amounts.items()}


def amounts(cpu: int, memory: str, gpu: int) -> dict[str, Any]:
    return {"cpu": cpu, "memory": memory, "gpu": gpu}


def t0() -> TreeNodeSpec:
    """The tree T0: algorithm {video, text, interns}, devops, infrastructure {devops}; namespaces as the leaves."""
    none, eight = amounts(0, "0", 0), amounts(8, "8Gi", 0)
    fourteen = amounts(14, "14Gi", 4)
    algorithm = (
        node("video", amounts(12, "12Gi", 2), fourteen, ("video",)),
        node("text", amounts(8, "8Gi", 2), fourteen, ("text",)),
        node("intern-text", none, fourteen, ("intern-text",)),
        node("intern-video", none, fourteen, ("intern-video",)),
    )
    whole = amounts(40, "40Gi", 16)
    return node(
        "root",
        whole,
        whole,
        children=(
            node("algorithm", amounts(24, "24Gi", 4), whole, children=algorithm),
            node("devops", amounts(4, "4Gi", 0), eight, ("devops",)),
            node(
                "infrastructure",
                amounts(8, "8Gi", 0),
                amounts(16, "16Gi", 0),
                children=(node("devops", amounts(4, "4Gi", 0), eight, ("infra-devops",)),),
            ),
        ),
    )


def tree(
    root: TreeNodeSpec | None = None,
    *,
    name: str = "elasticquotatree",
    created: int = 0,
    profile: str = "",
    rules: dict[str, str] | None = None,
) -> QuotaTreeObserved:
    """An ElasticQuotaTree in kube-system; T0 unless said. ``rules``: its annotations, without muster.dev/."""
    ref = Ref("ElasticQuotaTree", "kube-system", name, f"tree-{name}")
    return QuotaTreeObserved(
        ref=ref, rv=next_rv(), created=created, root=root or t0(), profile=profile, rules=rules or {}
    )


def tree_gone(name: str = "elasticquotatree") -> QuotaTreeGone:
    return QuotaTreeGone(ref=Ref("ElasticQuotaTree", "kube-system", name, f"tree-{name}"), rv=next_rv())


def job_ref(name: str, namespace: str = "video") -> Ref:
    return Ref("RayJob", namespace, name, f"uid-{namespace}-{name}")


def job(name: str, namespace: str = "video", **changes: Any) -> Workload:
    """A suspended RayJob of 12 cpu and 12G, as the document's; ``changes``: fields of Workload, or cpu/memory/gpu."""
    asked = {key: changes.pop(key) for key in ("cpu", "memory", "gpu") if key in changes}
    need = vector(**asked) if asked else vector(cpu=12, memory="12G")
    fields: dict[str, Any] = {
        "ref": job_ref(name, namespace),
        "api_version": "ray.io/v1",
        "rv": next_rv(),
        "generation": 1,
        "created": 0,
        "phase": "waiting",
        "suspended": True,
        "need": {"ack": need, "full": need},
        "pod_sets": (
            PodSet("head", 1, vector(cpu=4, memory="4G")),
            PodSet("small-group", 2, vector(cpu=4, memory="4G")),
        ),
        "settled": True,
    }
    return _based(Workload(**(fields | changes)))


def seen(workload: Workload, **changes: Any) -> WorkloadObserved:
    """The fact that a workload looks like this now, under a newer resourceVersion when anything changes."""
    if changes:
        changes.setdefault("rv", next_rv())
    return WorkloadObserved(workload=_based(msgspec.structs.replace(workload, **changes)))


def _based(workload: Workload) -> Workload:
    """With the digest that its adapter would give it."""
    basis = basis_of(workload.need, workload.pod_sets, workload.auxiliary, workload.refusal, workload.labels)
    return msgspec.structs.replace(workload, basis=basis)


def gone(name: str, namespace: str = "video") -> WorkloadGone:
    return WorkloadGone(ref=job_ref(name, namespace), rv=next_rv())


def cluster_ref(name: str, namespace: str = "video", run: int = 1) -> Ref:
    """The RayCluster of the ``run``-th start of a RayJob."""
    return Ref("RayCluster", namespace, f"{name}-raycluster-{run}", f"uid-{namespace}-{name}-raycluster-{run}")


def cluster(name: str, namespace: str = "video", run: int = 1, asks: Vector | None = None) -> ChildObserved:
    """The RayCluster of a RayJob exists; its spec asks for so much, if it says."""
    owner = job_ref(name, namespace).uid
    ref = cluster_ref(name, namespace, run)
    state = ChildState(ref=ref, rv=next_rv(), owner_uid=owner, owner_kind="RayJob", asks=asks or {})
    return ChildObserved(child=state)


def cluster_gone(name: str, namespace: str = "video", run: int = 1) -> ChildGone:
    return ChildGone(ref=cluster_ref(name, namespace, run), rv=next_rv())


def pod(name: str, number: int = 0, namespace: str = "video", **changes: Any) -> PodObserved:
    """A pod of the RayCluster of a RayJob."""
    fields = {"owner_uid": cluster_ref(name, namespace).uid, "running": True} | changes
    ref = Ref("Pod", namespace, f"{name}-{number}", f"uid-{namespace}-{name}-pod-{number}")
    return PodObserved(pod=PodState(ref=ref, rv=next_rv(), **fields))


def pod_gone(name: str, number: int = 0, namespace: str = "video") -> PodGone:
    ref = Ref("Pod", namespace, f"{name}-{number}", f"uid-{namespace}-{name}-pod-{number}")
    return PodGone(ref=ref, rv=next_rv())
