"""The state file as written: fields, types and defaults. reading.py judges the meaning of the values.

Seconds are counted on the file's own clock, from 0. Amounts have their unit in their name.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

Number = int | float | str
"""``2``, ``0.5`` or ``"0.5"``: read exactly, as it is written."""


class TaintEntry(Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule"] = "NoSchedule"


class TolerationEntry(Struct, frozen=True, forbid_unknown_fields=True):
    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""


class NodeEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A node. A missing cpu, memory or number of pods is ample."""

    name: str
    gpus: int = 0
    cpu_milli: int | None = None
    memory_mib: int | None = None
    pods: int | None = None
    gpu_memory_mib: int | None = None
    """Of each device; without it the label ``nvidia.com/gpu.memory`` counts."""
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[TaintEntry, ...] = ()
    ready: bool = True
    schedulable: bool = True


class QueueEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue in few words. A number counts GPUs; a map has a number for each of ``gpus``, ``cpu_milli``,
    ``memory_mib``.

    -1 is unlimited.
    """

    name: str
    parent: str = ""
    quota: Number | dict[str, Number] = 0
    limit: Number | dict[str, Number] = -1
    weight: Number | dict[str, Number] = 1
    priority: int = 100


class PodEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One pod: whole GPUs, or a fraction or an amount of memory of one or more devices, or none."""

    name: str = ""
    gpus: int = 0
    gpu_fraction: Number | None = None
    gpu_memory_mib: int | None = None
    devices: int | tuple[int, ...] = 1
    """Of how many devices it takes the fraction or the memory; of a running pod also which ones."""
    cpu_milli: int = 0
    memory_mib: int = 0
    phase: Literal["Pending", "Running"] = "Pending"
    node: str = ""
    started_s: Number | None = None
    subgroup: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[TolerationEntry, ...] = ()


class TopologyEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Node labels: pods are to be where they are equal."""

    required: str = ""
    preferred: str = ""


class SubgroupEntry(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    min_member: int
    topology: TopologyEntry = TopologyEntry()


class JobEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A job: a gang of ``min_member`` pods; the others join singly."""

    name: str
    pods: tuple[PodEntry, ...]
    queue: str = ""
    priority: int | str = "train"
    preemptible: bool | None = None
    min_member: int | None = None
    created_s: Number | None = None
    subgroups: tuple[SubgroupEntry, ...] = ()
    topology: TopologyEntry = TopologyEntry()


class StateFile(Struct, frozen=True, forbid_unknown_fields=True):
    """All of the file."""

    nodes: tuple[NodeEntry, ...]
    jobs: tuple[JobEntry, ...] = ()
    queues: Any = ()
    """A list of short entries or whole KAI Queue objects, or one ElasticQuotaTree object."""
    now_s: Number | None = None
    placement: Literal["pack", "spread"] = "pack"
