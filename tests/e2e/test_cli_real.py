"""``muster doctor`` and ``muster up --context`` on a real API server, as users with more and less rights."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kit.cli import Cli
from kit.cluster import Cluster, furnish
from kit.controlplane import ControlPlane, User
from kit.controlplane.build import Binaries
from kit.deployed import objects
from kit.kubeclient import KubeClient
from kit.story import rayjob
from muster.kube.discovery import ServerVersion
from muster_cli.policychecks import POLICIES

NOBODY = User("nobody")
LOOKER = User("looker")
"""May watch what Muster watches."""
DOER = User("doer")
"""May do all that Muster does."""
RBAC = "rbac.authorization.k8s.io"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """A control plane with the roles of deploy/rbac, bound to people instead of services."""
    users = [NOBODY, LOOKER, DOER]
    async with ControlPlane(users=users, scheduler=False, kwok=False, prepare=furnish) as plane:
        async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
            for found in objects("rbac"):
                await kube.apply(found)
            for user, roles in ((LOOKER, ("watcher",)), (DOER, ("watcher", "actuator"))):
                for role in roles:
                    await kube.create(
                        {
                            "apiVersion": f"{RBAC}/v1",
                            "kind": "ClusterRoleBinding",
                            "metadata": {"name": f"{role}-{user.name}"},
                            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": f"muster-{role}"},
                            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user.name}],
                        }
                    )
        yield plane


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with Cluster(plane) as cluster:
        await cluster.apply_tree()
        yield cluster


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def as_user(plane: ControlPlane, user: User) -> tuple[str, ...]:
    return ("--kubeconfig", str(plane.kubeconfig_for(user)))


async def test_who_may_nothing_is_told_everything_that_is_missing(cli: Cli, cluster: Cluster) -> None:
    examined = await cli.run("doctor", *as_user(cluster.plane, NOBODY))
    assert examined.code == 1
    for words in (
        "we may not list, watch rayjobs.ray.io in all namespaces",
        "we may not get, patch rayjobs.ray.io in all namespaces",
        "we may not create, patch, delete queues.scheduling.x-k8s.io in namespace kube-queue",
    ):
        assert words in examined.out, words
    assert "ok   definitions" in examined.out


async def test_watching_takes_the_watchers_role_only(cli: Cli, cluster: Cluster) -> None:
    looker = as_user(cluster.plane, LOOKER)
    (await cli.run("doctor", "--observe", *looker)).ok()
    assert (await cli.run("doctor", *looker)).code == 1
    one = await cluster.submit(rayjob("one"))
    async with cli.start("up", "--headless", *looker) as up:
        assert f"video/{one}" in await up.line("would admit")
        assert (await up.stop()).code == 0
    assert (await cluster.job(one))["spec"]["suspend"] is True
    assert await cluster.unit(one) is None


async def test_acting_is_refused_without_the_policies_and_works_with_them(cli: Cli, cluster: Cluster) -> None:
    doer = as_user(cluster.plane, DOER)
    examined = await cli.run("doctor", *as_user(cluster.plane, cluster.plane.admin))
    assert examined.code == 1
    assert "policies: ValidatingAdmissionPolicy muster-" in examined.out
    assert "the credentials of Muster's actuator change anything" in examined.out
    assert examined.lines[-1] == "2 problems to fix"
    major, minor = (int(part) for part in cluster.plane.version.split(".")[:2])
    served = {
        resource.kind
        for policy in POLICIES
        if ServerVersion(major, minor) >= policy.since
        for resource in (policy.resource, policy.binding)
    }
    for found in objects("policies"):
        if found["kind"] in served:
            await cluster.kube.apply(found)
    (await cli.run("doctor", *as_user(cluster.plane, cluster.plane.admin))).ok()
    [trusted] = [each for each in objects("rbac") if each["kind"] == "ConfigMap"]
    await cluster.kube.delete("v1", "ConfigMap", trusted["metadata"]["name"], trusted["metadata"]["namespace"])
    examined = await cli.run("doctor", *as_user(cluster.plane, cluster.plane.admin))
    assert examined.code == 1
    assert "ConfigMap muster-system/muster-controllers missing: the policies refuse every job" in examined.out
    await cluster.kube.apply(trusted)
    # Whoever may do all that Muster does need not be able to look at policies or at others' deployments.
    examined = (await cli.run("doctor", *doer)).ok()
    assert "note policies: cannot be looked at" in examined.out
    one = await cluster.submit(rayjob("one", runtime="2s"))
    async with cli.start("up", "--headless", "--act", *doer) as up:
        assert f"video/{one}" in await up.line("  admitted  ")
        await up.line("  running  ")
        await cluster.until(lambda: cluster.unit(one))
        assert (await up.stop()).code == 0
