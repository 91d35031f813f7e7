"""The wishes of simulated controllers on an API server, as data.

Controllers plan operations; the drivers in `drivers` carry them out, on the simulated server directly or through an
ApiTransport. An operation names the refusals that count as success.
"""

from __future__ import annotations

from msgspec import Struct

from muster.fakecluster.apiserver.deletion import Propagation
from muster.fakecluster.apiserver.status import Obj
from muster.model.api import PODS, ApiResource


class Create(Struct, frozen=True):
    """Create an object. One that exists already is as good."""

    resource: ApiResource
    namespace: str
    body: Obj


class Replace(Struct, frozen=True):
    """Write a whole object, or its status; refused when the object has changed since it was read."""

    resource: ApiResource
    body: Obj
    subresource: str = ""

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"].get("namespace", ""))

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


class Merge(Struct, frozen=True):
    """Merge something into an object; one that is gone is as good."""

    resource: ApiResource
    namespace: str
    name: str
    patch: Obj
    subresource: str = ""


class DeleteObject(Struct, frozen=True):
    """Delete an object with this uid; a missing object is as good."""

    resource: ApiResource
    namespace: str
    name: str
    uid: str = ""
    grace_s: int | None = None
    propagation: Propagation = "Background"


class BindPod(Struct, frozen=True):
    """Put a pod on a node; refused when it is bound, going, gated or another one by now."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def resource(self) -> ApiResource:
        return PODS


ApiOperation = Create | Replace | Merge | DeleteObject | BindPod


class OperationPlan(Struct, frozen=True):
    """The result of a look at an object: operations in order, and the time of the next look without a change."""

    operations: tuple[ApiOperation, ...] = ()
    again_ms: int | None = None
    """ms from now; None: only when something changes."""


def owner_of(obj: Obj) -> list[Obj]:
    """Owner references that make the object the controller of another one."""
    reference = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": obj["metadata"]["name"]}
    flags = {"controller": True, "blockOwnerDeletion": True}
    return [{**reference, "uid": obj["metadata"]["uid"], **flags}]


def controller_uid(obj: Obj) -> str:
    """Uid of the object's controlling owner; empty when it has none."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return ""
