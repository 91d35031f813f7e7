"""Nothing of a namespace runs beyond what was admitted, whatever a tenant does: Muster, the real controllers and the
real scheduler on a real API server with the shipped policies, and a generated tenant (`kit.atwork`) among them.

At every moment the pods of its quota ask for its max at the most; what is above it is shown, and gone within a minute.
No pod is on a node outside of the charges. The other team has its job and its turn. A sample here; 2,000 acts every
night; `make attack` goes on for MUSTER_ATTACK_S seconds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio

from kit import jobs
from kit.atwork import Tenant, on_nodes, over
from kit.cluster import TREES, document_job
from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.guarded import ALICE, BOB, client, guarded
from kit.installation import Bare, figure
from kit.kubeclient import KubeClient
from kit.muster import LOG_BYTES, running
from kit.operators import SparkOperator
from kit.tenant import quantity, schemas_of
from muster.bus.server import EmbeddedServer

SECONDS = float(os.environ.get("MUSTER_ATTACK_S", "0"))
STEPS = int(os.environ.get("MUSTER_ATTACK_STEPS", "150"))
"""Acts of the tenant here; by time they would be as many as the machine is idle."""
SEED = int(os.environ.get("MUSTER_ATTACK_SEED", "21"))
MINE, THEIRS = "video", "text"
GONE_S, SHOWN_S = (60.0, 10.0) if SECONDS else (180.0, 60.0)
"""After which time what is above the max is gone, and shown; a machine that runs other tests beside is slow."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worked(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    async with guarded(works=True) as plane:
        yield plane


class Judge:
    """Counts what runs, again and again. ``excess``: what is above the max now; ``beside``: what no charge counts."""

    def __init__(self, kube: KubeClient, cluster: Bare, most: dict[str, Decimal]) -> None:
        self.most_seen: dict[str, Decimal] = {}
        self.looks = 0
        self.excess: dict[str, str] = {}
        self._kube, self._cluster, self._most = kube, cluster, most
        self._since = 0.0
        self.beside: dict[str, str] = {}
        self.slowest = 0.0
        """The longest time (s) for which a pod on a node was in no charge."""
        self._beside_since = 0.0

    async def look(self, tenant: Tenant) -> None:
        used, named = on_nodes(await self._kube.list_objects("v1", "Pod", MINE))
        self.looks += 1
        for key in self._most:
            self.most_seen[key] = max(self.most_seen.get(key, Decimal(0)), used.get(key, Decimal(0)))
        await self._charged(tenant, used, named)
        self.excess = over(used, self._most)
        if not self.excess:
            self._since = 0.0
            return
        self._since = self._since or time.monotonic()
        lasts = time.monotonic() - self._since
        account = "\n".join(["runs:", *named, "what passed last:", *tenant.last])
        assert lasts < GONE_S, f"above its max for {lasts:.0f} s: {self.excess}\n{account}"
        if lasts > SHOWN_S:
            shown = (await self._cluster.tree_used()).get(f"root/algorithm/{MINE}", {})
            above = {key for key in self._most if quantity(shown.get(key, 0)) > self._most[key]}
            assert above, f"above its max, and not charged: {self.excess}, shown is {shown}\n{account}"

    async def _charged(self, tenant: Tenant, used: dict[str, Decimal], named: list[str]) -> None:
        """What the pods on nodes ask for is in the charges, as the tree's own status tells them, a moment later."""
        shown = (await self._cluster.tree_used()).get(f"root/algorithm/{MINE}", {})
        self.beside = over(used, {key: quantity(shown.get(key, 0)) for key in self._most})
        if not self.beside:
            self._beside_since = 0.0
            return
        self._beside_since = self._beside_since or time.monotonic()
        lasts = time.monotonic() - self._beside_since
        self.slowest = max(self.slowest, lasts)
        account = "\n".join(["runs:", *named, "what passed last:", *tenant.last])
        assert lasts < SHOWN_S, f"beside all charges for {lasts:.0f} s: {self.beside}\n{account}"


@pytest.mark.timeout(int(SECONDS) + 600)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("steps", [STEPS, pytest.param(2_000, marks=[pytest.mark.nightly, pytest.mark.timeout(5_400)])])
async def test_nothing_runs_beyond_what_was_admitted(
    worked: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path, request: pytest.FixtureRequest, steps: int
) -> None:
    async with (
        Bare(worked, pods=True) as cluster,
        client(worked, ALICE) as alice,
        client(worked, BOB) as bob,
        client(worked, worked.admin) as admin,
    ):
        tree = await cluster.apply_tree()
        # Every container is charged: profile ack leaves out the autoscaler that KubeRay adds.
        rules = {"muster.dev/overuse-timeout": "5s", "muster.dev/request-profile": "full"}
        await admin.patch(
            TREES,
            "ElasticQuotaTree",
            tree["metadata"]["name"],
            "kube-system",
            patch={"metadata": {"annotations": rules}},
        )
        [algorithm] = [each for each in tree["spec"]["root"]["children"] if each["name"] == "algorithm"]
        [leaf] = [each for each in algorithm["children"] if each["name"] == MINE]
        most = {key: quantity(each) for key, each in leaf["max"].items()}
        few = {"count/pods": "150"}
        meta = {"name": "few", "namespace": MINE}
        await admin.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": few}})
        cluster.operate(SparkOperator())
        async with running(cluster, nats_server.url, tmp_path, log_bytes=LOG_BYTES * (8 if SECONDS else 1)):
            await bob.create(document_job(THEIRS, runtime="9h", generateName=None, name="theirs"))
            await cluster.until(lambda: cluster.running("theirs", THEIRS), 180.0, "the other team's job to run")
            before = await theirs(admin)

            async def used() -> dict[str, str] | None:
                shown = (await cluster.tree_used()).get(f"root/algorithm/{THEIRS}", {})
                return shown if quantity(shown.get("cpu", 0)) >= 12 else None

            charged = await cluster.until(used, 120.0, "the tree to show what the other team uses")
            tenant = Tenant(alice, await schemas_of(admin), MINE, SEED)
            judge = Judge(admin, cluster, most)
            await alice.create(document_job(MINE, runtime="9h", generateName=None, name="mine"))
            await cluster.until(lambda: cluster.running("mine", MINE), 180.0, "its own job to run")
            await acts(tenant, judge, SECONDS / 2, steps // 2)
            await bob.create(jobs.job("late", THEIRS, cpu="500m"))
            await acts(tenant, judge, SECONDS / 2, steps // 2)

            async def runs() -> bool:
                found = await admin.get("batch/v1", "Job", "late", THEIRS)
                return bool((found.get("status") or {}).get("active") == 2)

            await cluster.until(runs, 180.0, "a job of the other team, made meanwhile, to run")

            async def within() -> bool:
                await judge.look(tenant)
                return not judge.excess

            await cluster.until(within, GONE_S, "what is above the max to be gone")
            assert before <= await theirs(admin), "the other team keeps its pods"
            await admin.delete("batch/v1", "Job", "late", THEIRS)

            async def as_before() -> bool:
                return (await cluster.tree_used()).get(f"root/algorithm/{THEIRS}") == charged

            await cluster.until(as_before, 120.0, "the other team to be charged for its own, and no more")
        passed, refused = sum(tenant.done.values()), sum(tenant.refused.values())
        assert passed > 20 and refused > 10 and judge.most_seen["cpu"] >= 12, (tenant.done, tenant.refused)
        told = ", ".join(f"{key} {amount}" for key, amount in judge.most_seen.items())
        name = f"a generated tenant, {judge.looks} looks"
        figure(
            request, name, f"{passed} passed, {refused} refused, at most {told}; {judge.slowest:.1f} s beside charges"
        )


async def acts(tenant: Tenant, judge: Judge, seconds: float, steps: int) -> None:
    """For so long, or where no time is said so often."""
    until = time.monotonic() + seconds
    while (time.monotonic() < until) if seconds else steps:
        await asyncio.gather(tenant.step(), judge.look(tenant))
        steps -= 1


async def theirs(kube: KubeClient) -> set[str]:
    """The pods of the other team's job."""
    found = await kube.list_objects("v1", "Pod", THEIRS)
    return {each["metadata"]["uid"] for each in found if "late" not in each["metadata"]["name"]}
