"""The second wall around Ray clusters, on a real API server as an ordinary tenant: neither its owner nor the autoscaler
makes one larger than what is granted. What is refused names the value and the way out.
"""

from kit.controlplane import ControlPlane
from kit.granted import CEILINGS, GATE, GRANTED, GROUP, granted, patch
from kit.guarded import AUTOSCALER, client, refused
from kit.kubeclient import Object
from kit.waiting import until

SIZE = "it runs with the size that was admitted: spec.workerGroupSpecs cannot be changed so"


def replace(field: str, value: object) -> list[Object]:
    return [{"op": "add", "path": f"{GROUP}/{field}", "value": value}]


async def test_neither_owner_nor_autoscaler_raises_replicas_above_the_grant(plane: ControlPlane) -> None:
    async with granted(plane, "grows") as (alice, actuator):

        async def works() -> bool:
            try:
                await refused(patch(alice, "grows", replace("replicas", 3)), SIZE)
            except BaseException:
                await patch(alice, "grows", replace("replicas", 1))
                return False
            return True

        await until(works, what="the policy to be in force")
        await patch(alice, "grows", replace("replicas", 2))
        granted_so = f"{SIZE}; granted are small=2: let its autoscaler ask for more"
        await refused(patch(alice, "grows", replace("replicas", 3)), granted_so)
        await refused(patch(alice, "grows", replace("minReplicas", 3)), SIZE)
        await refused(patch(alice, "grows", replace("numOfHosts", 2)), SIZE)
        async with client(plane, AUTOSCALER) as autoscaler:
            await refused(patch(autoscaler, "grows", replace("replicas", 3)), "let its autoscaler ask for more")
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
