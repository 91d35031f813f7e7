"""Events the operator writes about objects it cannot work with."""

from __future__ import annotations

from muster.model.api import EVENTS
from muster.sim.apiserver.names import derived_suffix, stamp
from muster.sim.apiserver.status import Obj
from muster.sim.kuberay import words
from muster.sim.operations import Create


def warning(found: Obj, reason: str, message: str, now: int) -> Create:
    """A warning about an object: named after what it says, so that saying it again adds nothing."""
    meta = found["metadata"]
    name = f"{meta['name']}.{derived_suffix(meta['uid'], meta['generation'], reason, message)}"
    return Create(
        EVENTS,
        meta["namespace"],
        {
            "metadata": {"name": name, "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": found["apiVersion"],
                "kind": found["kind"],
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": words.OPERATOR},
            "firstTimestamp": stamp(now),
            "lastTimestamp": stamp(now),
            "count": 1,
        },
    )
