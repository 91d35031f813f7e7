"""The second wall around Ray clusters, on a real API server as an ordinary tenant: neither its owner nor the autoscaler
makes one larger than what is granted. What is refused names the value and the way out.
"""

import contextlib
from collections.abc import AsyncIterator

from kit import jobs
from kit.cluster import RAY
from kit.controlplane import ControlPlane
from kit.guarded import ACTUATOR, ALICE, MANAGED, OPERATOR, client, refused
from kit.kubeclient import KubeClient, Object
from kit.waiting import until

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
        group = (await alice.get(RAY, "RayCluster", name, MANAGED))["spec"]["workerGroupSpecs"][0]
        notes[GRANTED] = f"{group['groupName']}={count}"
        ops = [
            {"op": "add", "path": "/metadata/annotations", "value": notes},
            {"op": "add", "path": "/spec/suspend", "value": False},
            {"op": "add", "path": f"{GROUP}/maxReplicas", "value": count},
        ]
        await patch(actuator, name, ops)
        yield alice, actuator
        await alice.delete(RAY, "RayCluster", name, MANAGED)


async def patch(kube: KubeClient, name: str, ops: list[Object], kind: str = "RayCluster", sub: str = "") -> Object:
    version = RAY if kind == "RayCluster" else "v1"
    return await kube.patch(version, kind, name, MANAGED, patch=ops, subresource=sub)


def replace(field: str, value: object) -> list[Object]:
    return [{"op": "add", "path": f"{GROUP}/{field}", "value": value}]


async def test_neither_owner_nor_autoscaler_raises_replicas_above_the_grant(plane: ControlPlane) -> None:
    async with granted(plane, "grows") as (alice, actuator):

        async def works() -> bool:
            try:
                await refused(patch(alice, "grows", replace("replicas", 3)), "replicas of worker group")
            except BaseException:
                await patch(alice, "grows", replace("replicas", 1))
                return False
            return True

        await until(works, what="the policy to be in force")
        await patch(alice, "grows", replace("replicas", 2))
        await refused(patch(alice, "grows", replace("replicas", 3)), "cannot be 3: granted are ")
        await refused(patch(alice, "grows", replace("minReplicas", 3)), "minReplicas of worker group")
        await refused(patch(alice, "grows", replace("numOfHosts", 2)), "numOfHosts of worker group")
        async with client(plane, OPERATOR) as operator:
            await refused(patch(operator, "grows", replace("replicas", 3)), "let its autoscaler ask for more")
        # The owner may say what is the most that is wanted.
        assert (await patch(alice, "grows", replace("maxReplicas", 7)))["spec"]["workerGroupSpecs"][0][
            "maxReplicas"
        ] == 7
        await patch(actuator, "grows", replace("replicas", 3))
        await patch(alice, "grows", replace("replicas", 1))


async def test_nobody_forges_a_grant(plane: ControlPlane) -> None:
    async with granted(plane, "forged") as (alice, _):
        for key in (GRANTED, CEILINGS, GATE):
            pointer = key.replace("/", "~1")
            forged = [{"op": "add", "path": f"/metadata/annotations/{pointer}", "value": "small=9"}]
            await refused(patch(alice, "forged", forged), key)
