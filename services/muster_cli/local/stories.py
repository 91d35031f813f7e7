"""The stories of ``muster up``: first manifests, kind of cluster, and output at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from muster.core.objects.meta import RAY_CLUSTER
from muster.events.system import PlacementMode
from muster.fakecluster.apiserver.status import Obj
from muster_cli import samples

SHARING = "raycluster-half-gpu"


class DemoStory(Struct, frozen=True):
    """One story."""

    name: str
    first: tuple[str, ...]
    """Samples that are there before the jobs."""
    jobs: tuple[str, ...]
    """Samples of jobs, created a moment apart."""
    kind: str
    """What kubectl calls the jobs."""
    placement: PlacementMode = "off"
    kai: bool = False
    """The KubeRay operator runs with batchScheduler.name=kai-scheduler, new jobs begin suspended by the policy, and a
    device plugin gives GPUs to the pods that keep GPUs.
    """
    lives: bool = False
    """Jobs go on coming (``local.living``), on its nodes; ``jobs`` are for the user to submit."""
    shows: str = ""
    """The Ray cluster whose pods are printed once every pod has a node."""

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.first, *self.jobs)))


STORIES: Mapping[str, DemoStory] = {
    story.name: story
    for story in (
        DemoStory("teams", (samples.TEAMS,), (samples.TRAINING,), "rayjob", lives=True),
        DemoStory("quota", (samples.QUOTA_TREE, samples.CONFIG_MAP), (samples.RAYJOB, samples.RAYJOB), "rayjob"),
        DemoStory(
            "kai",
            (samples.KAI_QUEUES,),
            (samples.KAI_CLUSTER, samples.KAI_SHARING),
            "raycluster",
            placement="pack",
            kai=True,
            shows=SHARING,
        ),
    )
}

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "NAME": ("metadata", "name"),
    "NODE": ("spec", "nodeName"),
    "GPU-FRACTION": ("metadata", "annotations", "gpu-fraction"),
    "GPU-GROUP": ("metadata", "labels", "runai-gpu-group"),
}


def command(cluster: str) -> str:
    """The command of KAI Scheduler's documents that shows the pods on a shared GPU."""
    columns = ",".join(f"{title}:.{'.'.join(path)}" for title, path in COLUMNS.items())
    return f'kubectl get pods -l {RAY_CLUSTER}={cluster} -o custom-columns="{columns}"'


def printed(pods: Sequence[Obj]) -> list[str]:
    """The output of the documented command for these pods."""
    rows = [[*COLUMNS], *([_cell(pod, path) for path in COLUMNS.values()] for pod in pods)]
    widths = [max(len(row[at]) for row in rows) + 3 for at in range(len(COLUMNS))]
    return ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(pod: Obj, path: tuple[str, ...]) -> str:
    value: Any = pod
    for key in path:
        value = (value or {}).get(key)
    return str(value) if value else "<none>"
