"""Events the operator writes about objects it cannot work with."""

from __future__ import annotations

from muster.fakecluster.apiserver.names import derived_suffix, stamp
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import words
from muster.fakecluster.operations import Create
from muster.model.api import EVENTS


def warning(obj: Obj, reason: str, message: str, now: int) -> Create:
    """A warning about an object, named after its text, so that repeating the text adds nothing."""
    meta = obj["metadata"]
    name = f"{meta['name']}.{derived_suffix(meta['uid'], meta['generation'], reason, message)}"
    return Create(
        EVENTS,
        meta["namespace"],
        {
            "metadata": {"name": name, "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": obj["apiVersion"],
                "kind": obj["kind"],
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
