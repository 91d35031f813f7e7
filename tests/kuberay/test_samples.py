"""KubeRay's own sample RayJobs and RayServices in a managed namespace, on the real operator: none is created dead.

Each sample is refused at create, or waits in its queue without a pod, and runs once there is room.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kit.cluster import RAY, SCHEDULING, TREES
from kit.controlplane import ControlPlane
from kit.elastic import tree
from kit.guarded import ALICE, MANAGED, client
from kit.installation import figure
from kit.kubeclient import ApiError, condition
from kit.muster import running
from kit.realkuberay.cluster import RealKubeRay
from kit.realkuberay.sources import Release
from muster.bus.server import EmbeddedServer
from muster.core.workloads.registry import suffix_of

pytestmark = [pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="session")]

Object = dict[str, Any]
KINDS = ("RayJob", "RayService")
QUOTAS = ("cpu", "memory", "nvidia.com/gpu", "google.com/tpu", "ephemeral-storage", "smarter-devices/fuse")
DEAD = ("ValidationFailed", "Failed")


def room(*, wide: bool) -> Object:
    """The tree, with room for everything or for nothing."""
    made = tree((MANAGED, "0", "0"), profile="ack")
    sizes = ("memory", "ephemeral-storage")
    most = {name: "0" if not wide else "1Pi" if name in sizes else "10000" for name in QUOTAS}
    root = made["spec"]["root"]
    root |= {"min": most, "max": most}
    root["children"][0] |= {"min": most, "max": most}
    return made


def samples(release: Release) -> dict[str, tuple[str, Object]]:
    """{name: (file, sample)}; each has a name of its own, and placeholders ($NAME) are filled."""
    found = [(path, body) for path, body in release.samples() if body.get("kind") in KINDS]
    named: dict[str, tuple[str, Object]] = {}
    for number, (path, body) in enumerate(found):
        made = json.loads(re.sub(r'"\$[A-Z_]+"', '"filled"', json.dumps(body)))
        made["metadata"]["name"] = name = f"{made['kind'].lower()}-{number}"
        made["metadata"]["namespace"] = MANAGED
        named[name] = (path, made)
    return named


async def test_each_sample_is_queued_admitted_by_its_pods_or_refused(
    plane: ControlPlane, release: Release, nats_server: EmbeddedServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with RealKubeRay(plane, release) as cluster, client(plane, ALICE) as alice:
        await cluster.kube.create(room(wide=False))
        async with running(cluster, nats_server.url, tmp_path):
            wanted, refused = samples(release), dict[str, str]()
            for name, (_, body) in wanted.items():
                try:
                    await alice.create(body)
                except ApiError as err:
                    assert err.status in (403, 422) and "ValidatingAdmissionPolicy" in str(err), (name, err)
                    refused[name] = str(err)
                    old = body["kind"] == "RayService" and not release.suspends_services()
                    assert not old or "KubeRay before 1.7 has no such field: upgrade KubeRay" in str(err), err
            taken = {name: each for name, each in wanted.items() if name not in refused}
            own = {name for name, (_, body) in taken.items() if "clusterSelector" not in body["spec"]}

            waits = set[str]()

            async def queued() -> bool:
                found = {unit["metadata"]["name"]: unit for unit in
                         await cluster.kube.list_objects(SCHEDULING, "QueueUnit", MANAGED)}  # fmt: skip
                names = {name: f"{name}{suffix_of(wanted[name][1]['kind'])}" for name in own}
                phases = {name: found.get(unit, {}).get("status", {}).get("phase", "") for name, unit in names.items()}
                waits.clear()
                waits.update({f"{wanted[name][0]}: {phase}" for name, phase in phases.items() if phase != "Enqueued"})
                return not waits

            try:
                await cluster.until(queued, 60.0, what="each to be queued")
            finally:
                print("not queued:", waits)
            assert not await cluster.pods(MANAGED), "nothing runs without quota"
            await cluster.kube.patch(TREES, "ElasticQuotaTree", "tree", "kube-system",
                                     patch={"spec": room(wide=True)["spec"]})  # fmt: skip
            left = dict[str, str]()

            async def alive() -> bool:
                left.clear()
                for name in taken:
                    word = await _standing(cluster, wanted[name][1]["kind"], name)
                    if word:
                        left[name] = f"{wanted[name][0]}: {word}"
                return not left or any(word.endswith(DEAD) for word in left.values())

            try:
                await cluster.until(alive, 150.0, what="each to run")
            finally:
                print("not running:", left)
                for name, text in refused.items():
                    print(f"refused: {wanted[name][0]}: {text.partition('request: ')[2][:160]}")
            assert not left
            figure(request, f"samples of KubeRay {release.version}",
                   f"{len(own)} queued and then admitted, {len(taken) - len(own)} on a cluster that they name, "
                   f"{len(refused)} refused at create, 0 dead, of {len(wanted)}")  # fmt: skip


async def _standing(cluster: RealKubeRay, kind: str, name: str) -> str:
    """Empty: it has pods, or had them; else its state."""
    body = await cluster.kube.get(RAY, kind, name, MANAGED)
    status = body.get("status") or {}
    word = str(status.get("jobDeploymentStatus") or condition(body, "Ready").get("reason", ""))
    if word in DEAD:
        return word
    if "clusterSelector" in body["spec"] or word in ("Running", "Complete", "Waiting", "NonZeroServeEndpoints"):
        return ""
    parts = (status, status.get("activeServiceStatus") or {}, status.get("pendingServiceStatus") or {})
    names = ",".join(part["rayClusterName"] for part in parts if part.get("rayClusterName"))
    has = await cluster.kube.list_objects("v1", "Pod", MANAGED, labels=f"ray.io/cluster in ({names})")
    return "" if names and has else word or "no pods"


async def test_the_rayjobs_of_a_raycronjob_are_queued_and_run(
    plane: ControlPlane, release: Release, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """KubeRay's own sample, which starts a RayJob each minute, without the flag that most users do not know."""
    async with RealKubeRay(plane, release) as cluster:
        await cluster.kube.create(room(wide=False))
        async with running(cluster, nats_server.url, tmp_path):
            crons = [body for _, body in release.samples() if body.get("kind") == "RayCronJob"]
            body = next(body for body in crons if body["spec"]["schedule"] == "* * * * *")
            body["metadata"]["namespace"] = MANAGED
            # KubeRay takes no time to live without the flag.
            for flag in ("shutdownAfterJobFinishes", "ttlSecondsAfterFinished"):
                body["spec"]["jobTemplate"].pop(flag, None)
            await cluster.kube.create(body)

            async def made() -> list[Object]:
                return list(await cluster.kube.list_objects(RAY, "RayJob", MANAGED))

            [first, *_] = await cluster.until(made, 100.0, "the first RayJob") or ()
            name = first["metadata"]["name"]

            async def phase() -> bool:
                unit = await cluster.kube.find(SCHEDULING, "QueueUnit", f"{name}{suffix_of('RayJob')}", MANAGED)
                return bool(unit) and unit["status"].get("phase") == "Enqueued"

            await cluster.until(phase, 30.0, "the first RayJob to be queued")
            assert not await cluster.pods(MANAGED), "nothing runs without quota"
            await cluster.kube.patch(TREES, "ElasticQuotaTree", "tree", "kube-system",
                                     patch={"spec": room(wide=True)["spec"]})  # fmt: skip

            async def runs() -> bool:
                word = await _standing(cluster, "RayJob", name)
                assert word not in DEAD
                return not word

            await cluster.until(runs, 60.0, "the first RayJob to run")
