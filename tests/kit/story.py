"""Objects of the document's story, as a user would write them: the tree, and RayJobs of one head and two workers."""

from __future__ import annotations

from typing import Any

from kit import facts
from muster.events.facts import TreeNodeSpec

Obj = dict[str, Any]

RAY_IMAGE = "rayproject/ray:2.36.1"


def quota_tree(
    root: TreeNodeSpec | None = None, *, name: str = "elasticquotatree", namespace: str = "kube-system"
) -> Obj:
    """An ElasticQuotaTree object; T0 unless said."""
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"root": _node(root or facts.t0())},
    }


def _node(spec: TreeNodeSpec) -> Obj:
    node: Obj = {"name": spec.name, "min": spec.min, "max": spec.max}
    if spec.namespaces:
        node["namespaces"] = list(spec.namespaces)
    if spec.attributes:
        node["attributes"] = dict(spec.attributes)
    if spec.children:
        node["children"] = [_node(child) for child in spec.children]
    return node


def template(name: str, cpu: str = "4", memory: str = "4G", gpu: str = "") -> Obj:
    """A pod template with one container."""
    amounts = {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": gpu} if gpu else {})
    container = {"name": name, "image": RAY_IMAGE, "resources": {"limits": amounts, "requests": amounts}}
    return {"spec": {"containers": [container]}}


def rayjob(
    name: str = "",
    namespace: str = "video",
    *,
    runtime: str = "5s",
    cpu: str = "4",
    memory: str = "4G",
    replicas: int = 2,
    ttl_s: int = 10,
    priority_class: str = "",
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Obj:
    """The document's RayJob: suspended, head 4 cpu / 4G, two workers of the same; 12 cpu and 12G in all."""
    head = template("ray-head", cpu, memory)
    if priority_class:
        head["spec"]["priorityClassName"] = priority_class
    metadata: Obj = {"name": name} if name else {"generateName": "rayjob-video-"}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            **metadata,
            "namespace": namespace,
            "labels": {"job-type": namespace},
            "annotations": {"sim.muster.dev/runtime": runtime, **(annotations or {})},
        },
        "spec": {
            "entrypoint": "python /home/ray/samples/sample_code.py",
            "ttlSecondsAfterFinished": ttl_s,
            "shutdownAfterJobFinishes": True,
            "suspend": True,
            "rayClusterSpec": {
                "rayVersion": "2.36.1",
                "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": head},
                "workerGroupSpecs": [
                    {
                        "replicas": replicas,
                        "groupName": "small-group",
                        "rayStartParams": {},
                        "template": template("ray-worker", cpu, memory),
                    }
                ],
            },
            **spec,
        },
    }
