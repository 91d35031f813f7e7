"""What a pod of the simulated cluster asks of a node, and what stage it is in. Pure."""

from __future__ import annotations

from muster.fakecluster.apiserver.status import Obj
from muster.model.resources import Vector, add_into, highest, parse_quantity

OVER = ("Succeeded", "Failed")


def pod_request(pod: Obj) -> Vector:
    """The request of the running pod: the sum of its containers, or its largest init container if larger."""
    spec = pod["spec"]
    total: Vector = {}
    for container in spec.get("containers") or ():
        add_into(total, _container_request(container))
    for container in spec.get("initContainers") or ():
        total = highest(total, _container_request(container))
    add_into(total, amounts(spec.get("overhead") or {}))
    return total


def amounts(texts: Obj) -> Vector:
    """Quantity texts as base units."""
    return {name: parse_quantity(str(text), name) for name, text in texts.items()}


def phase(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def is_going(pod: Obj) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def key_of(pod: Obj) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _container_request(container: Obj) -> Vector:
    return amounts((container.get("resources") or {}).get("requests") or {})
