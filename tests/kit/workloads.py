"""Plain pods for tests on the control plane, and waiting for what becomes of them."""

from kit.kubeclient import KubeClient, Object
from kit.waiting import until

#: Label, and taint, that keep the nodes of one test apart from the pods of all others.
POOL = "kit.muster.dev/pool"


def in_pool(namespace: str) -> Object:
    """Part of a pod spec that binds the pod to the nodes that `make_node` made for this test."""
    return {
        "nodeSelector": {POOL: namespace},
        "tolerations": [{"key": POOL, "operator": "Equal", "value": namespace}],
    }


def pod(name: str, namespace: str, *, cpu: str = "1", **annotations: str) -> Object:
    """A pod with one container for the nodes of this test.

    `annotations` steer KWOK (see kwok.yaml), e.g. `run_for="2s"` sets `kit.muster.dev/run-for`.
    """
    noted = {f"kit.muster.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": noted},
        "spec": {"containers": [container], "restartPolicy": "Never", **in_pool(namespace)},
    }


async def wait_for_phase(kube: KubeClient, namespace: str, name: str, phase: str, timeout_s: float = 60.0) -> Object:
    """The pod, once it is in `phase`. Raises ApiError when there is no such pod."""

    async def reached() -> Object | None:
        found = await kube.get("v1", "Pod", name, namespace)
        return found if found["status"]["phase"] == phase else None

    return await until(reached, timeout_s, what=f"pod {namespace}/{name} to be {phase}")


async def wait_until_gone(
    kube: KubeClient,
    api_version: str,
    kind: str,
    name: str,
    namespace: str | None = None,
    timeout_s: float = 30.0,
) -> None:
    """Return once there is no such object."""

    async def gone() -> bool:
        return await kube.find(api_version, kind, name, namespace) is None

    await until(gone, timeout_s, what=f"{kind} {name} to be gone")
