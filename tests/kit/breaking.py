"""How objects of a cluster are broken and put right again, and whether the doctor names it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from kit.kubeclient import KubeClient, Object
from kit.waiting import until
from muster_cli.findings import Finding

GONE = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "deletionTimestamp", "selfLink")

Break = Callable[[KubeClient], AbstractAsyncContextManager[Any]]


def bare(found: Object) -> Object:
    meta = {key: value for key, value in found["metadata"].items() if key not in GONE}
    return {**{key: value for key, value in found.items() if key != "status"}, "metadata": meta}


def without(version: str, kind: str, name: str, namespace: str | None = None) -> Break:
    """The object is deleted."""

    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        found = await kube.get(version, kind, name, namespace)
        await kube.delete(version, kind, name, namespace)
        await until(lambda: gone(kube, version, kind, name, namespace), 30.0)
        yield
        await kube.create(bare(found))

    return made


async def gone(kube: KubeClient, *which: Any) -> bool:
    return await kube.find(*which) is None


def with_(body: Object) -> Break:
    """An object is there that should not be."""

    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        meta = body["metadata"]
        await kube.create(body)
        yield
        await kube.delete(body["apiVersion"], body["kind"], meta["name"], meta.get("namespace"))

    return made


def changed(version: str, kind: str, name: str, namespace: str | None = None, **patch: Any) -> Break:
    """The object says something else."""

    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        found = await kube.get(version, kind, name, namespace)
        await kube.patch(version, kind, name, namespace, patch=patch)
        yield
        await kube.delete(version, kind, name, namespace)
        await until(lambda: gone(kube, version, kind, name, namespace), 30.0)
        await kube.create(bare(found))

    return made


def relabelled(name: str, value: str | None) -> Break:
    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        for text in (value, "true"):
            await kube.patch("v1", "Namespace", name, patch={"metadata": {"labels": {"muster.dev/managed": text}}})
            if text == value:
                yield

    return made


def namespaced(name: str, inner: Break) -> Break:
    """In a namespace of its own, which may stay."""

    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        if await kube.find("v1", "Namespace", name) is None:
            await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        async with inner(kube):
            yield

    return made


def lease(name: str, namespace: str, holder: str) -> Break:
    """A lease renewed a moment ago."""

    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
        meta = {"name": name, "namespace": namespace}
        async with with_({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})(
            kube
        ):
            yield

    return namespaced(namespace, made)


def deployment(name: str, namespace: str, **labels: str) -> Break:
    """A deployment whose pod is ready: the controllers made it, and count it."""
    pods = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": pods}
    meta = {"name": name, "namespace": namespace, "labels": labels}

    @asynccontextmanager
    async def made(kube: KubeClient) -> AsyncIterator[None]:
        async with with_({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})(kube):

            async def runs() -> bool:
                for pod in await kube.list_objects("v1", "Pod", namespace, labels=f"app={name}"):
                    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                    await kube.patch(
                        "v1", "Pod", pod["metadata"]["name"], namespace, patch={"status": status}, subresource="status"
                    )
                found = await kube.get("apps/v1", "Deployment", name, namespace)
                return bool((found.get("status") or {}).get("availableReplicas"))

            await until(runs, 30.0, 0.2)
            yield

    return namespaced(namespace, made)


def named(findings: list[Finding], words: str, fix: str) -> bool:
    return any(
        each.grade != "ok" and words in f"{each.title}: {each.detail}" and fix in each.fix and each.fix
        for each in findings
    )


def bad(findings: list[Finding]) -> list[Finding]:
    return [each for each in findings if each.grade == "bad"]
