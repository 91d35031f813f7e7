"""The TFJob of our own example, which is that of the documents, on a cluster that has its operator and four GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import yaml

from kit.cluster import Cluster
from kit.controlplane import ControlPlane
from kit.doubles.training import TrainingOperator
from kit.gangs import room
from kit.kubeclient import Object
from kit.muster import Muster, running
from muster.events.system import PlacementMode

EXAMPLE = Path(__file__).parents[2] / "examples" / "gangs" / "tfjob.yaml"
GANG = "video/tf-smoke-gpu"
PODS = {"tf-smoke-gpu-ps-0", *(f"tf-smoke-gpu-worker-{index}" for index in range(4))}
GPU = "nvidia.com/gpu"
GPUS = {"cpu": "16", GPU: "4"}
"""What a node has: as many GPUs as are missing for all of the job."""


def demo(**run_policy: object) -> Object:
    """The manifest; ``run_policy``: fields of its runPolicy that are changed."""
    made: Object = yaml.safe_load(EXAMPLE.read_text())
    made["metadata"]["namespace"] = "video"
    if run_policy:
        made["spec"]["runPolicy"] = {**made["spec"].get("runPolicy", {}), **run_policy}
    return made


@contextlib.asynccontextmanager
async def on_four_gpus(
    plane: ControlPlane, nats_url: str, folder: Path, placement: PlacementMode = "off"
) -> AsyncIterator[Muster]:
    """Muster beside the real kube-scheduler, on a cluster with one node of GPUS and an operator for TFJobs."""
    async with Cluster(plane, pods=True) as cluster, room(cluster, first=GPUS):
        cluster.operate(TrainingOperator())
        async with running(cluster, nats_url, folder, placement=placement) as found:
            yield found
