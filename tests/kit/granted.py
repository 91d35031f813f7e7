"""A RayCluster that runs under a grant, on a control plane with our policies."""

import contextlib
from collections.abc import AsyncIterator

from kit import jobs
from kit.cluster import RAY
from kit.controlplane import ControlPlane
from kit.guarded import ACTUATOR, ALICE, MANAGED, client
from kit.kubeclient import ApiError, KubeClient, Object

GRANTED, CEILINGS, GATE = "muster.dev/granted", "muster.dev/max-replicas", "muster.dev/gate"
GROUP = "/spec/workerGroupSpecs/0"


@contextlib.asynccontextmanager
async def granted(plane: ControlPlane, name: str, count: int = 2) -> AsyncIterator[tuple[KubeClient, KubeClient]]:
    """A RayCluster of Alice's that runs with so many replicas granted; (Alice, Muster's actuator)."""
    async with client(plane, ALICE) as alice, client(plane, ACTUATOR) as actuator:
        made = jobs.raycluster(name, MANAGED, replicas=1, suspend=True)
        made["spec"]["enableInTreeAutoscaling"] = True
        await alice.create(made)
        notes = {GRANTED: f"small={count}", CEILINGS: "small=10", GATE: "1-7-0", "muster.dev/intent": "1-7-0"}
        ops = [
            {"op": "add", "path": "/metadata/annotations", "value": notes},
            {"op": "add", "path": "/spec/suspend", "value": False},
            {"op": "add", "path": f"{GROUP}/maxReplicas", "value": count},
        ]
        await patch(actuator, name, ops)
        yield alice, actuator
        with contextlib.suppress(ApiError):  # A test may have deleted it.
            await alice.delete(RAY, "RayCluster", name, MANAGED)


async def patch(kube: KubeClient, name: str, ops: list[Object]) -> Object:
    return await kube.patch(RAY, "RayCluster", name, MANAGED, patch=ops)
