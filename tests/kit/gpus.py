"""Stands in for a device plugin and a driver: pods that keep a GPU get one of their node's, and report its UUID."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from kit.cluster import Cluster
from kit.kubeclient import ApiError
from muster.core.objects.gpushares import RESERVATIONS
from muster.fakecluster.deviceplugin import DevicePlugin


@contextlib.asynccontextmanager
async def reporting(cluster: Cluster) -> AsyncIterator[None]:
    """While this lasts GPUs are reported; the namespace of the pods that keep them is there, and empty at the end."""
    with contextlib.suppress(ApiError):
        await cluster.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESERVATIONS}})
    async with cluster.beside(cluster.driver(DevicePlugin()).run()):
        yield
    for pod in await cluster.kube.list_objects("v1", "Pod", RESERVATIONS):
        await cluster.kube.delete("v1", "Pod", pod["metadata"]["name"], RESERVATIONS)
