"""Every workload kind there is: one row each."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from muster.core.workloads.kinds import rayjob
from muster.model import api
from muster.model.api import ApiResource
from muster.model.workload import Workload


class Kind(Struct, frozen=True):
    """How one kind is read, suspended and shown."""

    resource: ApiResource
    read: Callable[[bytes], Workload]
    unit_suffix: str
    """Name of its QueueUnit = name of the object + this."""
    suspend_path: str = "/spec/suspend"
    """JSON pointer of the field that suspends it."""


KINDS: dict[str, Kind] = {
    "RayJob": Kind(api.RAYJOBS, rayjob.read, unit_suffix="-ray-qu"),
}
"""{kind: row}"""
