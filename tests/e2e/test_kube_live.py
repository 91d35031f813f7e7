"""Reflector, transport and discovery against a real API server, through its crash."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from random import Random

import pytest
import pytest_asyncio

from kit.controlplane import ControlPlane, User
from kit.controlplane.build import Binaries
from kit.kubeclient import KubeClient
from muster.kube.config import connect
from muster.kube.deltas import Absent, Delete, ListSynced, Upsert
from muster.kube.discovery import can_i, has_status_subresource, served, server_version
from muster.kube.errors import KubeConfigError
from muster.kube.hooks import NoWatchHooks
from muster.kube.reflector import Reflector
from muster.kube.sources import Explicit, FromKubeconfig
from muster.kube.transport import KubeTransport
from muster.kube.trouble import RestartCause, from_response
from muster.model.api import NODES, PODS, RAYJOBS, ApiResource

CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
WIDGETS = ApiResource("kit.muster.dev", "v1", "gadgets", "Gadget")
NOBODY = User("nobody")


async def impatient(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.2))


class Model(NoWatchHooks):
    """What a reflector's consumer knows; waits for conditions on it."""

    def __init__(self, transport: KubeTransport, resource: ApiResource, namespace: str) -> None:
        self.live: dict[str, str] = {}
        self.lists = 0
        self.absent = False
        self.causes: list[str] = []
        self._changed = asyncio.Event()
        self._reflector = Reflector(
            transport, resource, namespace=namespace, page_size=2, hooks=self, rng=Random(1), sleep=impatient
        )

    def restarted(self, resource: str, cause: str, detail: str) -> None:
        self.causes.append(cause)
        self._changed.set()

    async def follow(self) -> None:
        async with aclosing(self._reflector.deltas()) as deltas:
            async for delta in deltas:
                match delta:
                    case Upsert(meta, raw):
                        assert json.loads(raw)["metadata"]["name"] == meta.name
                        self.live[meta.name] = meta.resource_version
                    case Delete(meta, _):
                        del self.live[meta.name]
                    case ListSynced():
                        self.lists += 1
                    case Absent():
                        self.absent = True
                self._changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for a condition; looked at again whenever anything was reported."""
        async with asyncio.timeout(60):
            while not reached():
                self._changed.clear()
                await self._changed.wait()

    async def until_there(self, *names: str) -> None:
        await self.until(lambda: self.lists > 0 and self.live.keys() == set(names))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """A plane of our own, to be crashed."""
    own = ControlPlane(users=[NOBODY], controller_manager=False, scheduler=False, kwok=False)
    async with own:
        yield own


@pytest_asyncio.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as client:
        yield client


@pytest_asyncio.fixture
async def transport(plane: ControlPlane) -> AsyncIterator[KubeTransport]:
    made = await connect(FromKubeconfig(str(plane.kubeconfig)), check=True)
    yield made
    await made.close()


async def put(admin: KubeClient, name: str, value: str = "") -> None:
    await admin.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
            "data": {"v": value},
        }
    )


async def test_changes_are_followed_through_a_crash_of_the_server(
    plane: ControlPlane, admin: KubeClient, transport: KubeTransport
) -> None:
    for name in "abcde":
        await put(admin, name)
    model = Model(transport, CONFIG_MAPS, "default")
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(model.follow())
        await model.until_there(*"abcde")
        before = model.live["b"]
        await put(admin, "b", "changed")
        await admin.delete("v1", "ConfigMap", "a", "default")
        await model.until_there(*"bcde")
        await model.until(lambda: model.live["b"] != before)
        await plane.restart_apiserver()
        await put(admin, "f")
        await admin.delete("v1", "ConfigMap", "c", "default")
        await model.until_there(*"bdef")
        fresh = await admin.list_objects("v1", "ConfigMap", "default")
        assert model.live == {found["metadata"]["name"]: found["metadata"]["resourceVersion"] for found in fresh}
        assert "unreachable" in model.causes
        following.cancel()


async def test_definition_made_later_makes_an_absent_resource_appear(
    admin: KubeClient, transport: KubeTransport
) -> None:
    assert not await served(transport, WIDGETS)
    model = Model(transport, WIDGETS, "")
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(model.follow())
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gadgets.kit.muster.dev"},
            "spec": {
                "group": "kit.muster.dev",
                "scope": "Namespaced",
                "names": names,
                "versions": [{**version, "subresources": {"status": {}}}],
            },
        }
        await model.until(lambda: model.absent)
        await admin.create(definition)
        one = {"apiVersion": "kit.muster.dev/v1", "kind": "Gadget", "metadata": {"name": "one", "namespace": "default"}}
        await admin.create(one)
        await model.until_there("one")
        following.cancel()
    assert await has_status_subresource(transport, WIDGETS)


async def test_position_from_before_the_servers_memory_is_told_in_the_stream(
    plane: ControlPlane, transport: KubeTransport
) -> None:
    await plane.restart_apiserver()
    lines = transport.watch("/api/v1/configmaps", query={"resourceVersion": "1"}, idle_limit_s=10)
    event = json.loads(await anext(lines))
    await lines.aclose()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_version_the_server_has_not_reached_is_too_new(transport: KubeTransport) -> None:
    answer = await transport.request("GET", "/api/v1/configmaps", query={"resourceVersion": "99999999"})
    assert (from_response(answer).cause, answer.retry_after_s) == (RestartCause.TOO_NEW, 1.0)


async def test_user_without_rights_is_told_so(plane: ControlPlane) -> None:
    transport = await connect(FromKubeconfig(str(plane.kubeconfig_for(NOBODY))), check=True)
    model = Model(transport, PODS, "")
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(model.follow())
        await model.until(lambda: model.causes.count("forbidden") >= 2)
        following.cancel()
    access = await can_i(transport, "list", PODS)
    assert (access.allowed, model.lists) == (False, 0)
    await transport.close()


async def test_wrong_token_is_told_by_the_check(plane: ControlPlane) -> None:
    with pytest.raises(KubeConfigError, match="refuses our credential"):
        await connect(Explicit(plane.url, token="wrong", ca_file=str(plane.ca_file)), check=True)


async def test_unknown_authority_is_told_by_the_check(plane: ControlPlane) -> None:
    with pytest.raises(KubeConfigError, match=r"(?i)certificate verify failed"):
        await connect(Explicit(plane.url, token=plane.admin.token), check=True)


async def test_discovery(plane: ControlPlane, transport: KubeTransport) -> None:
    assert await served(transport, NODES)
    assert await has_status_subresource(transport, PODS)
    assert not await served(transport, RAYJOBS)
    assert (await server_version(transport)).git == f"v{plane.version}"
    assert (await can_i(transport, "create", PODS, "default", subresource="binding")).allowed
