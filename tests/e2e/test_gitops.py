"""GitOps over Ray clusters that scale themselves: their manifests are applied again every few seconds, on a real API
server with the shipped policies, Muster, and a simulated autoscaler.

A sample of some seconds; MUSTER_TEST_GITOPS_S=600 goes on for ten minutes, every 3 s, and prints what came of it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from msgspec import Struct, field

from kit import jobs
from kit.cluster import RAY, RUN_FOR
from kit.compose import REPOSITORY
from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.elastic import raycluster
from kit.guarded import ALICE, ARGO, KEPT, MANAGED, client, guarded, mutates
from kit.installation import Bare
from kit.kubeclient import APPLY_PATCH, ApiError, KubeClient, Object
from kit.muster import Muster, running
from kit.raywalk import Walk
from kit.waiting import until
from muster.bus.server import EmbeddedServer
from muster.events.decisions import EvictionOrdered, SuspensionRecorded
from muster.events.elastic import GateSet
from muster.events.facts import TreeNodeSpec

SECONDS = float(os.environ.get("MUSTER_TEST_GITOPS_S", "0"))
EVERY_S = 3.0 if SECONDS else 0.3
ROUNDS = int(SECONDS / EVERY_S) if SECONDS else 20
ACTORS = 4
"""Of each cluster: the last one comes in the middle."""
MANAGER = "argocd-controller"
PAGE = REPOSITORY / "docs" / "howto" / "gitops.md"
GROUPS = ".spec.workerGroupSpecs[]."


ROOM = {"cpu": "20", "memory": "64Gi"}
LEAVES = tuple(TreeNodeSpec(name=each, min=ROOM, max=ROOM, namespaces=(each,)) for each in (MANAGED, KEPT))
ROOT = TreeNodeSpec(
    name="root", min={"cpu": "48", "memory": "192Gi"}, max={"cpu": "48", "memory": "192Gi"}, children=LEAVES
)


class Applied(Struct):
    """One manifest in Git, what became of applying it, and of the cluster."""

    walk: Walk
    ignores: bool
    taken: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)
    """uids of all there ever were."""

    async def apply(self, kube: KubeClient, version: int) -> None:
        """As Argo CD does with ServerSideApply: all of the manifest, and contested fields are taken over."""
        made = await self.manifest(version)
        try:
            await kube.apply(made, field_manager=MANAGER)
        except ApiError as err:
            assert err.status in (403, 422), err
            text = str(err).partition("denied the request: ")[2] or str(err)
            self.refused[text] = self.refused.get(text, 0) + 1
        else:
            self.taken += 1

    async def manifest(self, version: int) -> Object:
        """What is in Git; where differences are ignored (RespectIgnoreDifferences), with what is there instead."""
        made = raycluster(self.walk.name, self.walk.namespace)
        made["metadata"]["labels"] = {"version": str(version)}
        if not self.ignores:
            return made
        there, ignored = (await self.walk.object())["spec"], ignored_by_the_page()
        pairs = [(".spec.", made["spec"], there)]
        pairs += [
            (GROUPS, *both) for both in zip(made["spec"]["workerGroupSpecs"], there["workerGroupSpecs"], strict=True)
        ]
        for at, wanted, now in pairs:
            for name in {path.removeprefix(at) for path in ignored if path.rpartition(".")[0] == at[:-1]}:
                wanted.pop(name, None)
                wanted |= {name: now[name]} if name in now else {}
        return made

    async def look(self) -> None:
        await self.walk.tick()
        self.workers |= {pod["metadata"]["uid"] for pod in await self.walk.pods()}

    async def told(self, kind: type) -> int:
        """How many events of a kind concern it."""
        uid = (await self.walk.object())["metadata"]["uid"]
        return sum(each.ref.uid == uid for each in await self.walk.told(kind))


def ignored_by_the_page() -> list[str]:
    """What the Application of the page ignores of RayClusters."""
    text = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    [found] = [each for each in yaml.safe_load(text)["spec"]["ignoreDifferences"] if each["kind"] == "RayCluster"]
    return list(found["jqPathExpressions"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worked(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    async with guarded(works=True) as plane:
        yield plane


async def growing(muster: Muster, alice: KubeClient, name: str, namespace: str, *, ignores: bool) -> Applied:
    """A cluster that was created from Git, and has three workers."""
    found = Applied(Walk(muster, name, namespace), ignores)
    await alice.apply(raycluster(name, namespace), field_manager=MANAGER)
    await muster.cluster.until(found.walk.head_runs, 120.0, f"the head of {name} to run")
    for number in range(ACTORS - 1):
        found.walk.scaler.start(f"actor-{number}")
    await found.walk.until_placed(120.0)
    return found


async def unnamed(alice: KubeClient) -> Object:
    """A cluster of a fixed size that runs, and of which Git does not name ``suspend``: a policy adds it."""
    made = jobs.raycluster("unnamed", MANAGED)
    made["spec"].pop("suspend", None)
    assert (await alice.apply(made, field_manager=MANAGER))["spec"]["suspend"], "it is queued first"

    async def runs() -> bool:
        return not (await alice.get(RAY, "RayCluster", "unnamed", MANAGED))["spec"]["suspend"]

    await until(runs, 120.0, what="it to be admitted")
    return made


@pytest.mark.timeout(int(SECONDS) + 600)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_manifest_is_applied_again_and_again(
    worked: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with Bare(worked, pods=True) as cluster, client(worked, ALICE) as alice:
        await cluster.apply_tree(ROOT)
        async with running(cluster, nats_server.url, tmp_path) as muster:
            plans = [("ignored", MANAGED, True), ("contested", MANAGED, False)]
            plans += [("kept", KEPT, False)] if mutates(worked) else []
            found = {
                name: await growing(muster, alice, name, namespace, ignores=ignores)
                for name, namespace, ignores in plans
            }
            plain = [await unnamed(alice)] if mutates(worked) else []
            began = time.monotonic()
            for number in range(ROUNDS):
                for each in found.values():
                    await each.apply(alice, number)
                    if number == ROUNDS // 2:
                        each.walk.scaler.start("one-more")
                    await each.look()
                for made in plain:
                    made["metadata"]["labels"] = {"version": str(number)}
                    await alice.apply(made, field_manager=MANAGER)
                await asyncio.sleep(max(began + (number + 1) * EVERY_S - time.monotonic(), 0))  # as it does
            for each in found.values():
                await each.walk.until_placed(120.0)
                await each.look()
            if SECONDS:
                for name, each in found.items():
                    print(name, each.taken, each.refused, len(each.workers), await each.told(GateSet))
            await judge(found)
            for made in plain:
                assert not (await alice.get(RAY, "RayCluster", made["metadata"]["name"], MANAGED))["spec"]["suspend"]


async def judge(found: dict[str, Applied]) -> None:
    for name, each in found.items():
        assert not await each.told(EvictionOrdered), f"{name} was stopped"
        assert len(each.workers) == ACTORS, f"workers of {name} were replaced"
    ignored, contested = found["ignored"], found["contested"]
    assert (ignored.taken, ignored.refused) == (ROUNDS, {}), "every sync is taken"
    assert (await ignored.walk.object())["metadata"]["labels"]["version"] == str(ROUNDS - 1)
    assert contested.taken == 0, "no sync is taken, whatever else it changes"
    assert all("leave suspend out" in text for text in contested.refused), contested.refused
    assert await ignored.told(GateSet) <= 2 * ACTORS, "Muster writes for what waits, not for what is applied"
    if "kept" in found:
        assert (found["kept"].taken, found["kept"].refused) == (ROUNDS, {})


# --- appliers with every right ----------------------------------------------------------------------------------------


async def _server_side(kube: KubeClient, made: Object, there: Object) -> Object:
    """``kubectl apply --server-side``: without force, a contested field is a conflict."""
    plural = "jobs" if made["kind"] == "Job" else "rayclusters"
    meta = made["metadata"]
    path = f"/apis/{made['apiVersion']}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"
    return await kube.request("PATCH", path, body=made, params={"fieldManager": MANAGER}, content_type=APPLY_PATCH)


async def _client_side(kube: KubeClient, made: Object, there: Object) -> Object:
    """``kubectl apply``: a patch of what differs from what is there, and the manifest as an annotation."""
    last = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(made)}
    meta = {"annotations": last, "labels": made["metadata"].get("labels", {})}
    patch = {"metadata": meta, "spec": {"suspend": made["spec"]["suspend"]}}
    where = made["metadata"]
    return await kube.patch(made["apiVersion"], made["kind"], where["name"], where["namespace"], patch=patch)


async def _replace(kube: KubeClient, made: Object, there: Object) -> Object:
    """``kubectl replace``: the manifest takes the place of all that is there; with the version that is read."""
    version = {"resourceVersion": there["metadata"]["resourceVersion"]}
    return await kube.replace({**copy.deepcopy(made), "metadata": {**made["metadata"], **version}})


async def _replace_spec(kube: KubeClient, made: Object, there: Object) -> Object:
    """A client that reads, puts in what Git has, and writes the whole object."""
    return await kube.replace({**there, "spec": {**there["spec"], "suspend": made["spec"]["suspend"]}})


Manner = Callable[[KubeClient, Object, Object], Awaitable[Object]]
MANNERS: dict[str, Manner] = {
    "server-side, by force": lambda kube, made, _: kube.apply(made, field_manager=MANAGER),
    "server-side": _server_side,
    "client-side": _client_side,
    "replace": _replace,
    "read and write": _replace_spec,
}


@pytest.mark.timeout(600)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_applier_with_every_right_stops_nothing(
    worked: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Argo CD and Flux are cluster-admin: what they apply again is refused, or has no effect, and stops no pod."""
    async with Bare(worked, pods=True) as cluster, client(worked, ARGO) as argo:
        await cluster.apply_tree(ROOT)
        async with running(cluster, nats_server.url, tmp_path) as muster:
            manifests = [make(f"git-{kind}", each) for kind, make in MADE.items() for each in (MANAGED, KEPT)]
            for made in manifests:
                await argo.apply(made, field_manager=MANAGER)

            async def there(made: Object) -> Object:
                meta = made["metadata"]
                return await argo.get(made["apiVersion"], made["kind"], meta["name"], meta["namespace"])

            async def pods() -> dict[str, tuple[str, str]]:
                found = [pod for each in (MANAGED, KEPT) for pod in await argo.list_objects("v1", "Pod", each)]
                meta = [pod["metadata"] for pod in found if pod["status"]["phase"] == "Running"]
                return {each["uid"]: (each["namespace"], each["name"]) for each in meta}

            async def run() -> bool:
                names = (await pods()).values()
                return all(
                    any(
                        where == made["metadata"]["namespace"] and name.startswith(made["metadata"]["name"])
                        for where, name in names
                    )
                    for made in manifests
                )

            await cluster.until(run, 120.0, "all to run")
            before, told = await pods(), []
            for number in range(3):
                for manner, act in MANNERS.items():
                    for made in manifests:
                        made["metadata"]["labels"] = {"version": str(number)}
                        try:
                            await act(argo, made, await there(made))
                        except ApiError as err:
                            assert err.status in (403, 409, 422), err
                            told.append((manner, made["metadata"]["namespace"], str(err)))
                        else:
                            assert made["metadata"]["namespace"] == KEPT and mutates(worked), manner
                        assert not (await there(made))["spec"]["suspend"], manner
            assert before.items() <= (await pods()).items(), "no pod was stopped"
            events = [event for stored in await muster.commits() for event in stored.commit.events]
            assert not [each for each in events if isinstance(each, EvictionOrdered | SuspensionRecorded)]
            by_force = [text for manner, where, text in told if manner.endswith("by force") and where == MANAGED]
            assert len(by_force) == 3 * len(MADE) and all("ignoreDifferences" in text for text in by_force), told
            if mutates(worked):
                assert not [text for manner, where, text in told if where == KEPT and manner.endswith("by force")]


def _job(name: str, namespace: str) -> Object:
    made = jobs.job(name, namespace, parallelism=1)
    made["spec"]["template"].setdefault("metadata", {}).setdefault("annotations", {})[RUN_FOR] = "99h"
    return made


MADE: dict[str, Callable[[str, str], Object]] = {"job": _job, "rays": jobs.raycluster}
